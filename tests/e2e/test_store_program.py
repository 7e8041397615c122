# SPDX-License-Identifier: Apache-2.0
"""The store with an installed clickhouse program as its engine. The program is `chdb_local`: the engine and the arguments' parser of
`clickhouse local`, out of libchdb; no released clickhouse program can be had from Debian. The truth is the same store by the library."""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import time
import urllib.request

import pytest

from agent import NO_ENGINE, PATIENCE, plain_build
from store_fixture import ROOT, STORE, TABLE, UNDERSPAN, Store, rows, underspan

pytestmark = [pytest.mark.engine, plain_build(NO_ENGINE)]

LIBRARY = ROOT / "build/cache/libchdb/libchdb.so"
SERVER = """
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.3)
        self.send_response(204)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
CAP_NET_ADMIN, EFFECTIVE, REVISION_2 = 1 << 12, 1, 0x02000000


def copy(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """With a capability, as ClickHouse's packages give it."""
    path = tmp_path_factory.mktemp("bin") / "clickhouse"
    shutil.copy(ROOT / "build/tests/e2e/chdb_local", path)
    if os.geteuid() == 0:
        os.setxattr(path, "security.capability", struct.pack("<5I", REVISION_2 | EFFECTIVE, CAP_NET_ADMIN, 0, 0, 0))
    for directory in path.parents[:2]:
        directory.chmod(0o755)
    return path


def prepared(path):
    """A new store's directory, with the library that chdb_local loads: the confined process reads there."""
    with pytest.raises(RuntimeError) as e:
        Store(path, "--store_program=/bin/false")
    assert "/bin/false, 23.1 or newer is needed: " in str(e.value) and "ended with status 1" in str(e.value)
    copy(LIBRARY, path / "engine/libchdb.so")
    return path


@pytest.fixture(scope="module")
def store(program, tmp_path_factory):
    with Store(prepared(tmp_path_factory.mktemp("store") / "db"), f"--store_program={program}", "--max_memory_mb=256") as s:
        s.ask(TABLE.format("t"))
        yield s
        assert s.process.poll() is None, s.log.read_text()
        assert s.stop() == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("library") / "db", "--max_memory_mb=256") as s:
        s.ask(TABLE.format("t"))
        yield s


def children(store):
    """The running programs; the store's process has another child, which keeps its directory."""
    found = subprocess.run(["pgrep", "-P", str(store.process.pid), "-f", "^clickhouse local --path="], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def wait_for(what, seconds):
    end = time.monotonic() + seconds * PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def said(answer):
    """Status, code and text, without what tells one statement file from another: where in it an error is, and who repeats a code."""
    text = re.sub(r"position \d+|\(line \d+, col \d+\)|in scope .*|Code: \d+\. DB::Exception: |(?<=Unknown )output |[\d.]+ [MG]iB", "", answer.text)
    return answer.status, answer.code, text[:60]


@pytest.mark.parametrize("body, params", [
    ("SELECT number, toString(number) AS s FROM numbers(3)", {}),
    ("SELECT number FROM numbers(3) FORMAT JSON SETTINGS output_format_write_statistics = 0", {}),
    ("SELECT 1 AS a, 'x' AS b", {"default_format": "PrettyCompact"}),
    ("SELECT {x:String}, {y:UInt32}", {"param_x": "a'b\\\\c\\td; SELECT 2 -- é", "param_y": "7"}),
    ("SELECT {x:String}", {"param_x": "--path=/tmp/elsewhere"}),
    ("SELECT {x:String}", {"param_x; SELECT 5; SET param_y": "1"}),
    ("SELECT {x:Nullable(String)} IS NULL", {"param_x": "\\N"}),
    ("SELECT getSetting('max_threads'), getSetting('log_comment')", {"max_threads": "3", "query_id": "it's"}),
    ("SELECT 1 +", {}), ("SELECT nonsense", {}), ("SELECT * FROM missing", {}), ("--help", {}), ("", {}), ("SELECT 1; SELECT 2", {}),
    ("SELECT throwIf(number = 3) FROM numbers(5)", {}), ("SELECT 1", {"database": "missing"}), ("SELECT 1", {"no_such_setting": "1"}),
    ("SELECT 1", {"default_format": "NoSuchFormat"}), ("SELECT 1", {"default_format": "TSV --path=/"}),
    ("DROP TABLE t", {"readonly": "1"}), ("CREATE TABLE t (a UInt8) ENGINE = Memory", {}), ("SHOW TABLES LIKE 't'", {}),
    ("SELECT 1 INTO OUTFILE '/tmp/x'", {}), ("SELECT * FROM file('/etc/passwd', 'LineAsString')", {}),
    ("SELECT max(length(a)) FROM (SELECT groupArray(number) AS a FROM numbers(1000000000))", {}),
])
def test_answers_are_the_librarys(store, library, body, params):
    got, wanted = said(store.request(body=body.encode(), **params)), said(library.request(body=body.encode(), **params))
    assert got == wanted


def test_rows(store):
    store.ask(TABLE.format("r"))
    for _ in range(2):
        answer = store.insert("INSERT INTO r (a, s) FORMAT JSONEachRow", rows("r", 100_000), insert_deduplication_token="once",
                              max_insert_block_size="1000000", min_insert_block_size_rows="1000000", input_format_parallel_parsing="0")
        assert answer.status == 200, answer.text
    assert store.ask("SELECT count(), sum(a) FROM r") == f"100000\t{sum(range(100_000))}\n"
    assert store.insert("INSERT INTO r FORMAT TSV", "1\ta\n2\n").code in (26, 27)
    assert store.insert("INSERT INTO r VALUES", "(5, 'x'), (6, 'y')").status == 200
    assert store.ask("SELECT count() FROM r") == "100002\n"
    large = store.request(body=b"SELECT a, s FROM r ORDER BY a, s FORMAT TSV")
    assert large.body.count(b"\n") == 100_002
    store.ask("DROP TABLE r SYNC")


@pytest.mark.parametrize("sql, data, count", [
    ("INSERT INTO {t} (a, s) SETTINGS async_insert = 1, wait_for_async_insert = 1 VALUES", "(1, 'x'), (2, 'SETTINGS a = 1')", 2),
    ("INSERT INTO {t} SETTINGS input_format_allow_errors_num=1 -- a word\n FORMAT JSONEachRow\n", '{"a": 1, "s": "x"}\n{"a": "no"}\n{"a": 2, "s": "y"}\n', 2),
    ("insert into {t} settings max_insert_block_size = 1000 format TSV\n", "1\tx\n2\ty\n", 2),
    ("INSERT INTO {t} SETTINGS no_such_setting = 1 FORMAT TSV\n", "1\tx\n", 0),
    ("INSERT INTO `SETTINGS a = 1` FORMAT TSV\n", "1\tx\n2\ty\n", 2),
    ("INSERT INTO settings FORMAT TSV\n", "1\tx\n2\ty\n", 2),
    ("INSERT INTO settings SETTINGS max_insert_block_size = 1000 FORMAT TSV\n", "1\tx\n2\ty\n", 2),
])
def test_settings_of_an_insert(store, library, sql, data, count):
    """As clients write it, behind the table, before FORMAT or VALUES: the statement in the parameter, then all in the body."""
    tables, query, seen = ["with_settings", "settings", "SETTINGS a = 1"], sql.format(t="with_settings"), []
    for s in store, library:
        for table in tables:
            s.ask(TABLE.format(f"`{table}`"))
        answers = [said(s.insert(query, data)), said(s.request(body=(query + data).encode()))]
        rows_there = [s.ask(f"SELECT a, s FROM `{table}` ORDER BY a, s") for table in tables]
        seen.append((answers, rows_there))
        assert {status == 200 for status, _, _ in answers} == {count > 0}, answers
        assert sum(text.count("\n") for text in rows_there) in (count, 2 * count), rows_there
        for table in tables:
            s.ask(f"DROP TABLE `{table}` SYNC")
    assert seen[0] == seen[1]


def test_what_runs_is_confined(store):
    """Nothing of the statement in the arguments, no privilege, no environment, and no one else's files."""
    asker = subprocess.Popen([UNDERSPAN, "sql", f"--store={store.path}", "SELECT sleepEachRow(1), 'secret' FROM numbers(4) SETTINGS max_block_size = 1"],
                             stdout=subprocess.DEVNULL)
    wait_for(lambda: children(store), 5)
    time.sleep(0.3)
    proc = pathlib.Path(f"/proc/{children(store)[0]}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
    assert (proc / "cmdline").read_bytes().split(b"\0")[:2] == [b"clickhouse", b"local"] and b"secret" not in (proc / "cmdline").read_bytes()
    assert status["NoNewPrivs"] == "1" and int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
    assert "0" not in status["Uid"].split() or os.geteuid() != 0
    assert re.fullmatch(rb"(TZ=[^\0]*\0)?", (proc / "environ").read_bytes())
    assert asker.wait(20 * PATIENCE) == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_asker_that_goes(store, how):
    sql = "SELECT count() FROM numbers(1e15) WHERE NOT ignore(cityHash64(number))"
    askers = [subprocess.Popen([UNDERSPAN, "sql", f"--store={store.path}", sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    wait_for(lambda: children(store), 5)
    time.sleep(1)
    # one runs, the other waits for its turn
    assert len(children(store)) == 1
    for asker in askers:
        asker.send_signal(how)
    wait_for(lambda: not children(store), 3)
    for asker in askers:
        asker.communicate(timeout=5 * PATIENCE)
        assert asker.returncode == -how
    assert store.ask("SELECT 1") == "1\n"


def test_large_outputs(store):
    """The limit is four times the queries' memory; and half of it for a form of answer that is kept in memory."""
    answer = store.request(body=b"SELECT repeat('x', 1000000) FROM numbers(20) FORMAT JSONCompact")
    assert answer.status == 200 and answer.body.count(b"x") > 20_000_000
    endless = store.path / "engine/endless"
    endless.touch(mode=0o644)
    try:
        answer = store.request(body=b"SELECT 1")
    finally:
        endless.unlink()
    assert (answer.status, answer.code) == (500, 396) and "max bytes: 1073741824" in answer.text
    assert not children(store) and store.ask("SELECT 1") == "1\n"


def test_parts_are_merged(store):
    store.ask(TABLE.format("`p``\\\\'`"))
    name = "`p``\\\\'`"
    for i in range(66):
        assert store.insert(f"INSERT INTO {name} FORMAT TSV", f"{i}\tx\n").status == 200
    count = "SELECT count(), uniqExact(table) FROM system.parts WHERE active AND table LIKE 'p%'"
    assert int(store.ask(count).split()[0]) < 40
    assert store.ask(f"SELECT count(), sum(a) FROM {name}") == f"66\t{sum(range(66))}\n"


def test_a_killed_store_leaves_no_process(program, tmp_path):
    with Store(prepared(tmp_path / "db"), f"--store_program={program}") as s:
        s.ask(TABLE.format("t"))
        assert s.insert("INSERT INTO t FORMAT TSV", "1\tx\n").status == 200
        asker = subprocess.Popen([UNDERSPAN, "sql", f"--store={s.path}", "SELECT sleepEachRow(3) FROM numbers(9)"], stderr=subprocess.DEVNULL)
        wait_for(lambda: children(s), 5)
        child, = children(s)
        s.kill()
        wait_for(lambda: not pathlib.Path(f"/proc/{child}/exe").exists(), 3)
        assert asker.wait(10 * PATIENCE) == 1
    for arguments in [], [f"--store_program={program}"]:
        with Store(tmp_path / "db", *arguments) as s:
            assert s.ask("SELECT * FROM t") == "1\tx\n"
            assert s.stop() == 0


def alone(tmp_path, program):
    """underspan where no library is in the usual places, and a PATH with the program."""
    path = tmp_path / "alone"
    path.mkdir()
    shutil.copy(STORE, path / "underspan")
    return path / "underspan", {**os.environ, "UNDERSPAN_LIBCHDB": "", "PATH": f"relative:{program.parent}:{os.environ['PATH']}"}


def test_the_program_in_path_is_taken_where_there_is_no_library(program, tmp_path):
    """The agent writes rows through it and all commands ask it; then the library has the same rows, and the program again."""
    command, env = alone(tmp_path, program)
    db = prepared(tmp_path / "db")

    def run(*arguments, status=0, answer=False):
        done = subprocess.run([command, *arguments], capture_output=True, text=True, env=env, timeout=120 * PATIENCE)
        assert done.returncode == status, done.stderr
        return done.stdout if answer else done.stdout + done.stderr

    assert f"by {program}" in run("run", "--check", f"--store={db}")
    server = subprocess.Popen(["/usr/bin/python3", "-c", SERVER], stdout=subprocess.PIPE, text=True)
    port = int(server.stdout.readline())
    agent = subprocess.Popen([command, "run", f"--store={db}", f"--pid={server.pid}", "--trackers=off_cpu,request", "--duration=20",
                              f"--spool.directory={tmp_path}/spool"], env=env, stderr=subprocess.PIPE, text=True)
    try:
        while ": ready: " not in (line := agent.stderr.readline()):
            assert line
        for _ in range(5):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read()
        log = agent.communicate(timeout=120 * PATIENCE)[1]
    finally:
        server.kill()
        server.communicate()
    page = tmp_path / "x.html"
    where = [f"--store={db}", "--since=1h"]
    assert "no difference" in run("schema", f"--store={db}", "--check")
    run("offcpu", *where, "-o", page)
    assert "<html" in page.read_text() and page.stat().st_size > 10_000
    ids = run("sql", f"--store={db}", "SELECT request_id FROM ebpf_request WHERE duration_ns > 2e8 ORDER BY start_time FORMAT TSV").split()
    assert len(ids) == 5, log
    assert "UNKNOWN_IDENTIFIER" in run("sql", f"--store={db}", "SELECT nonsense", status=1)
    asked = [["sql", f"--store={db}", "SELECT count(), sum(duration_ns) FROM ebpf_off_cpu"], ["explain", f"--store={db}", ids[0]]]
    by_program = [run(*question, answer=True) for question in asked]
    requests = ["requests", *where, "--json"]
    listed = json.loads(run(*requests, answer=True))["slowest"]
    assert "sleep" in by_program[1] and [request["status"] for request in listed] == [204] * 5, listed
    # the library, and the program again
    assert [underspan(*question).stdout for question in asked] == by_program
    assert json.loads(underspan(*requests).stdout)["slowest"] == listed
    assert run(*asked[0], answer=True) == by_program[0]


@pytest.mark.parametrize("arguments, status, words", [
    (["--store_program=/nonexistent/clickhouse"], 1, "no clickhouse program at /nonexistent/clickhouse: No such file or directory"),
    (["--store_program=/tmp"], 2, "no clickhouse program at /tmp: a directory: name the program"),
    (["--store_program=/etc/passwd"], 2, "no clickhouse program at /etc/passwd: not executable"),
    (["--store_program=/bin/true"], 1, "/bin/true, 23.1 or newer is needed: the ClickHouse engine does not answer: no version"),
    (["--store_program=/bin/true", "--libchdb=/bin/true"], 2, "exclude each other"),
])
def test_refusals(tmp_path, arguments, status, words):
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "db", *arguments)
    assert str(e.value).startswith(f"exit {status}: ") and words in str(e.value)
