# SPDX-License-Identifier: Apache-2.0
"""`underspan sql` and the store as its child: whose it is, what it may, how it ends."""
import http.server
import os
import pathlib
import pwd
import signal
import ssl
import subprocess
import threading
import time

import pytest

from agent import NO_ENGINE, plain_build
from store_fixture import UNDERSPAN, Store, underspan

pytestmark = plain_build(NO_ENGINE)


def test_a_store_for_one_question(tmp_path):
    db = tmp_path / "db"
    done = underspan("sql", f"--store={db}", "SELECT 1 AS a, 'x' AS b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\tb\n1\tx\n", "")
    assert underspan("sql", f"--store={db}", "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a"
                     ).returncode == 0
    assert underspan("sql", f"--store={db}", "INSERT INTO t VALUES (1), (2)").returncode == 0
    done = underspan("sql", f"--store={db}", "--format=JSONEachRow", "-", input="SELECT sum(a) AS s FROM t")
    assert (done.returncode, done.stdout) == (0, '{"s":3}\n')
    # nothing is left of it
    assert not (db / "endpoint").exists()
    pid = int((db / "lock").read_text())
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_errors(tmp_path):
    done = underspan("sql", f"--store={tmp_path}/db", "SELECT * FROM no_such_table")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("underspan: error: Code: 60. DB::Exception: ")
    assert done.stderr.count("\n") == 1
    # after the first rows were made: still an error, and no half answer
    done = underspan("sql", f"--store={tmp_path}/db",
                     "SELECT throwIf(number = 2000000) FROM system.numbers LIMIT 3000000")
    assert done.returncode == 1 and done.stdout == "" and "Code: 395." in done.stderr
    done = underspan("sql", "--clickhouse=http://127.0.0.1:1", "SELECT 1")
    assert done.returncode == 1 and "http://127.0.0.1:1" in done.stderr
    done = underspan("sql", f"--store={tmp_path}/db", "SELECT 1", env={**os.environ, "UNDERSPAN_LIBCHDB": "/no"})
    assert done.returncode == 1 and "/no" in done.stderr
    # the answer has nowhere to go
    with open("/dev/full", "w") as full:
        done = subprocess.run([UNDERSPAN, "sql", f"--store={tmp_path}/db", "SELECT 1"], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "No space left" in done.stderr


@pytest.mark.parametrize("arguments, words", [
    (["SELECT 1"], "--clickhouse=URL"),
    (["--store=/tmp/x", "--clickhouse=http://127.0.0.1:1", "SELECT 1"], "not both"),
    (["--store=/tmp/x"], "which query?"),
    (["--store=/tmp/x", "SELECT 1", "SELECT 2"], "unexpected argument"),
    (["--clickhouse=http://u:s3cret@h/", "SELECT 1"], "clickhouse_password_file"),
    (["--clickhouse=http://h/?password=s3cret", "SELECT 1"], "clickhouse_password_file"),
    (["--clickhouse=tcp://h:9000", "SELECT 1"], "http://"),
])
def test_usage(arguments, words):
    done = underspan("sql", *arguments)
    assert done.returncode == 2 and words in done.stderr
    assert "s3cret" not in done.stderr


def test_a_server_with_password(tmp_path):
    """The running store stands for any ClickHouse server: URL, user, password from file or environment."""
    with Store(tmp_path / "db") as s:
        ask = ["sql", f"--clickhouse={s.url}", "SELECT currentUser() AS u"]
        done = underspan(*ask, f"--clickhouse_password_file={tmp_path}/db/password")
        assert done.stdout == "u\ndefault\n", done.stderr
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": s.password}
        assert underspan(*ask, env=env).stdout == "u\ndefault\n"
        assert "Code: 516" in underspan(*ask, "--clickhouse_user=somebody", env=env).stderr
        assert underspan(*ask).returncode == 1
        done = underspan(*ask, "--clickhouse_database=system", env=env)
        assert done.returncode == 0
        done = underspan("sql", f"--clickhouse={s.url}", "--clickhouse_database=no_such", "SELECT 1", env=env)
        assert done.returncode == 1 and "Code: 81" in done.stderr
        # a directory that is served already is joined, not served twice
        done = underspan("sql", f"--store={tmp_path}/db", "SELECT 2 AS a")
        assert done.stdout == "a\n2\n"
        assert s.ask("SELECT 1") == "1\n"
        assert (tmp_path / "db/endpoint").read_text().split()[0] == s.url


def children(pid):
    return [int(p) for t in pathlib.Path(f"/proc/{pid}/task").iterdir()
            for p in (t / "children").read_text().split()]


def wait_for(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not (got := what()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)
    return got


@pytest.fixture
def long_question(tmp_path):
    """`underspan sql` amid a question without end; yields it and its store's pid."""
    db = tmp_path / "db"
    p = subprocess.Popen([UNDERSPAN, "sql", f"--store={db}", "SELECT count() FROM system.numbers"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: (db / "endpoint").exists())
    [child] = children(p.pid)
    yield p, child
    if p.poll() is None:
        p.kill()
        p.wait()


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_child_has_no_privileges(long_question, tmp_path):
    parent, child = long_question
    status = status_of(child)
    users = {p.pw_name: p.pw_uid for p in pwd.getpwall()}
    uid = users.get("underspan", users["nobody"])
    assert set(status["Uid"].split()) == {str(uid)}
    assert "0" not in status["Gid"].split() and status["Groups"].strip() == ""
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1" and status["Name"] == "underspan-store"
    # of its parent's files it has stdio and the engine; the rest is in its directory, which it sees
    # at /mnt, because pytest's own directories are closed to others
    for fd in pathlib.Path(f"/proc/{child}/fd").iterdir():
        target = os.readlink(fd)
        assert target.startswith(("/dev/", "/proc/", "/sys/", "/mnt/", "socket:", "pipe:", "anon_inode:")) or \
            target.endswith("libchdb.so"), target
    for path in (tmp_path / "db").rglob("*"):
        assert path.lstat().st_uid == uid, path
    # the password is in no argument and no environment
    password = (tmp_path / "db/password").read_bytes().strip()
    for pid in (child, parent.pid):
        assert password not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        assert password not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()


def gone(pid):
    try:
        return status_of(pid)["State"][0] in "ZX"
    except FileNotFoundError:
        return True


def test_child_dies_with_its_parent(long_question, tmp_path):
    parent, child = long_question
    parent.kill()
    parent.wait()
    wait_for(lambda: gone(child))
    assert underspan("sql", f"--store={tmp_path}/db", "SELECT 1 AS a").stdout == "a\n1\n"


def test_killed_child_is_an_error(long_question, tmp_path):
    parent, child = long_question
    os.kill(child, signal.SIGKILL)
    assert parent.wait(20) == 1
    assert underspan("sql", f"--store={tmp_path}/db", "SELECT 1 AS a").stdout == "a\n1\n"


def test_directory_of_an_ordinary_user(tmp_path):
    """Root serves it as its owner, and a directory that others cannot reach works all the same."""
    owner = pwd.getpwnam("daemon")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "db").mkdir(mode=0o700)
    os.chown(closed / "db", owner.pw_uid, owner.pw_gid)
    done = underspan("sql", f"--store={closed}/db", "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
    assert done.returncode == 0, done.stderr
    assert {p.lstat().st_uid for p in (closed / "db").rglob("*")} == {owner.pw_uid}
    assert underspan("sql", f"--store={closed}/db", "EXISTS TABLE t").stdout.endswith("\n1\n")


def test_as_an_ordinary_user(tmp_path):
    if not all(p.stat().st_mode & 0o001 for p in pathlib.Path(UNDERSPAN).resolve().parents):
        pytest.skip("this checkout lies in a directory that is closed to others")
    tmp_path.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    daemon = pwd.getpwnam("daemon")
    os.chown(home, daemon.pw_uid, daemon.pw_gid)
    for p in tmp_path.parents:
        if p.stat().st_uid == os.getuid() and p.name.startswith("pytest"):
            p.chmod(0o755)

    def become():
        os.setgroups([])
        os.setgid(daemon.pw_gid)
        os.setuid(daemon.pw_uid)

    done = underspan("sql", f"--store={home}/db", "SELECT 1 AS a", preexec_fn=become)
    assert (done.returncode, done.stdout) == (0, "a\n1\n"), done.stderr
    assert (home / "db").stat().st_uid == daemon.pw_uid


def test_tls_is_verified(tmp_path):
    """A server with a certificate of its own making is refused, until its maker is named."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", tmp_path / "key.pem",
                    "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"7\n")

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask = ["sql", f"--clickhouse=https://127.0.0.1:{server.server_address[1]}", "SELECT 7"]
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": "s3cret"}
        done = underspan(*ask, env=env)
        assert done.returncode == 1 and "certificate" in done.stderr
        assert not seen, "the password went to a server that was not verified"
        done = underspan(*ask, f"--clickhouse_ca_file={tmp_path}/cert.pem", env=env)
        assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
        assert seen[0]["X-ClickHouse-Key"] == "s3cret"
        server.shutdown()
