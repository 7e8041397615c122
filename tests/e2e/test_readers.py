# SPDX-License-Identifier: Apache-2.0
"""What could not be read of other processes is said and counted."""
import counts
from test_gc_pause import rows_of

GC = "ebpf_gc_pause"
STACKS = "--gc_pause.stack_min_us=0"


def test_code_that_dies_is_gone_and_counted(debian_python, start_agent, start_workload):
    agent = start_agent(STACKS, trackers=["gc_pause"])
    workload = start_workload(debian_python, "dying_code.py", 499).wait_covered(agent)
    workload.say()
    truth = workload.read()
    agent.stop()
    rows = rows_of(agent, workload.hello, truth["begin"], truth["end"])
    assert len(rows) == 499
    for i, row in enumerate(rows):
        assert row["py_stack"][0] in ("<gone>", "<unread>", f"<module> (dies/{i:04}.py:1)"), (i, row["py_stack"])
    found = counts.check(agent)["gc_pause"]
    print(f"\n  {found['rows_gone']} of 499 gone, {found['rows_unread']} unread", end=" ")
    assert found["rows_gone"] > 0, found
    workload.finish()
