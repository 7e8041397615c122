# SPDX-License-Identifier: Apache-2.0
"""`underspan sql` and the store as a child: ownership, rights, end."""
import http.server
import os
import pathlib
import pty
import pwd
import re
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse

import pytest

import fault_proxy as fault
from agent import NO_ENGINE, plain_build
from store_fixture import UNDERSPAN, Store, made, tree, underspan

pytestmark = [plain_build(NO_ENGINE), pytest.mark.light]


def test_a_store_for_one_question(tmp_path):
    db = made(tmp_path / "db")
    done = underspan("sql", f"--store={db}", "SELECT 1 AS a, 'x' AS b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\tb\n1\tx\n", "")
    assert underspan("sql", f"--store={db}", "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a"
                     ).returncode == 0
    assert underspan("sql", f"--store={db}", "INSERT INTO t VALUES (1), (2)").returncode == 0
    done = underspan("sql", f"--store={db}", "--format=JSONEachRow", "-", input="SELECT sum(a) AS s FROM t")
    assert (done.returncode, done.stdout) == (0, '{"s":3}\n')
    # a file of questions that begins with a comment
    done = underspan("sql", f"--store={db}", "-- how many?\nSELECT count() AS n FROM t")
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\n2\n", "")
    # no residue
    assert not (db / "endpoint").exists()
    pid = int((db / "lock").read_text())
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_errors(tmp_path):
    made(tmp_path / "db")
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
    (["--store=/tmp/x", "--clickhouse=http://127.0.0.1:1", "SELECT 1"], "exclude each other"),
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
        # a directory with a running store is joined, not served twice
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
    """`underspan sql` amid a question without end; yields the command and the store's pid."""
    db = made(tmp_path / "db")
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
    # from the parent the child has stdio and the engine; of the store's directory, the lock and the descriptors
    # opened before root was dropped; the rest belongs to the engine, visible at /mnt, because pytest's directories
    # are closed to foreign users
    db = str(tmp_path / "db")
    for fd in pathlib.Path(f"/proc/{child}/fd").iterdir():
        target = os.readlink(fd)
        assert target.startswith(("/dev/", "/proc/", "/sys/", "/mnt/", "socket:", "pipe:", "anon_inode:")) or \
            target.endswith("libchdb.so") or target in (db, db + "/lock", db + "/engine"), target
    # the engine's user cannot change files read by root
    for path in [tmp_path / "db", *(tmp_path / "db").rglob("*")]:
        inside = path.is_relative_to(tmp_path / "db/engine")
        assert path.lstat().st_uid == (uid if inside else os.getuid()), path
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

    done = underspan("schema", "--apply", f"--store={home}/db", preexec_fn=become)
    assert done.returncode == 0, done.stderr
    done = underspan("sql", f"--store={home}/db", "SELECT 1 AS a", preexec_fn=become)
    assert (done.returncode, done.stdout) == (0, "a\n1\n"), done.stderr
    assert {p.lstat().st_uid for p in [home / "db", *(home / "db").rglob("*")]} == {daemon.pw_uid}
    # owned by the user: root neither takes the directory over nor trusts the contents
    before = tree(home)
    for command in (["sql", "SELECT 1"], ["run", "--duration=1"]):
        done = underspan(command[0], f"--store={home}/db", *command[1:])
        assert done.returncode == 2 and "belongs to another user" in done.stderr
    assert tree(home) == before


def test_tls_is_verified(tmp_path):
    """A self-signed server certificate is refused, until the authority is given."""
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
            self.send_header("X-ClickHouse-Query-Id", "q")
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


# ---- long questions, and terminals ----

def test_a_question_may_be_silent_for_longer_than_any_limit_of_the_agent(tmp_path):
    """45 s without a byte, over TCP: the agent gives up after 30 s, a question only with a time limit."""
    with Store(tmp_path / "db") as s:
        ask = ["sql", f"--clickhouse={s.url}", f"--clickhouse_password_file={tmp_path}/db/password"]
        silent = "SELECT sum(sleepEachRow(1)) AS s FROM numbers({}) SETTINGS max_block_size = 1"
        done = underspan(*ask, silent.format(45))
        assert (done.returncode, done.stdout) == (0, "s\n0\n"), done.stderr
        start = time.monotonic()
        done = underspan(*ask, "--clickhouse_stall_timeout=1", silent.format(20))
        assert done.returncode == 1 and time.monotonic() - start < 12
        # given up is not left running
        wait_for(lambda: s.ask("SELECT count() FROM system.processes") == "1\n", 3)


def test_a_proxy_that_removes_headers(tmp_path):
    """The answer is ClickHouse's all the same; a question asks whether it is, only where the header is missing."""
    asked, kept = [], ()

    def pass_on(proxy, request):
        asked.append(request.read())
        status, headers, body = proxy.ask_store(request)
        fault.reply(request, status, [(k, v) for k, v in headers if not k.lower().startswith("x-clickhouse-") or k in kept], body)
        return False

    with Store(tmp_path / "db") as s:
        proxy = fault.FaultProxy(s.address, lambda request: pass_on)
        ask = ["sql", f"--clickhouse={proxy.url}", f"--clickhouse_password_file={tmp_path}/db/password"]
        for question, answer in ("SELECT 7 AS n", "n\n7\n"), ("SELECT 7 AS n FORMAT Null", ""), ("SELECT number AS n FROM numbers(3)", "n\n0\n1\n2\n"):
            asked.clear()
            done = underspan(*ask, question)
            assert (done.returncode, done.stdout, done.stderr, len(asked)) == (0, answer, "", 2), done
        kept = ("X-ClickHouse-Query-Id",)
        asked.clear()
        assert underspan(*ask, "SELECT 7 AS n").stdout == "n\n7\n" and len(asked) == 1
        proxy.close()


def test_killed_asker_of_its_own_store(long_question):
    parent, child = long_question
    parent.kill()
    parent.wait()
    wait_for(lambda: gone(child), 2.5)


def test_a_user_who_may_change_no_settings(tmp_path):
    """A server's profile with readonly=1 refuses every setting with code 164: the question is repeated without
    settings."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sql = self.rfile.read(int(self.headers["Content-Length"])).decode()
            params = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            asked.append((sql, params))
            refused = "readonly" in params or "cancel_http_readonly_queries_on_client_close" in params
            body = b"Code: 164. DB::Exception: Cannot modify 'readonly' setting in readonly mode. (READONLY)" if refused else b"7\n"
            if sql == "SELECT 'slow'" and not refused:
                ended.wait(20)
            self.send_response(500 if refused else 200)
            self.send_header(*(("X-ClickHouse-Exception-Code", "164") if refused else ("X-ClickHouse-Query-Id", "q")))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *_):
            pass

    ended = threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"--clickhouse=http://127.0.0.1:{server.server_address[1]}"
        assert underspan("sql", where, "SELECT 7").stdout == "7\n"
        assert [p.get("cancel_http_readonly_queries_on_client_close") for _, p in asked] == ["1", None]
        assert len({p["query_id"] for _, p in asked}) == 1
        # writing statements are sent unchanged
        asked.clear()
        underspan("sql", where, "INSERT INTO t VALUES (1)")
        assert len(asked) == 1 and "readonly" not in asked[0][1]
        # after a time-out: killed by id, as this server does not see closed connections
        asked.clear()
        p = subprocess.Popen([UNDERSPAN, "sql", where, "SELECT 'slow'"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(lambda: len(asked) == 2)
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == -signal.SIGINT
        p.communicate()
        [(sql, params)] = asked[2:]
        assert sql.startswith("KILL QUERY WHERE ") and params["param_id"] == asked[0][1]["query_id"]
        ended.set()
        server.shutdown()


def on_terminal(arguments, term="xterm", interrupt_after=None, stdout=True):
    """The output of a command to a terminal as stdout and stderr, or stderr only."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen([UNDERSPAN, *arguments], stdin=subprocess.DEVNULL, stdout=theirs if stdout else subprocess.DEVNULL,
                         stderr=theirs, env={**os.environ, "TERM": term})
    os.close(theirs)
    if interrupt_after:
        threading.Timer(interrupt_after, p.send_signal, [signal.SIGINT]).start()
    got = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        got += chunk
    os.close(ours)
    p.wait(20)
    return got


NASTY = ["\x1b]0;title\x07", "\x1b[2J\x1b[31mred", "\x9b2J", "a\rb", "\x08\x08", "\u202egnp.exe", "\u2066x", "\x7f", "\u2028", "\x90q"]


def test_rows_do_not_steer_a_terminal(tmp_path):
    with Store(tmp_path / "db") as s:
        s.ask("CREATE TABLE n (i UInt8, s String) ENGINE = MergeTree ORDER BY i")
        for i, text in enumerate([*NASTY, "\u00e9\u6f22\U0001f600 fine"]):
            s.ask(f"INSERT INTO n SELECT {i}, unhex('{text.encode().hex()}')")
        s.ask("INSERT INTO n SELECT 99, unhex('ff1b5b324a') || repeat('\u6f22', 200000)")
        ask = ["sql", f"--store={tmp_path}/db"]
        for form in ("PrettyCompact", "TSVRaw", "RawBLOB", "Vertical", "JSONEachRow", "Native"):
            sql = "SELECT s FROM n ORDER BY i" if form != "RawBLOB" else "SELECT s FROM n WHERE i IN (1, 99) ORDER BY i"
            got = on_terminal([*ask, f"--format={form}", sql], term="dumb").replace(b"\r\n", b"\n")
            for bad in (b"\x1b", b"\x07", b"\r", b"\x08", b"\x7f", b"\x9b2J", b"\xc2\x9b", b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xe2\x81\xa6", b"\0"):
                assert bad not in got, (form, bad)
            # a character split between two pieces of the answer stays whole
            assert form in ("Native", "PrettyCompact") or got.decode().count("\u6f22") >= 200000, form
        assert "\u00e9\u6f22\U0001f600 fine" in on_terminal([*ask, "SELECT s FROM n WHERE i = 10"], term="dumb").decode()
        # a pipe gets the bytes
        done = subprocess.run([UNDERSPAN, *ask, "--format=RawBLOB", "SELECT s FROM n WHERE i = 1"], capture_output=True)
        assert done.stdout == NASTY[1].encode()


def test_progress_on_a_terminal(tmp_path):
    with Store(tmp_path / "db") as s:
        ask = ["sql", f"--store={s.path}", "SELECT count() FROM system.numbers"]
        got = on_terminal(ask, interrupt_after=3.5).decode()
        seen = re.findall(r"\r\x1b\[K(\d+) s, ([\d.]+) million rows read, ([\d.]+ \w+); stop with Ctrl-C", got)
        assert len(seen) >= 2 and float(seen[-1][1]) > float(seen[0][1]) > 0, got
        # the progress line is erased
        assert got.endswith("\r\x1b[K")
        # no progress on a dumb terminal, or without a terminal
        assert b"\x1b" not in on_terminal(ask, term="dumb", interrupt_after=2.5)
        p = subprocess.run(["timeout", "-s", "INT", "2.5", UNDERSPAN, *ask], capture_output=True, env={**os.environ, "TERM": "xterm"})
        assert (p.stdout, p.stderr) == (b"", b"")
