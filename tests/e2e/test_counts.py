# SPDX-License-Identifier: Apache-2.0
"""What the agent says about itself adds up, exactly, for every tracker: no event disappears without a count."""
import re
import socket
import time
import urllib.error
import urllib.request

import counts
from agent import NO_ENGINE, plain_build, run_underspan
from test_ena import OPTIONS as VETH
from test_tcp_loss import Scene
from veth import DroppingPair

TRACKERS = ["handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect", "tcp_loss", "ena"]
EVERYTHING = [f"--{stem}.min_duration_us=0" for stem in ("handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept",
                                                         "tcp_connect")]


def test_all_trackers_add_up(debian_python, start_agent, start_workload, cleanup):
    pair = DroppingPair("uso0")
    cleanup.append(pair)
    scene = Scene(lambda *options, trackers: start_agent(*options), cleanup, socket.AF_INET, [*EVERYTHING, *VETH])
    scene.watch()
    agent = scene.agent
    workload = start_workload(debian_python, "everything.py", 2).wait_covered(agent)
    workload.say()
    scene.listen()
    scene.connect()
    scene.wire.drop = (lambda lost: lambda p: p.side == 0 and p.length and not lost and not lost.append(p))([])
    scene.a.do("main", "send", "c", 1000)
    scene.b.do("main", "recv", "c", 1000)
    pair.send(10)
    workload.read()
    workload.finish()
    scene.finish()
    found = counts.check(agent)
    assert set(TRACKERS) <= set(found)
    assert {"off_cpu_profile", "gil_wait_profile", "processes", "agent"} <= set(found)
    for tracker in TRACKERS:
        assert found[tracker]["rows"] > 0, (tracker, found[tracker])
    assert found["processes"]["seen"] > 0


def test_rings_that_overflow_lose_nothing_uncounted(debian_python, start_agent, start_workload):
    """The agent is stopped while programs work: rings run full, and each event that found no room is counted."""
    agent = start_agent(*EVERYTHING, "--off_cpu.profile_interval=1")
    workload = start_workload(debian_python, "everything.py", 3).wait_covered(agent)
    agent.process.send_signal(19)
    workload.say()
    workload.read()
    agent.process.send_signal(18)
    workload.finish()
    agent.stop()
    found = counts.check(agent)
    assert sum(counts_of["lost_ring"] for counts_of in found.values()) > 0, found
    assert "the ring buffer was full" in agent.stderr


# ---- what others are told ----

def metrics(port, path="/metrics"):
    """{(name, tracker or ''): value} of a page in Prometheus' text format, each line of which must be well-formed."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        text = reply.read().decode()
    values, typed = {}, set()
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# HELP \w+ .+|# TYPE \w+ (counter|gauge)", line), line
            typed.add(line.split()[2])
            continue
        match = re.fullmatch(r'(\w+)(?:\{(\w+)="([\w.]+)"\})? (\S+)', line)
        assert match and match[1] in typed, line
        values[match[1], match[3] or ""] = float(match[4])
    return values


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_metrics_and_doctor(debian_python, start_agent, start_workload):
    port = free_port()
    agent = start_agent(*EVERYTHING, f"--metrics.listen=127.0.0.1:{port}")
    workload = start_workload(debian_python, "everything.py", 1).wait_covered(agent)
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]  # clients that say nothing
    workload.say()
    workload.read()
    first = metrics(port)
    for tracker in TRACKERS:
        assert first["underspan_tracker_live", tracker] == 1
        fates = sum(first[f"underspan_{fate}_total", tracker] for fate in counts.FATES)
        assert first["underspan_seen_total", tracker] == fates + first["underspan_pending", tracker]
    assert first["underspan_rows_total", "gc_pause"] >= 1 and first["underspan_python_processes", ""] >= 1
    workload.finish()
    second = metrics(port)
    assert all(second[key] >= value for key, value in first.items() if key[0].endswith("_total"))
    doctor = run_underspan("doctor", f"--agent=127.0.0.1:{port}", timeout=30)
    assert re.search(r"gc_pause +\d+ events seen, nothing lost: \d+ rows", doctor.stdout), doctor.stdout + doctor.stderr
    for bad in "/", "/metrics/../x":
        try:
            metrics(port, bad)
            raise AssertionError(bad)
        except urllib.error.HTTPError as e:
            assert e.code == 404
    for s in slow:
        s.close()
    agent.stop()
    counts.check(agent)
    gone = run_underspan("doctor", f"--agent=127.0.0.1:{port}", timeout=30)
    assert gone.returncode == 1 and "no agent answers" in gone.stdout


def test_metrics_stay_on_loopback():
    result = run_underspan("run", "--stdout", "--duration=1", "--metrics.listen=0.0.0.0:0")
    assert result.returncode == 2 and "not a loopback address" in result.stderr


@plain_build(NO_ENGINE)
def test_doctor_reads_the_table(tmp_path, debian_python, start_agent, start_workload):
    agent = start_agent(f"--store={tmp_path}/db", "--flush_interval=1", "--report_interval=1", trackers=["gc_pause"],
                        stdout=False)
    start_workload(debian_python, "everything.py", 1)
    time.sleep(4)
    agent.stop()
    doctor = run_underspan("doctor", f"--store={tmp_path}/db", timeout=60)
    assert re.search(r"gc_pause +\d+ events seen, nothing lost: [1-9]\d* rows", doctor.stdout), doctor.stdout
