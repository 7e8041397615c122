# SPDX-License-Identifier: Apache-2.0
"""Runs in the machine: one agent with all trackers, and the checks in sequence. Prints a line "RESULT tracker ok|FAIL
words" for each, and DONE."""
import collections
import os
import signal
import time
import traceback

import checks
import checks_alone
from agent import Agent, run_underspan


WANTED = os.environ.get("CHECKS", "").split(",")  # of the kernel's command line; empty: all


def say(*words):
    print(*words, flush=True)


def checks_of(module):
    return {name[len("check_"):]: check for name, check in vars(module).items() if name.startswith("check_")}


def is_wanted(name):
    return WANTED == [""] or name in WANTED


def explain_refusal(tracker):
    """The verifier's last words."""
    out = run_underspan("run", "--stdout", "--duration=1", "--log_level=debug", f"--trackers={tracker}", timeout=60).stderr
    interesting = [l for l in out.splitlines() if "process object" not in l][-40:]
    say(*(f"# {line[:300]}\n" for line in interesting))


def report(tracker, check, *args):
    begin = time.monotonic()
    try:
        words, outcome = check(*args), "ok"
    except Exception as e:
        words, outcome = " ".join(str(e).split())[:300] or repr(e), "FAIL"
        for line in traceback.format_exc().splitlines():
            say("#", line[:500])
    say("RESULT", tracker, outcome, f"{words} ({time.monotonic() - begin:.0f} s)")
    return outcome != "FAIL"


def check_end(agent):
    """SIGTERM: in time, with 0, and nothing is unaccounted for."""
    agent.process.send_signal(signal.SIGTERM)
    code = agent.wait_end(15)
    assert code == 0, f"exit code {code}: {agent.stderr[-500:]}"
    total = collections.Counter()
    for row in agent.rows["ebpf_agent"]:
        for column in ("seen", "filtered", "lost_ring", "lost_state", "bad_event", "rows"):
            total[row["tracker"], column] += row[column]
    # finding processes makes no rows; the agent's rows continue during the count
    for tracker in {tracker for tracker, _ in total} - {"processes", "agent"}:
        counts = {column: n for (t, column), n in total.items() if t == tracker and n}
        assert not any(total[tracker, lost] for lost in ("lost_ring", "lost_state", "bad_event")), (tracker, counts)
        assert total[tracker, "seen"] == total[tracker, "filtered"] + total[tracker, "rows"], (tracker, counts)
        # tcp_connect's events are rows of two tables
        written = sum(len(agent.rows[f"ebpf_{tracker}{second}"]) for second in ("", "_closed"))
        assert total[tracker, "rows"] == written, (tracker, counts, written)
    return f"exit 0, nothing lost, {sum(n for (_, column), n in total.items() if column == 'rows')} rows"


def main():
    say("# kernel", os.uname().release)
    begin = time.monotonic()
    try:
        # a stack takes an emulated CPU milliseconds: no limit on the share of the time
        agent = Agent(*checks.ENA, "--handoff.stack_cpu_percent=100").wait_ready(180)
    except AssertionError as e:
        say("RESULT agent FAIL", " ".join(str(e).split())[-300:])
        explain_refusal("handoff")
        return
    say("RESULT agent ok", f"ready after {time.monotonic() - begin:.1f} s")
    refused = {line.split(": ")[2] if line.startswith("underspan: error: ") else "": line for line in agent.log
               if "does not run" in line}
    for tracker, check in sorted(checks_of(checks).items()):
        if tracker in refused:
            say("RESULT", tracker, "FAIL", refused[tracker])
            explain_refusal(tracker)
        elif is_wanted(tracker):
            report(tracker, check, agent)
    report("end", check_end, agent)
    for name, check in checks_of(checks_alone).items():
        if is_wanted(name):
            report(name, check)
    if any(l.startswith("underspan: error") or l.startswith("underspan: warning") for l in agent.log):
        say(*(f"# {line}\n" for line in agent.log[-20:]))
    say("DONE")


main()
