# SPDX-License-Identifier: Apache-2.0
"""Two agents of a host that write the same rows: each says so, and doctor does, of processes and of the database. No false alarm where
their command lines say that they do not meet, and none by a process that is only called so."""
import json
import os
import re
import subprocess
import tempfile
import time

import pytest

import host
from agent import NO_ENGINE, Agent, plain_build, run_underspan
from answers import store_of_answers
from test_gc_pause import CLOCK_NS

pytestmark = pytest.mark.light
SENTENCE = ("underspan: warning: process {} is an agent (underspan run) that watches the same processes: if both write into one database, each row is there "
            "twice: stop one of them, or give them different databases or different processes (--pid)")


def warnings(agent, other):
    """Agents of other tests may be named, too."""
    return [line for line in agent.log if f"process {other.pid} is an agent" in line]


def findings(*arguments):
    """What doctor says about agents, and its exit code."""
    done = run_underspan("doctor", *arguments)
    return [line for line in done.stdout.splitlines() if re.match("  (NO|ok) +(agents|reports) ", line)], done.returncode


def pairs(*arguments):
    """The pairs of pids; agents of other tests may be among them."""
    return {frozenset(map(int, found)) for line in findings(*arguments)[0] for found in re.findall(r"NO +agents +processes (\d+) and (\d+) are agents", line)}


@plain_build(NO_ENGINE)
def test_two_agents_with_one_database(tmp_path, monkeypatch, cleanup, start_workload, debian_python):
    with store_of_answers(tmp_path) as store:
        monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
        workload = start_workload(debian_python, "gc_truth.py", 1, 100, 1)
        workload.read()

        def start(*options):
            agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--report_interval=1", *options, trackers=["gc_pause"], stdout=False)
            cleanup.append(agent)
            return agent.wait_ready()

        first = start()
        second = start()
        assert warnings(second, first) == [SENTENCE.format(first.pid)], second.stderr
        assert frozenset((first.pid, second.pid)) in pairs() and findings()[1] == 1
        live = f"SELECT count() FROM ebpf_probe_health WHERE host_pid = {workload.pid} AND tracker = 'gc_pause' AND live"
        host.wait_until(lambda: store.ask(live) == "2\n", 30, "probes of both")
        time.sleep(5)
        [said] = [line for line in findings(f"--clickhouse={store.url}")[0] if " reports " in line]
        assert re.match(r"  NO +reports +two agents of host \S+ reported at the same time, for \d+ s of the last hour", said), said
        workload.say()
        truth = workload.read()

        def rows():
            text = store.ask(f"SELECT tid, generation, toUnixTimestamp64Micro(start_time) AS start_us FROM ebpf_gc_pause WHERE host_pid = {workload.pid} ORDER BY start_time FORMAT JSONEachRow")
            return [r for r in map(json.loads, text.splitlines()) if truth["begin"] - CLOCK_NS <= host.monotonic_ns(int(r["start_us"])) <= truth["end"] + CLOCK_NS]

        # what the sentence says is so: the program's collections, each twice
        expected = sorted((c["tid"], c["generation"]) for c in truth["collections"]) * 2
        host.wait_until(lambda: len(rows()) >= len(expected), 20, "both agents' rows")
        assert sorted((r["tid"], r["generation"]) for r in rows()) == sorted(expected) and len(expected) >= 200
        host.wait_until(lambda: warnings(first, second), 70, "the first agent's warning")
        assert warnings(first, second) == [SENTENCE.format(second.pid)] and len(warnings(second, first)) == 1
        second.stop()
        assert not any(first.pid in pair for pair in pairs())
        workload.finish()


@plain_build(NO_ENGINE)
def test_doctor_tells_agents_that_are_apart(tmp_path, monkeypatch, cleanup, start_workload, debian_python):
    """Different processes of one database: no warning, and what the database shows is explained."""
    with store_of_answers(tmp_path) as store:
        monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
        agents = []
        for _ in range(2):
            workload = start_workload(debian_python, "everything.py", 1)
            agents.append(Agent(f"--clickhouse={store.url}", f"--pid={workload.pid}", "--report_interval=1", "--flush_interval=0.3", trackers=["gc_pause"], stdout=False))
            cleanup.append(agents[-1])
            agents[-1].wait_ready()
        time.sleep(5)
        first, second = agents
        assert not warnings(first, second) and not warnings(second, first)
        assert frozenset((first.pid, second.pid)) not in pairs()
        [said] = [line for line in findings(f"--clickhouse={store.url}")[0] if " reports " in line]
        assert said.endswith("those that run now watch different processes") or "NO   agents" in str(findings()), said


IMPOSTOR = "#include <unistd.h>\nint main(void) { return pause(); }\n"


@pytest.fixture
def program():
    """Where every user may start it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        subprocess.run(["cc", "-o", f"{directory}/underspan", "-x", "c", "-"], input=IMPOSTOR, text=True, check=True)
        yield f"{directory}/underspan"


def runs(process, program):
    """After an exec()."""
    try:
        return os.readlink(f"/proc/{process.pid}/exe") == program
    except OSError:
        return False


def test_a_name_proves_nothing(program, cleanup):
    """Processes called underspan of a user, also one that is root in a user namespace of his: no word. Of the same as root: a word, with the pid only."""
    words = [program, "run", "--clickhouse=http://x\x1b]0;x\x07", "--host=" + "\u202e" * 20_000]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    fakes = [subprocess.Popen([*nobody, *words]), subprocess.Popen([*nobody, "unshare", "--user", "--map-root-user", *words])]
    cleanup += fakes
    host.wait_until(lambda: all(runs(fake, program) for fake in fakes), 10, "the impostors")
    assert int(re.search(r"CapEff:\s+(\w+)", open(f"/proc/{fakes[1].pid}/status").read())[1], 16) >> 21 & 1  # CAP_SYS_ADMIN, in his namespace
    assert not any({fake.pid for fake in fakes} & pair for pair in pairs())
    agent = Agent("-c", "none", "--clickhouse=http://127.0.0.1:1", trackers=["gc_pause"], stdout=False)
    cleanup.append(agent)
    agent.wait_ready()
    assert not any(warnings(agent, fake) for fake in fakes), agent.stderr
    agent.kill()
    real = subprocess.Popen([program, "run", "--host=\x1b]0;x\x07"])
    cleanup.append(real)
    host.wait_until(lambda: runs(real, program), 10, "the program")
    again = Agent("-c", "none", "--clickhouse=http://127.0.0.1:1", trackers=["gc_pause"], stdout=False)
    cleanup.append(again)
    again.wait_ready()
    assert warnings(again, real) == [SENTENCE.format(real.pid)], again.stderr
    assert again.stderr.replace("\n", "").isprintable()
    again.kill()
