# SPDX-License-Identifier: Apache-2.0
"""sql/queries/coroutines.sql says which coroutines kept an event loop, compared with the coroutines' own clocks."""
import json
import os
import subprocess

import pytest

import host
from agent import NO_ENGINE, ROOT, UNDERSPAN, plain_build

pytestmark = [pytest.mark.engine, plain_build(NO_ENGINE)]
SECONDS = 4


def kept_by(loop, python, store, log):
    """Runs the tasks under an agent; what each says to have kept, and the process's pid."""
    program = subprocess.Popen([python.path, os.path.join(host.WORKLOADS, "coroutines.py"), loop, str(SECONDS)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with open(log, "w") as err:
        agent = subprocess.Popen([UNDERSPAN, "run", f"--store={store}", f"--pid={program.pid}", "--trackers=on_cpu,off_cpu", "--on_cpu.hertz=97"], stderr=err)
    try:
        host.wait_until(lambda: "ready" in log.read_text(), 60, "the agent")
        program.stdin.write("begin\n")
        program.stdin.flush()
        kept = json.loads(program.stdout.readline())
        agent.terminate()
        assert agent.wait(30) == 0, log.read_text()
    finally:
        agent.kill()
        agent.wait()
        program.communicate("end\n")
    return kept, program.pid


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_time_of_coroutines(loop, debian_python, tmp_path):
    kept, pid = kept_by(loop, debian_python, tmp_path / "store", tmp_path / "log")
    with open(os.path.join(ROOT, "sql", "queries", "coroutines.sql")) as f:
        answer = subprocess.run([UNDERSPAN, "sql", f"--store={tmp_path}/store", "--format=JSONEachRow", f.read()], stdout=subprocess.PIPE, check=True)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert {row["host_pid"] for row in rows} == {pid}, rows
    found = {row["coroutine"].split(" ")[0]: row for row in rows}
    # of some 190 samples of the computing task: three standard deviations are a fifth
    assert abs(found["computes"]["cpu_ms"] - kept["computes"]) < kept["computes"] * 0.25, (found, kept)
    assert abs(found["blocks"]["blocked_ms"] - kept["blocks"]) < kept["blocks"] * 0.05, (found, kept)
    assert found["computes"]["mostly_in"].startswith("burn (") and found["blocks"]["mostly_in"].startswith("blocks ("), found
    assert found["computes"]["blocked_ms"] < 100 and found["blocks"]["cpu_ms"] < 200, found
    assert "awaits" not in found or found["awaits"]["cpu_ms"] + found["awaits"]["blocked_ms"] < 200, found
