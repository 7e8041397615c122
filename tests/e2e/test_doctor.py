# SPDX-License-Identifier: Apache-2.0
"""What is said of a process: its interpreter, how each thing was found, and why something is missing. A program that
only looks like Python is no Python, to doctor and to the agent."""
import re
import subprocess
import time

import pytest

import host
from agent import run_underspan
from conftest import ALL_PYTHONS
from test_gc_pause import copy_python

# exports what Python 3.9 exports, with its texts, and keeps garbage where the state would be
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
REASON = "its state is not where this build should have it"


def lines_of(output, pid):
    """{what: (ok, detail)} of one process."""
    section = output.split(f"process {pid}\n", 1)[1].split("\nprocess ", 1)[0]
    return {line[7:21].strip(): (line[2:4] == "ok", line[22:].strip()) for line in section.splitlines() if line}


def test_doctor_knows_every_python(start_on_all):
    workloads = start_on_all("gc_truth.py", 3, 10, 1, pythons=ALL_PYTHONS)
    for workload in workloads:
        workload.hello = workload.read()
    result = run_underspan("doctor", *(f"--pid={w.pid}" for w in workloads), timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr

    def check(workload):
        lines = lines_of(result.stdout, workload.pid)
        version = ".".join(map(str, workload.python.version))
        assert lines["Python"][1].startswith(f"{version} in "), lines
        build_id = subprocess.run(["readelf", "-n", workload.python.image], stdout=subprocess.PIPE, text=True).stdout
        assert "Build ID: " + lines["build"][1].split("build id ")[1] in build_id
        with open(f"/proc/{workload.pid}/status") as f:
            threads = next(line.split()[1] for line in f if line.startswith("Threads:"))
        assert f"1 interpreter, {threads} threads ({threads} of them compared" in lines["state"][1], lines
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
    # it calls itself a collector once a second, but no row is made of that any more
    before = {table: len(agent.rows[table]) for table in ("ebpf_gc_pause", "ebpf_gil_wait")}
    time.sleep(3)
    agent.stop()
    assert before == {table: len(agent.rows[table]) for table in before}
    counts = [r for r in agent.rows["ebpf_agent"] if r["tracker"] == "gc_pause"]
    assert sum(r["filtered"] for r in counts) >= 2 * len(imitations), counts


def call_it_free_threaded(path):
    """Sets the flag in what the program says of itself."""
    with open(path, "rb+") as f:
        content = f.read()
        for match in re.finditer(rb"xdebugpy...\x03", content, re.DOTALL):
            f.seek(match.start() + 16)
            f.write(b"\1")


def test_free_threaded_builds_are_refused(start_workload, tmp_path):
    """None can be had here: these are ordinary ones that say that they are."""
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
            False, "free-threaded Python 3.%d is not supported yet" % workload.python.version[1]), result.stdout
