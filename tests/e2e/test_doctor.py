# SPDX-License-Identifier: Apache-2.0
"""The report about a process: the interpreter, how each part was found, and why a part is missing. A program that
only looks like Python is not a Python for doctor and agent."""
import json
import re
import signal
import subprocess
import time

import pytest

import host
from agent import run_underspan
from conftest import ALL_PYTHONS
from test_gc_pause import copy_python

pytestmark = pytest.mark.light

# exports the symbols of Python 3.9, with the texts, and has garbage in place of the state
IMITATION = r"""
#include <stdio.h>
#include <unistd.h>
unsigned long _PyRuntime[1024];
const char *const texts[] = { "3.9.18", "lib/python3.9" };
static __attribute__((noinline)) int collect(int n)
{
	if (n > 1) printf("gc: collecting generation %%d...\n", n);
	return n + texts[0][0];
}
int main(int argc, char **argv)
{
	static unsigned long interp[1024], tstate[512], dict[16];
	(void)argv;
	for (int i = 0; i < 1024; i++)
		_PyRuntime[i] = (unsigned long)interp;
	%s
	puts("ready");
	fflush(stdout);
	for (;;) { collect(argc); sleep(1); }
}
"""
STATES = {
    "a circle of interpreters": "interp[0] = (unsigned long)interp; interp[1] = (unsigned long)tstate;"
                                "tstate[2] = (unsigned long)interp; tstate[22] = (unsigned long)tstate;"
                                "tstate[0] = tstate[1] = 0; tstate[22] = (unsigned long)tstate;",
    "a circle of threads": "interp[1] = (unsigned long)tstate; tstate[2] = (unsigned long)interp;"
                           "tstate[1] = (unsigned long)tstate;",
    "threads that are none": "interp[1] = (unsigned long)tstate; tstate[2] = (unsigned long)interp;"
                             "tstate[22] = (unsigned long)interp;",
    "modules that are none": "interp[1] = (unsigned long)tstate; tstate[2] = (unsigned long)interp;"
                             "unsigned long self; __asm__(\"mov %%%%fs:0, %0\" : \"=r\"(self)); tstate[22] = self;"
                             "interp[107] = (unsigned long)dict; dict[2] = 1ul << 60; dict[4] = 3;",
}
REASON = "the interpreter's state is not where expected for this build"


def lines_of(output, pid):
    """{label: (ok, detail)} of one process."""
    section = output.split(f"process {pid}\n", 1)[1].split("\n\n", 1)[0]
    return {line[7:21].strip(): (line[2:4] == "ok", line[22:].strip()) for line in section.splitlines() if line}


@pytest.mark.parametrize("probed", [False, True], ids=["alone", "beside an agent"])
def test_doctor_knows_every_python(probed, start_on_all, start_agent):
    """Also while an agent has probes in these files: doctor reads the file, not the breakpoints."""
    if probed:
        start_agent("--gil_wait.method=uprobe", trackers=["gc_pause", "gil_wait"])
    workloads = start_on_all("gc_truth.py", 3, 10, 1, pythons=ALL_PYTHONS)
    for workload in workloads:
        workload.hello = workload.read()
    time.sleep(probed)
    result = run_underspan("doctor", *(f"--pid={w.pid}" for w in workloads), timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr

    def check(workload):
        lines = lines_of(result.stdout, workload.pid)
        version = ".".join(map(str, workload.python.version))
        assert lines["Python"][1].startswith(f"{version} in "), lines
        build_id = subprocess.run(["readelf", "-n", workload.python.image], stdout=subprocess.PIPE, text=True).stdout
        assert "Build ID: " + lines["build"][1].split("build id ")[1] in build_id
        with open(f"/proc/{workload.pid}/status") as f:
            threads = int(next(line.split()[1] for line in f if line.startswith("Threads:")))
        assert f"1 interpreter, {threads} thread{'s' * (threads > 1)} ({threads} compared with the kernel" in lines["state"][1], lines
        assert ("description" if workload.python.version >= (3, 13) else "table") in lines["state"][1]
        assert f"found by {workload.python.gc_method}" in lines["gc_pause"][1]
        assert all(ok for ok, _ in lines.values()), lines

    host.check_each(workloads, check)


@pytest.fixture
def imitations(tmp_path, cleanup):
    found = []
    for i, (what, code) in enumerate(STATES.items()):
        source, program = tmp_path / f"{i}.c", tmp_path / f"python3.9-{i}"
        source.write_text(IMITATION.replace("%s", code).replace("%%", "%"))
        subprocess.run(["sh", "-c", f"$(command -v clang-19 || echo cc) -O1 -rdynamic -o {program} {source}"], check=True)
        process = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
        cleanup.append(process)
        assert process.stdout.readline() == "ready\n"
        found.append((what, process))
    return found


@pytest.mark.skipif(host.os.uname().machine != "x86_64", reason="reads a thread's own address as x86-64 has it")
def test_a_program_that_imitates_python_is_refused(imitations, start_agent):
    agent = start_agent(*(f"--pid={p.pid}" for _, p in imitations), trackers=["gc_pause", "gil_wait"])
    result = run_underspan("doctor", *(f"--pid={p.pid}" for _, p in imitations))
    assert result.returncode == 1
    for what, process in imitations:
        ok, reason = lines_of(result.stdout, process.pid)["state"]
        assert not ok and reason.startswith(REASON), (what, result.stdout)
        rows = agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and r["tracker"] == "python")
        assert not rows[0]["live"] and rows[0]["reason"] == reason, (what, rows, reason)
        agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == process.pid and r["tracker"] == "gc_pause"
                        and not r["live"] and r["reason"] == reason)
    # the process calls itself a collector once a second, but without further rows
    before = {table: len(agent.rows[table]) for table in ("ebpf_gc_pause", "ebpf_gil_wait")}
    time.sleep(3)
    agent.stop()
    assert before == {table: len(agent.rows[table]) for table in before}
    counts = [r for r in agent.rows["ebpf_agent"] if r["tracker"] == "gc_pause"]
    assert sum(r["filtered"] for r in counts) >= 2 * len(imitations), counts


# two copies of the process, and a process for each command
MASTER = """if True:
    import json, os, sys, time
    for command in None, None, *json.loads(sys.argv[1]):
        if not os.fork():
            if command:
                os.execve(command[0], command, {**os.environ, **json.loads(sys.argv[2])})
            time.sleep(30)
    print(1, flush=True)
    time.sleep(30)
"""


@pytest.mark.parametrize("start", [[], ["sh", "-c", '"$@"; true', "sh"]], ids=["master", "its shell"])
def test_doctor_sums_up_descendants(start, debian_python, cleanup, tmp_path):
    """Of a master, the workers count; refused workers are named; a child without Python is not a fault."""
    copy, env = copy_python(next(p for p in ALL_PYTHONS if p.version >= (3, 13) and not p.root), tmp_path)
    call_it_free_threaded(copy.image)
    for others, watched in ([], "2 of 2"), ([[copy.path, "-c", "print(2, flush=True); import time; time.sleep(30)"]], "2 of 3"):
        process = subprocess.Popen([*start, debian_python.path, "-c", MASTER, json.dumps([["/bin/sleep", "30"], *others]),
                                    json.dumps(env)], stdout=subprocess.PIPE, text=True, start_new_session=True)
        cleanup.append(process)
        for _ in 1, *others:
            assert process.stdout.readline()
        result = run_underspan("doctor", "-p", str(process.pid), timeout=30)
        host.os.killpg(process.pid, signal.SIGKILL)
        lines = lines_of(result.stdout, process.pid)
        if start:  # the master is included
            watched = watched.replace("2 of 2", "3 of 3").replace("2 of 3", "3 of 4")
            assert lines["Python"] == (True, "no interpreter in this process, but in descendants"), lines
        assert lines["descendants"] == (not others, f"{watched} Python processes can be watched; 1 runs no Python"), lines
        assert result.returncode == (1 if others else 0), result.stdout
        assert ("free-threaded Python" in lines["descendant"][1]) if others else "descendant" not in lines, lines


def call_it_free_threaded(path):
    """Sets the flag in the build's self-description."""
    with open(path, "rb+") as f:
        content = f.read()
        for match in re.finditer(rb"xdebugpy...\x03", content, re.DOTALL):
            f.seek(match.start() + 16)
            f.write(b"\1")


def test_free_threaded_builds_are_refused(start_workload, tmp_path):
    """Free-threaded builds are unavailable here: ordinary builds with the flag set."""
    workloads = []
    for python in ALL_PYTHONS:
        if python.version >= (3, 13):
            copy, env = copy_python(python, tmp_path / python.name)
            call_it_free_threaded(copy.image)
            workloads.append(start_workload(copy, "gc_truth.py", 1, 1, 1, env=env))
    for workload in workloads:
        workload.read()
    result = run_underspan("doctor", *(f"--pid={w.pid}" for w in workloads), timeout=60)
    assert result.returncode == 1 and workloads
    for workload in workloads:
        assert lines_of(result.stdout, workload.pid)["Python"] == (
            False, "free-threaded Python 3.%d is not supported" % workload.python.version[1]), result.stdout


def test_pids_that_do_not_exist():
    """One sentence, without the host's features; beside a process that exists, a finding."""
    done = run_underspan("doctor", "-p", str(0x3ffffff))
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1, done
    assert f"there is no process {0x3ffffff} on this host" in done.stderr, done
    done = run_underspan("doctor", "-p", f"{0x3ffffff},1")
    assert done.returncode == 1 and "there is no such process on this host" in done.stdout, done
    for twice in ["-p", "1,1"], ["1", "1"], ["-p", "1", "1"]:
        assert run_underspan("doctor", *twice).stdout.partition("\n")[0].count("(process 1)") <= 1, twice


def test_in_a_user_namespace():
    """Root there has every capability, but may not load programs: the namespace is named, with the remedy."""
    for words in ["doctor"], ["run", "--stdout"], ["gil", "-p", "1"]:
        done = run_underspan(*words, prefix=["unshare", "--user", "--map-root-user"])
        said = done.stdout if words == ["doctor"] else done.stderr
        assert done.returncode == 1 and "runs in a user namespace" in said and "as root of the host" in said, done
