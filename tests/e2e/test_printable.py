# SPDX-License-Identifier: Apache-2.0
"""Whatever strangers call their programs, threads and files, no command lets it steer a terminal: what is printed has no
control but the ends of its lines, and is UTF-8. In JSON the names are the same after parsing."""
import json
import os
import shutil
import subprocess

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
    """What came out of a command, as bytes."""
    text = output.decode()  # is UTF-8
    for line in text.split("\n"):
        bad = [c for c in line if ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0 or 0x2028 <= ord(c) <= 0x202e]
        assert not bad, (what, bad, line)
    return text


def run(*arguments, code=(0,), **kwargs):
    result = subprocess.run([UNDERSPAN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=90, **kwargs)
    assert result.returncode in code, result
    return check_printable(result.stdout, arguments), check_printable(result.stderr, arguments)


@pytest.fixture
def evil(tmp_path, cleanup):
    """A Python whose path, argv[0], comm, thread, functions and files are called like that."""
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
    # the same as the thread is called, once it is parsed
    assert any(THREAD in (row.get("thread_name") or "") for row in rows), out[:2000]
    assert any(THREAD in frame for row in rows for frame in row.get("py_stack", [])), out[:2000]


@pytest.mark.parametrize("arguments", [["gil"], ["gil", "--json"], ["offcpu"], ["offcpu", "--folded"], ["offcpu", "--json"],
                                       ["offcpu", "-o", "-"], ["offcpu", "--wakers", "--folded"]], ids=" ".join)
def test_measuring(evil, arguments):
    out, _ = run(*arguments, "-p", str(evil.pid), "-d", "1")
    if "--json" in arguments:
        out = json.dumps(json.loads(out), ensure_ascii=False)
    assert "t?[2J" in out, out


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


@plain_build(NO_ENGINE)
def test_spans_and_rows_of_a_trace(tmp_path):
    """What `explain` reads was written by whoever may write to the database."""
    name = EVIL.decode(errors="replace").replace("\\", "\\\\").replace("'", "\\'")
    trace = f"{7:032x}"
    with Store(tmp_path / "db") as store:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}
        url = f"--clickhouse={store.url}"
        with open(f"{ROOT}/sql/otel/otel_traces.sql") as f:
            store.ask(f.read())
        run("schema", url, "--apply", env=env)
        span = (f"(now64(9) - 2, '{trace}', '{{}}', '{{}}', '{name}', 'Server', '{name}', "
                "map('process.pid', '11', 'thread.id', '11', 'host.name', 'h'), map('host.name', 'h'), 1000000000)")
        store.ask("INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, SpanAttributes, "
                  f"ResourceAttributes, Duration) VALUES {span.format('a' * 16, '')}, {span.format('b' * 16, 'a' * 16)}")
        common = ("host, pid, tid, host_pid, host_tid, comm, thread_name, start_time, end_time, duration_ns, py_stack")
        values = (f"'h', 11, 11, 11, 11, '{name}', '{name}', now64(6) - 1.9, now64(6) - 1.5, 400000000, "
                  f"['{name} ({name}:3)', '{name}']")
        for table in "ebpf_gc_pause", "ebpf_off_cpu", "ebpf_gil_wait", "ebpf_handoff":
            store.ask(f"INSERT INTO {table} ({common}) VALUES ({values})")
        out, _ = run("explain", url, trace, env=env, code=(0, 1))
        assert "?]0;owned?" in out
