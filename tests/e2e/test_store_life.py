# SPDX-License-Identifier: Apache-2.0
"""The embedded store from start to end: restarts, kills, two at a time, and refusals."""
import concurrent.futures
import os
import pathlib
import socket
import subprocess
import threading
import time

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build
from store_fixture import TABLE, Store, rows, underspan

pytestmark = [pytest.mark.light, plain_build(NO_ENGINE)]


# ---- life ----

def test_restart_keeps_the_data(tmp_path):
    with Store(tmp_path / "db") as s:
        first = s.password
        assert (tmp_path / "db").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "db/password").stat().st_mode & 0o777 == 0o600
        assert len(first) == 32 and first.isalnum()
        assert (tmp_path / "db/endpoint").read_text() == s.url + "\n"
        assert int((tmp_path / "db/lock").read_text()) == s.process.pid
        s.ask(TABLE.format("t"))
        s.insert("INSERT INTO t FORMAT JSONEachRow", rows("kept", 1000), insert_deduplication_token="k")
        assert s.stop() == 0
        assert not (tmp_path / "db/endpoint").exists()
    with Store(tmp_path / "db") as s:
        assert s.password == first
        # the window is remembered, too
        s.insert("INSERT INTO t FORMAT JSONEachRow", rows("kept", 1000), insert_deduplication_token="k")
        assert s.ask("SELECT count(), uniqExact(s) FROM t") == "1000\t1000\n"
        assert s.stop() == 0


def test_kill_and_restart(tmp_path):
    """SIGKILL amid inserts: acknowledged rows are there; an unacknowledged insert is there as a whole or
    not at all."""
    acknowledged = []
    with Store(tmp_path / "db") as s:
        s.ask(TABLE.format("t"))

        def insert():
            try:
                for i in range(10000):
                    if s.insert("INSERT INTO t FORMAT JSONEachRow", rows("k", 100, i * 100)).status != 200:
                        return
                    acknowledged.append(i)
            except OSError:
                pass

        thread = threading.Thread(target=insert)
        thread.start()
        while len(acknowledged) < 20:
            time.sleep(0.01)
        s.kill()
        thread.join()
    assert (tmp_path / "db/endpoint").exists()
    with Store(tmp_path / "db") as s:
        counts = dict(map(int, line.split("\t")) for line in s.ask(
            "SELECT intDiv(a, 100), count() FROM t GROUP BY 1").splitlines())
        assert set(counts.values()) == {100}
        assert set(acknowledged) <= set(counts) and len(counts) - len(acknowledged) <= 1
        assert (tmp_path / "db/endpoint").read_text().split()[0] == s.url


def test_stop_with_queries_running(tmp_path):
    """A short query finishes; an endless query is cancelled; the exit is clean and in time."""
    with Store(tmp_path / "db") as s, concurrent.futures.ThreadPoolExecutor(3) as pool:
        short = pool.submit(s.request, body=b"SELECT sleep(1)")
        endless = pool.submit(s.request, body=b"SELECT count() FROM system.numbers")
        idle = s.connect()
        assert s.request("GET", "/ping", connection=idle).status == 200
        while s.ask("SELECT count() FROM system.processes") != "3\n":
            time.sleep(0.01)
        start = time.monotonic()
        assert s.stop() == 0
        assert time.monotonic() - start < 8
        assert short.result().text == "0\n"
        assert endless.result().code == 394
        idle.close()


def test_an_agent_does_not_use_the_store_of_a_question(tmp_path):
    """It would end with the question, and rows of all hours after it with the agent. The agent waits, and has a store of its own."""
    db = tmp_path / "db"
    with Store(db) as s:
        assert s.stop() == 0
    slow = "SELECT count() FROM (SELECT sleepEachRow(1) FROM numbers(8) SETTINGS max_block_size = 1) WHERE NOT ignore(*)"
    question = subprocess.Popen([UNDERSPAN, "sql", f"--store={db}", slow], stdout=subprocess.PIPE, text=True)
    while not (db / "endpoint").exists():
        assert question.poll() is None
        time.sleep(0.02)
    assert (db / "endpoint").read_text().splitlines()[1:] == ["passing"]
    agent = subprocess.Popen([UNDERSPAN, "run", f"--store={db}", "--trackers=tcp_connect", "--flush_interval=1", "--report_interval=1"],
                             stderr=subprocess.PIPE, text=True)
    try:
        log = []
        while "ready" not in "".join(log[-1:]):
            log.append(agent.stderr.readline())
            assert agent.poll() is None, log
        assert question.wait(60) == 0 and question.stdout.read().split()[-1] == "8"
        assert len((db / "endpoint").read_text().splitlines()) == 1
        count = lambda: int(underspan("sql", f"--store={db}", "--format=TSV", "SELECT count() FROM ebpf_agent").stdout)
        first, deadline = count(), time.monotonic() + 30
        while count() == first:
            assert time.monotonic() < deadline
    finally:
        agent.terminate()
        rest = agent.communicate(timeout=30)[1]
    assert agent.returncode == 0 and "Failed to connect" not in rest and "could not be delivered" not in rest, rest


def test_one_store_a_directory(tmp_path):
    with Store(tmp_path / "db") as s:
        with pytest.raises(RuntimeError) as e:
            Store(tmp_path / "db")
        assert "exit 1:" in str(e.value) and f"pid {s.process.pid}" in str(e.value)
        assert s.ask("SELECT 1") == "1\n"
        assert (tmp_path / "db/endpoint").read_text().split()[0] == s.url


@pytest.mark.parametrize("arguments, status, words", [
    (["--listen=0.0.0.0:0"], 2, ["loopback", "--listen_anywhere"]),
    (["--listen=8123"], 2, ["HOST:PORT"]),
    (["--listen=127.0.0.1:99999"], 2, ["HOST:PORT"]),
    (["--listen=192.0.2.1:0", "--listen_anywhere"], 1, ["cannot listen on 192.0.2.1:0"]),
    (["--libchdb=/nonexistent/libchdb.so"], 1, ["/nonexistent/libchdb.so"]),
    (["--libchdb=/bin/true"], 1, ["/bin/true"]),
    (["--max_body_mb=0"], 2, ["max_body_mb"]),
])
def test_refusals(tmp_path, arguments, status, words):
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "db", *arguments)
    assert f"exit {status}:" in str(e.value)
    for word in words:
        assert word in str(e.value)
    assert not (tmp_path / "db/endpoint").exists()


def test_more_refusals(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        with pytest.raises(RuntimeError) as e:
            Store(tmp_path / "db", listen=address)
        assert f"exit 1: {address} is in use" in str(e.value)
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "no/parent/db")
    assert "exit 1: cannot make the store's directory" in str(e.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "file")
    assert "exit 1:" in str(e.value) and "is a file" in str(e.value)


def test_without_the_engine(tmp_path):
    """A lone program, without libchdb in the usual places: one sentence with the ways to get an engine. An installed program is asked."""
    from store_fixture import UNDERSPAN
    alone = tmp_path / "underspan"
    alone.write_bytes(pathlib.Path(UNDERSPAN).read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "store", f"--path={tmp_path}/db"], capture_output=True, text=True,
                          env={**os.environ, "UNDERSPAN_LIBCHDB": ""})
    assert done.returncode == 1
    assert "deploy/libchdb.sh" in done.stderr and "--store_program=FILE" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "db").exists()
    installed = 'mount -t tmpfs tmpfs /usr/local/bin && cp /bin/false /usr/local/bin/clickhouse && exec "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", installed, "sh", alone, "store", f"--path={tmp_path}/db"], capture_output=True,
                          text=True, env={**os.environ, "UNDERSPAN_LIBCHDB": ""})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "/usr/local/bin/clickhouse, 23.1 or newer is needed: the ClickHouse engine does not answer" in done.stderr


def test_the_script_named_is_the_one_that_is_there(tmp_path):
    """Of a package below any prefix the path can be typed as it is; nothing is said of a source tree that the user does not have."""
    from store_fixture import UNDERSPAN
    alone, script = tmp_path / "bin/underspan", tmp_path / "share/underspan/libchdb.sh"
    for path in alone, script:
        path.parent.mkdir(parents=True)
    script.write_text("")
    alone.write_bytes(pathlib.Path(UNDERSPAN).read_bytes())
    alone.chmod(0o755)
    for more in [], ["--libchdb=/no/such/file"]:
        done = subprocess.run([alone, "store", f"--path={tmp_path}/db", *more], capture_output=True, text=True, env={**os.environ, "UNDERSPAN_LIBCHDB": ""})
        assert done.returncode == 1 and str(script) in done.stderr and "source tree" not in done.stderr, done.stderr


def test_full_disk(tmp_path):
    """On a small file system that fills up: an exception readable by clients, and the store continues."""
    (tmp_path / "small").mkdir()
    mount = f"mount -t tmpfs -o size=24m tmpfs {tmp_path}/small && exec \"$@\""
    with Store(tmp_path / "small/db", prefix=["unshare", "-m", "sh", "-c", mount, "sh"]) as s:
        s.ask(TABLE.format("t"))
        insert = "INSERT INTO t SELECT number, randomPrintableASCII(2000) FROM numbers(2000)"
        for i in range(20):
            answer = s.request(body=insert.encode())
            if answer.status != 200:
                break
        assert i > 0 and answer.status == 500 and answer.code in (74, 75, 76, 243, 1001), answer.text
        assert "space" in answer.text.lower()
        # acknowledged rows are there, and the store continues once there is room
        assert s.ask("SELECT count() FROM t") == f"{2000 * i}\n"
        s.ask("DROP TABLE t SYNC")
        s.ask(TABLE.format("t"))
        assert s.request(body=insert.encode()).status == 200
        assert s.stop() == 0
