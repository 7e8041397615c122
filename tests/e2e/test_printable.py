# SPDX-License-Identifier: Apache-2.0
"""Hostile names of programs, threads and files: no command prints terminal controls. Output has no control characters
except line ends, and is UTF-8. In JSON the names are unchanged after parsing."""
import concurrent.futures
import http.server
import json
import os
import pty
import shutil
import subprocess
import threading

import pytest

from agent import NO_ENGINE, ROOT, UNDERSPAN, plain_build
from conftest import PYTHONS
from store_fixture import Store

pytestmark = pytest.mark.light

TITLE = b"\x1b]0;owned\x07"
EVIL = TITLE + b"\x1b[2K\r  ok   all is well\x7f\xc2\x9b2J\xe2\x80\xae\xff"  # ESC, DEL, a C1 control, a turn of direction, no UTF-8
THREAD = "t\x1b[2J\x9b2J\u202ename"
PROGRAM = f"""
import sys, threading, time
def wait():
    while True: time.sleep(0.02)
def compute():
    while True: sum(range(10000))
wait.__code__ = wait.__code__.replace(co_name={THREAD!r}, co_filename={THREAD!r})
threading.Thread(target=wait, name={THREAD!r}, daemon=True).start()
for i in range(2): threading.Thread(target=compute, name={THREAD!r} + str(i), daemon=True).start()
open("/proc/self/comm", "wb").write(b"c\\x1b[2J\\xc2\\x9bm")
print("up", flush=True)
while True: time.sleep(0.05)
"""


def check_printable(output, what):
    """The output of a command, as bytes."""
    text = output.decode()  # is UTF-8
    for line in text.split("\n"):
        bad = [c for c in line if ord(c) < 0x20 and c != "\t" or 0x7f <= ord(c) < 0xa0 or 0x2028 <= ord(c) <= 0x202e
               or 0x2066 <= ord(c) <= 0x2069]
        assert not bad, (what, bad, line)
    return text


def run(*arguments, code=(0,), **kwargs):
    result = subprocess.run([UNDERSPAN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=90, **kwargs)
    assert result.returncode in code, result
    return check_printable(result.stdout, arguments), check_printable(result.stderr, arguments)


@pytest.fixture
def evil(tmp_path, cleanup):
    """A Python with hostile names: path, argv[0], comm, thread, functions and files."""
    directory = os.path.join(os.fsencode(tmp_path), EVIL)
    os.mkdir(directory)
    path = os.path.join(directory, b"python3\x1b[8m")
    shutil.copy(PYTHONS[0].path, path)
    process = subprocess.Popen([EVIL + b"arg0", b"-S", b"-c", PROGRAM.encode()], executable=path, stdout=subprocess.PIPE,
                               cwd=directory)
    cleanup.append(process)
    assert process.stdout.readline() == b"up\n"
    return process


def test_doctor(evil):
    out, _ = run("doctor", "-p", str(evil.pid), code=(0, 1))
    assert "?]0;owned?" in out and "\n  ok   Python" in out
    found = json.loads(run("doctor", "-p", str(evil.pid), "--json", code=(0, 1))[0])
    assert any("?]0;owned?" in check["detail"] for check in found["checks"])


def test_rows_and_the_log(evil):
    out, err = run("run", "--stdout", f"--pid={evil.pid}", "--duration=3", "--log_level=debug", "--off_cpu.min_duration_us=0",
                   "--gil_wait.min_duration_us=0", "--flush_interval=1")
    rows = [json.loads(line) for line in out.splitlines()]
    # equal to the thread's name, after parsing
    assert any(THREAD in (row.get("thread_name") or "") for row in rows), out[:2000]
    assert any(THREAD in frame for row in rows for frame in row.get("py_stack", [])), out[:2000]


@pytest.mark.parametrize("arguments", [["gil"], ["gil", "--json"], ["offcpu"], ["offcpu", "--folded"], ["offcpu", "--json"],
                                       ["offcpu", "-o", "-"], ["offcpu", "--wakers", "--folded"]], ids=" ".join)
def test_measuring(evil, arguments):
    out, _ = run(*arguments, "-p", str(evil.pid), "-d", "1")
    if "--json" in arguments:
        out = json.dumps(json.loads(out), ensure_ascii=False)
    assert "t?[2J" in out, out


def test_a_terminal_that_obeys_nothing(evil):
    """No overwritten progress, no cleared screen."""
    plain, dumb = {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        said = [pool.submit(on_terminal, *command, "-p", str(evil.pid), "-d", "2", env=env) for command, env in (
            (["gil"], dumb), (["offcpu"], {"TERM": ""}), (["offcpu", "--top"], dumb), (["offcpu", "--top"], plain), (["requests"], plain))]
    assert all(one.result() for one in said) and "stop with Ctrl-C" in said[2].result()


@pytest.mark.parametrize("arguments", [
    [EVIL], [b"help", EVIL], [b"run", b"--" + EVIL], [b"run", b"-" + EVIL], [b"run", b"--stdout", EVIL], [b"sql", b"-c", b"/" + EVIL],
    [b"run", b"--stdout", b"--trackers=" + EVIL], [b"run", b"--stdout", b"--host=x", b"--batch_rows=" + EVIL],
    [b"sql", b"--clickhouse=http://" + EVIL, b"SELECT 1"], [b"sql", b"--store=/nowhere/" + EVIL, b"SELECT 1"],
    [b"explain", b"--clickhouse=http://127.0.0.1:1", EVIL], [b"offcpu", b"-p", b"1", b"-o", b"/nowhere/" + EVIL + b".svg"],
    [b"offcpu", b"-p", b"1", b"--diff=/nowhere/" + EVIL], [b"store", b"--path=/dev/null/" + EVIL]],
    ids=lambda a: " ".join(repr(word)[2:12] for word in a))
def test_sentences(arguments):
    _, err = run(*arguments, code=(1, 2))
    assert err.startswith("underspan: ") and len(err.splitlines()) == 1


def test_a_configuration_file(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"x" + EVIL.decode(errors="replace"): 1}))
    run("run", "-c", str(path), "--stdout", code=(2,))
    path.write_bytes(b'{"' + EVIL)
    run("run", "-c", str(path), "--stdout", code=(2,))
    run("sql", "--clickhouse=http://127.0.0.1:1", "SELECT 1", code=(1,),
        env={**os.environb, b"UNDERSPAN_" + EVIL: b"x"})


# ---- from a database, on a terminal ----

NAME = EVIL.decode(errors="replace")
ROW_NAME = "\t\\" + NAME + "\nand\v2\u2066"  # also characters that would end a value in a request
TRACE = f"{7:032x}"


def quoted(text, quote="'"):
    return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def on_terminal(*arguments, code=(0,), env=None):
    """The output on a terminal without capabilities, stderr included."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([UNDERSPAN, *arguments], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
                               env={**os.environ, "TERM": "dumb", **(env or {})})
    os.close(follower)
    output = b""
    while True:
        try:
            output += os.read(leader, 1 << 16)
        except OSError:  # the writer has closed
            break
    os.close(leader)
    assert process.wait(60) in code, (arguments, output)
    return check_printable(output.replace(b"\r\n", b"\n"), arguments)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """With a trace and a request in which every name is hostile."""
    with Store(tmp_path_factory.mktemp("printable") / "db") as store:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}
        store.env, store.url = env, f"--clickhouse={store.url}"
        with open(f"{ROOT}/sql/otel/otel_traces.sql") as f:
            store.ask(f.read())
        run("schema", store.url, "--apply", env=env)
        span = (f"(now64(9) - 2, '{TRACE}', '{{}}', '{{}}', {quoted(NAME)}, 'Server', {quoted(NAME)}, "
                "map('process.pid', '11', 'thread.id', '11', 'host.name', 'h'), map('host.name', 'h'), 1000000000)")
        store.ask("INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, SpanAttributes, "
                  f"ResourceAttributes, Duration) VALUES {span.format('a' * 16, '')}, {span.format('b' * 16, 'a' * 16)}")
        common = "host, pid, tid, host_pid, host_tid, comm, thread_name, start_time, end_time, duration_ns, py_stack"
        values = (f"'h', 11, 11, 11, 11, {quoted(NAME)}, {quoted(NAME)}, now64(6) - 1.9, now64(6) - 1.5, 400000000, "
                  f"[{quoted(NAME + ' (' + NAME + ':3)')}, {quoted(NAME)}]")
        for table in "ebpf_gc_pause", "ebpf_off_cpu", "ebpf_gil_wait", "ebpf_handoff":
            store.ask(f"INSERT INTO {table} ({common}) VALUES ({values})")
        texts = "host container_id pod_uid comm thread_name family method path model link end_by outcome".split()
        store.ask(f"INSERT INTO ebpf_request (trace_id, pid, tid, host_pid, host_tid, status, duration_ns, cpu_ns, lock_ns, start_time, "
                  f"end_time, not_measured, {', '.join(texts)}) VALUES ('{8:032x}', 11, 11, 11, 11, 200, 500000000, 100000000, 400000000, "
                  f"now64(6) - 1.5, now64(6) - 1, [{quoted(ROW_NAME)}], {', '.join(quoted(ROW_NAME) for _ in texts)})")
        for host in quoted(ROW_NAME), quoted(os.uname().nodename):
            store.ask(f"INSERT INTO ebpf_agent (host, start_time, end_time, tracker) VALUES ({host}, now64() - 5, now64() - 1, {quoted(NAME)})")
        yield store


@plain_build(NO_ENGINE)
def test_spans_and_rows_of_a_trace(store):
    """The input of `explain` comes from any writer of the database."""
    for output in run("explain", store.url, TRACE, env=store.env, code=(0, 1))[0], on_terminal("explain", store.url, TRACE, env=store.env):
        assert "?]0;owned?" in output


@plain_build(NO_ENGINE)
@pytest.mark.parametrize("arguments, code", [
    (["requests"], 0), (["requests", "--by=endpoint"], 0), (["requests", "--json"], 0), (["requests", "--service=" + ROW_NAME], 1),
    (["explain", f"{8:032x}"], 0), (["explain", "--json", f"{8:032x}"], 0), (["doctor"], 0), (["doctor", "--spans"], 0),
    (["sql", "SELECT * FROM ebpf_request"], 0), (["sql", "--format=TSVRaw", "SELECT * FROM ebpf_request"], 0),
    (["sql", f"SELECT throwIf(1, {quoted(NAME)})"], 1), (["schema", "--check", "--traces=" + NAME], 1)], ids=lambda a: str(a)[:30])
def test_rows_on_a_terminal(arguments, code, store):
    text = on_terminal(*arguments, store.url, code=(code,), env=store.env)
    if "--json" in arguments:
        found = json.loads(text)
        assert found["slowest" if arguments[0] == "requests" else "requests"][0]["path"] == ROW_NAME


@plain_build(NO_ENGINE)
def test_a_value_arrives_as_it_is(store):
    """Values of a question are fields that a tab, a line's end or a backslash would end or change."""
    found = json.loads(run("requests", store.url, "--json", "--host=" + ROW_NAME, "--path=" + ROW_NAME[:-3], env=store.env)[0])
    assert [r["path"] for r in found["slowest"]] == [ROW_NAME]
    assert run("requests", store.url, "--path=" + ROW_NAME.replace("\\", "\\\\"), env=store.env, code=(1,))


@plain_build(NO_ENGINE)
def test_what_differs_in_a_database(store):
    """The text of --check is given to clickhouse-client: a name does not end the comment, either."""
    store.ask("CREATE DATABASE other")
    where = store.url, "--clickhouse_database=other"
    run("schema", *where, "--apply", env=store.env)
    store.ask(f"ALTER TABLE other.ebpf_gc_pause MODIFY COLUMN comm Enum({quoted(ROW_NAME)} = 1)")
    assert "comm is Enum8('" in on_terminal("schema", *where, "--check", env=store.env, code=(1,))
    lines = run("schema", *where, "--check", env=store.env, code=(1,))[0].splitlines()
    assert all(line.startswith("-- ") for line in lines), lines
    run("schema", *where, "--apply", env=store.env)


@pytest.mark.parametrize("arguments", [[], ["--clickhouse=http://127.0.0.1:1", "--clickhouse_database=x", "--apply"],
                                       ["--clickhouse_database=x"]], ids=" ".join)
def test_a_cluster_of_no_name(arguments):
    """The name is part of statements: none is printed or sent."""
    out, err = run("schema", "--cluster=" + NAME + "'", *arguments, code=(2,))
    assert out == "" and "no cluster's name" in err


# ---- answers of a server ----

ANSWERS = {"exception": (404, [("X-ClickHouse-Exception-Code", "60")], b"Code: 60. DB::Exception: " + EVIL),
           "answer": (200, [("X-ClickHouse-Query-Id", "q")], EVIL + b"\n"), "error": (500, [], EVIL), "redirect": (301, [("Location", "http://\x1b[2K/")], EVIL),
           "counts": (200, [], b'underspan_seen_total{tracker="' + EVIL + b'"} 3\n')}


@pytest.fixture(scope="module")
def hostile_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            status, headers, body = self.server.answer
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response_only(status, "\x1b[2K\x9b2J")
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_of_a_server(kind, hostile_server):
    hostile_server.answer = ANSWERS[kind]
    address = "127.0.0.1:%d" % hostile_server.server_port
    for command in ["sql", "SELECT 1"], ["requests"], ["explain", TRACE], ["schema", "--check"], ["schema", "--apply"], ["doctor", "--spans"]:
        on_terminal(*command, f"--clickhouse=http://{address}", code=(0,) if command[0] == "sql" and kind == "answer" else (1,))


def test_what_answers_is_no_agent(hostile_server):
    """Doctor tells when the answer does not come from an agent."""
    hostile_server.answer = ANSWERS["counts"]
    address = "127.0.0.1:%d" % hostile_server.server_port
    assert f"NO   counts         what answers at {address} is no agent" in on_terminal("doctor", f"--agent={address}", code=(1,))
