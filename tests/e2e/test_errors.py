# SPDX-License-Identifier: Apache-2.0
"""A failure is one clear sentence that names the object, with the right exit code; success is 0."""
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

import pytest

import host
from agent import Agent, NO_ENGINE, READY_SECONDS, STOP_SECONDS, UNDERSPAN, plain_build, run_underspan
from store_fixture import Store

pytestmark = pytest.mark.light

FAILED, USAGE = 1, 2


def check_sentence(result, code, *words):
    """One or two lines on stderr with the words, nothing on stdout."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert 1 <= len(lines) <= 2, result.stderr
    for word in words:
        assert re.search(word, result.stderr, re.I), f"no {word!r} in: {result.stderr}"


def with_config(tmp_path, text):
    path = tmp_path / "underspan.json"
    path.write_text(text)
    return run_underspan("run", "--stdout", "-c", str(path))


@pytest.mark.parametrize("arguments, words", [
    (["--no-such-option"], ["no-such-option"]),
    (["--trackers=gc_pause,no_such_tracker"], ["no_such_tracker", "gc_pause"]),
    (["--duration=never"], ["duration", "never"]),
    (["--pid=abc"], ["pid", "abc"]),
    (["--handoff.no_such_key=1"], ["handoff.no_such_key"]),
    (["--request.ports=80,0"], ["request.ports", "'0'", "65535"]),
    (["--request.ports=80,65536"], ["'65536'"]),
    (["--request.ports=http"], ["'http'"]),
    ([f"--request.ports={','.join(map(str, range(1, 258)))}"], ["257", "256"]),
    (["stray"], ["stray"]),
    (["-c", "/no/such/file.json"], ["/no/such/file.json", "no such file"]),
])
def test_bad_usage(arguments, words):
    check_sentence(run_underspan("run", "--stdout", *arguments), USAGE, *words)


@pytest.mark.parametrize("text, words", [
    ('{"no_such_key": 1}', ["no_such_key"]),
    ('{"handoff": {"no_such_key": 1}}', ["handoff.no_such_key"]),
    ('{"duration": "soon"}', ["duration", "soon"]),
    ('{"trackers": ["no_such_tracker"]}', ["no_such_tracker"]),
    ('{"trackers": ', ["underspan.json:1:"]),
    ('[]', ["underspan.json"]),
])
def test_bad_configuration(text, words, tmp_path):
    check_sentence(with_config(tmp_path, text), USAGE, *words)


def test_an_array_where_a_text_is_expected(tmp_path):
    path = tmp_path / "underspan.json"
    path.write_text('{"clickhouse": ["http://a:8123", "http://b:8123"]}')
    check_sentence(run_underspan("run", "-c", str(path)), USAGE, "clickhouse: .*array: write several as one text, with commas")


def test_a_spool_that_cannot_be_made(tmp_path):
    """Also by --check, which makes nothing."""
    (tmp_path / "file").write_text("")
    at = ["run", "--clickhouse=http://127.0.0.1:9", "--trackers=gc_pause"]
    for place in tmp_path / "file", tmp_path / "file" / "spool":
        checked = run_underspan(*at, "--check", f"--spool.directory={place}")
        assert checked.returncode == USAGE and f"{place}" in checked.stderr and "name a directory" in checked.stderr, checked
        check = run_underspan(*at, "--duration=1", f"--spool.directory={place}", timeout=30)
        assert check.returncode == FAILED and f"{place}" in check.stderr and "name a directory" in check.stderr, check
    assert run_underspan(*at, "--check", f"--spool.directory={tmp_path / 'new' / 'spool'}").returncode == 0
    assert not (tmp_path / "new").exists()


def test_an_address_of_ipv6_without_brackets():
    check_sentence(run_underspan("requests", "--clickhouse=http://::1:8123"), USAGE, r"brackets, http://\[::1\]:8123")


@plain_build(NO_ENGINE)
def test_a_wrong_database_password_and_path(tmp_path):
    with Store(tmp_path / "db") as store:
        def ask(url=store.url, *more, password=store.password):
            return run_underspan("requests", f"--clickhouse={url}", *more, prefix=("env", f"UNDERSPAN_CLICKHOUSE_PASSWORD={password}"))
        check_sentence(ask(store.url, "--clickhouse_database=nosuch"), FAILED, "nosuch does not exist.*: see clickhouse_database")
        check_sentence(ask(password="wrong"), FAILED, "Authentication failed.*: see clickhouse_user, clickhouse_password_file")
        check_sentence(ask(store.url + "/otel"), FAILED, "404.*a database goes into clickhouse_database")
        assert run_underspan("schema", "--apply", f"--store={store.path}").returncode == 0
        check_sentence(ask(store.url, "--path=/orders"), FAILED, "nothing was measured.*see `underspan doctor` on the host")


def test_places_that_contradict_are_named_with_their_source():
    for prefix, options, said in (["UNDERSPAN_STORE=/x", "UNDERSPAN_STDOUT=1"], [], r"store \(environment\), stdout \(environment\): give only one"), \
                                 (["UNDERSPAN_STORE=/x"], ["--stdout", "--clickhouse=http://h"], r"rows: clickhouse \(flag\), stdout \(flag\): give"):
        check_sentence(run_underspan("run", *options, prefix=["env", *prefix]), USAGE, "several places for the rows", said)
    result = run_underspan("sql", "SELECT 1", prefix=["env", "UNDERSPAN_STORE=/x", "UNDERSPAN_CLICKHOUSE=http://h"])
    check_sentence(result, USAGE, r"clickhouse \(environment\) and store \(environment\) exclude each other")


def test_unknown_command():
    check_sentence(run_underspan("no-such-command"), USAGE, "no-such-command")


def test_pid_that_does_not_exist_is_no_reason_to_stay_silent():
    process = subprocess.Popen(["true"])
    process.wait()
    check_sentence(run_underspan("run", "--stdout", f"--pid={process.pid}", "--trackers=gc_pause", "--duration=1"), FAILED, str(process.pid))


@pytest.mark.parametrize("dropped, named", [("cap_bpf,cap_perfmon,cap_sys_admin", "CAP_BPF"),
                                            ("cap_perfmon,cap_sys_admin", "CAP_PERFMON")])
def test_missing_capability_is_named(dropped, named):
    result = run_underspan("run", "--stdout", "--duration=1",
                           prefix=["capsh", f"--drop={dropped}", "--", "-c", 'exec "$@"', "sh"])
    check_sentence(result, FAILED, named)


def test_a_limit_on_open_files_is_named(start_agent):
    said = r"the limit of open files is 100, too few for all trackers: raise it to 1024 \(`ulimit -n`, LimitNOFILE"
    doctor = run_underspan("doctor", prefix=["prlimit", "--nofile=100:100"])
    assert doctor.returncode == FAILED and re.search(rf"NO +open files +{said}", doctor.stdout), doctor
    assert re.search(said, run_underspan("run", "--stdout", "-d1", prefix=["prlimit", "--nofile=100:100"]).stderr)
    # a low soft limit is raised
    agent = start_agent(prefix=["prlimit", "--nofile=64:4096"])
    assert "open files" not in agent.stderr
    agent.stop()


@plain_build(NO_ENGINE)
def test_a_limit_on_the_stack_is_named(tmp_path):
    """A low soft limit is raised, for the engine's threads, too; a hard one has no room for the engine, and only for that."""
    place = f"--store={tmp_path}/db"
    said = r"the limit of the stack is 64 KiB, too little for the store's engine: raise it to 8192 \(`ulimit -s`, LimitSTACK"
    for command in ["run", place, "--duration=1"], ["store", f"--path={tmp_path}/db"]:
        check_sentence(run_underspan(*command, prefix=["prlimit", "--stack=65536:65536"], timeout=60), FAILED, said)
    assert run_underspan("run", "--stdout", "--trackers=gc_pause", "--duration=1", prefix=["prlimit", "--stack=65536:65536"], timeout=60).returncode == 0
    started = run_underspan("run", place, "--trackers=gc_pause", "--duration=1", prefix=["prlimit", "--stack=65536:"], timeout=60)
    assert started.returncode == 0 and "stack" not in started.stderr, started
    asked = run_underspan("sql", place, "SELECT count() > 0 AS n FROM ebpf_agent", prefix=["prlimit", "--stack=65536:"], timeout=60)
    assert asked.stdout == "n\n1\n", asked


def test_a_hidden_process_is_not_called_missing():
    """As hidepid hides a process from a user: its directory in /proc is empty, and signals know it."""
    with subprocess.Popen(["sleep", "60"]) as process:
        hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none /proc/{process.pid} && exec "$@"', "sh"]
        try:
            for command in ["gil", "-p"], ["offcpu", "-p"], ["doctor", "-p"], ["run", "--stdout", "--duration=1", "--pid"]:
                result = run_underspan(*command, str(process.pid), prefix=hidden, timeout=60)
                check_sentence(result, FAILED, rf"process {process.pid} is there, but /proc does not show it to this user \(hidepid\): run as root")
        finally:
            process.kill()


def test_no_proc_is_told_before_pids_are_looked_for():
    doctor = run_underspan("doctor", "-p", "1", prefix=["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"])
    assert doctor.returncode == FAILED and "NO   kernel         /proc belongs to a different PID namespace" in doctor.stdout, doctor


def test_kernel_without_btf():
    result = run_underspan("run", "--stdout", "--duration=1", prefix=[
        "unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /sys/kernel/btf && exec "$@"', "sh"])
    check_sentence(result, FAILED, "BTF", "/sys/kernel/btf/vmlinux|CONFIG_DEBUG_INFO_BTF")


def test_clickhouse_that_cannot_be_reached():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused, and the port stays reserved
        port = s.getsockname()[1]
        result = run_underspan("run", f"--clickhouse=http://127.0.0.1:{port}", "--trackers=gc_pause", "--duration=1", timeout=20)
    check_undelivered(result, f"http://127.0.0.1:{port}")


def check_undelivered(result, *words):
    """A warning with the words as soon as known, and the fate of the rows at the end."""
    assert result.returncode == FAILED and result.stdout == ""
    lines = result.stderr.splitlines()  # messages of several programs of this host
    warning = next((line for line in lines if "will try again" in line), result.stderr)
    last = [line for line in lines if "error:" in line][-1]
    for word in (*words, "will try again"):
        assert word in warning, warning
    assert re.search(r"error: \d+ rows? could not be delivered", last) and words[0] in last, last


@plain_build(NO_ENGINE)
def test_store_port_in_use(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        address = "127.0.0.1:%d" % s.getsockname()[1]
        result = run_underspan("store", f"--path={tmp_path}/store", f"--listen={address}", timeout=30)
    check_sentence(result, FAILED, address, "in use")


@plain_build(NO_ENGINE)
def test_store_on_a_full_disk(tmp_path):
    """A file system of 64 KiB holds no database."""
    result = run_underspan("run", f"--store={tmp_path}/disk/store", "--trackers=gc_pause", "--duration=1", timeout=30, prefix=[
        "unshare", "--mount", "sh", "-c",
        'mkdir -p "$0" && mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"', f"{tmp_path}/disk"])
    check_undelivered(result, "not enough space")


def test_store_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    result = run_underspan("run", f"--store={tmp_path}/file/store", "--trackers=gc_pause", "--duration=1", timeout=30)
    check_sentence(result, FAILED, f"{tmp_path}/file")


def test_duration_ends_by_itself(start_agent):
    agent = start_agent("--duration=1", trackers=["gc_pause"])
    ready = time.monotonic()
    assert agent.wait_end(1 + STOP_SECONDS + 1) == 0
    assert 0.8 < time.monotonic() - ready < 1 + STOP_SECONDS


@pytest.mark.promise
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_time(number, start_agent):
    agent = start_agent()
    begin = time.monotonic()
    agent.process.send_signal(number)
    assert agent.wait_end(STOP_SECONDS + 1) == 0
    assert time.monotonic() - begin < STOP_SECONDS


@pytest.mark.promise
def test_signal_during_the_start(cleanup):
    """At any moment of the start, SIGTERM leads to exit code 0 within the promised time."""
    for pause in 0.01, 0.05, 0.1, 0.2, 0.4:
        agent = Agent()
        cleanup.append(agent)
        time.sleep(pause)
        agent.process.send_signal(signal.SIGTERM)
        code = agent.wait_end(STOP_SECONDS)
        # before the handlers are installed, and before any output, the signal ends the process
        assert code == 0 or (code == -signal.SIGTERM and agent.stderr == ""), (pause, code, agent.stderr)


def test_reader_of_stdout_that_goes_away(start_workload, debian_python):
    """`underspan run --stdout | head -1`: an end, not a crash, not an endless loop."""
    workload = start_workload(debian_python, "gc_truth.py", 1, 1, 1)
    process = subprocess.Popen([UNDERSPAN, "run", "--stdout", "--trackers=gc_pause", "--duration=20"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        begin = time.monotonic()
        stderr = process.communicate(timeout=10)[1]
        assert time.monotonic() - begin < 3 and process.returncode == FAILED, stderr
        assert "cannot write to stdout: Broken pipe" in stderr and len(stderr.splitlines()) < 12, stderr
        workload.kill()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stderr", ["read", "not read either"])
def test_reader_of_stdout_that_stops_reading(stderr, start_workload, debian_python):
    """`underspan run --stdout | less`: the end is in time, the loss is reported, written lines are whole. With
    `2>&1 | less`, only the exit code can report."""
    workload = start_workload(debian_python, "gc_truth.py", 1, 997, 1)
    workload.hello = workload.read()
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 16384)
    together = stderr != "read"
    process = subprocess.Popen([UNDERSPAN, "run", "--stdout", "--trackers=gc_pause", "--gc_pause.min_duration_us=0",
                                "--governor.cpu_percent=0", f"--pid={workload.pid}"], stdin=subprocess.DEVNULL,
                               stdout=write, stderr=write if together else subprocess.PIPE, text=True)
    try:
        # full: a write of even one byte would block
        host.wait_until(lambda: not select.select([], [write], [], 0)[1], READY_SECONDS, "the pipe is full")
        workload.say()
        collections = workload.read()["collections"]
        workload.finish()
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == FAILED
        took = time.monotonic() - begin
        os.set_blocking(read, False)
        lines = os.read(read, 1 << 20).decode().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        assert lines[-1].endswith("\n") and len(rows) > 0 and took < STOP_SECONDS
        if not together:
            told = re.search(r"error: (\d+) rows? could not be delivered: stdout is not read", process.stderr.read())
            assert int(told[1]) + len(rows) >= len(collections) > len(rows)
    finally:
        process.kill()
        process.wait()
        os.close(read)
        os.close(write)


def test_help_and_version_go_to_stdout():
    for arguments in (["--help"], ["--version"], ["run", "--help"], ["schema", "--help"], ["sql", "--help"], ["gil", "--help"],
                      ["offcpu", "--help"]):
        result = run_underspan(*arguments)
        assert (result.returncode, result.stderr) == (0, "") and result.stdout, arguments


def test_second_agent_beside_the_first(start_agent, start_workload, debian_python):
    """Two agents watch the same process without taking events from each other."""
    first, second = start_agent(trackers=["gc_pause"]), start_agent(trackers=["gc_pause"])
    workload = start_workload(debian_python, "gc_truth.py", 1, 100, 1).wait_covered(first)
    second.wait_rows("ebpf_gc_pause", lambda r: r["pid"] == workload.pid)
    workload.say()
    truth = workload.read()
    workload.finish()
    from test_gc_pause import match, rows_of
    for agent in first, second:
        agent.stop()
        match(rows_of(agent, workload.hello, truth["begin"], truth["end"]), truth["collections"])
