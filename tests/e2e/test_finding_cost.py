# SPDX-License-Identifier: Apache-2.0
"""The cost of finding processes and threads is bounded, however many are started; long-lived processes are found
all the same."""
import os
import subprocess
import sys
import time

import pytest

import host
from agent import ROOT, plain_build

pytestmark = pytest.mark.alone
SECONDS, ROUNDS = 1, 3
FEW = 300  # per second: more than the limit of individual examinations
# one loop per way of starting: as fast as possible, or RATE per second
STORM = """
import os, sys, threading, time
seconds, rate, kind = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
begin, n = time.monotonic(), 0
while time.monotonic() < begin + seconds:
    if rate and n > (time.monotonic() - begin) * rate:
        time.sleep(0.0005)
        continue
    n += 1
    if kind == "threads":
        t = threading.Thread(target=int); t.start(); t.join()
    else:
        p = os.fork(); p or os._exit(0); os.waitpid(p, 0)
print(n)
"""
EXEC_STORM = os.path.join(ROOT, "build", "tests", "e2e", "process_storm")


def run_storm(agent, kind, rate):
    """Returns the number of starts, the agent's CPU in the time, and the seconds until a Python among the processes was
    found."""
    cpu = host.CpuMeter(agent.pid)
    storm = subprocess.Popen([*([EXEC_STORM] if kind == "exec" else [sys.executable, "-c", STORM]), str(SECONDS), str(rate), kind],
                             stdout=subprocess.PIPE)
    time.sleep(SECONDS / 2)
    started = time.monotonic()
    python = subprocess.Popen([sys.executable, "-c", "import gc, time\nwhile True: gc.collect(); time.sleep(0.02)"])
    try:
        agent.wait_rows("ebpf_gc_pause", lambda r: r["host_pid"] == python.pid)
        found_after = time.monotonic() - started
        while storm.poll() is None:
            cpu.look()
            time.sleep(0.05)
        spent = cpu.look()
    finally:
        python.kill()
        python.wait()
    return int(storm.stdout.read()), spent, found_after


@plain_build("its work takes CPU")
@pytest.mark.parametrize("kind", ["threads", "exec", "fork"])
def test_storms(kind, start_agent):
    """Ten or a hundred times as many cost the agent no more CPU: the bound is a few hundred a second of the same run."""
    agent = start_agent(trackers=["tcp_loss", "gc_pause"])
    rounds = [(run_storm(agent, kind, FEW), run_storm(agent, kind, 0)) for _ in range(ROUNDS)]
    agent.stop()
    # unrelated starts on this host cost the agent CPU, too: the cheapest run of each kind has least of this
    few_ns, many_ns = (min(spent for _, spent, _ in runs) for runs in zip(*rounds))
    assert max(found_after for runs in rounds for _, _, found_after in runs) < 3 and many_ns < 2 * few_ns, rounds
    assert kind != "exec" or "programs start per second" in agent.stderr  # thinning is logged
