# SPDX-License-Identifier: Apache-2.0
"""The agent's reports about the agent add up, exactly, for every tracker: no event disappears without a
count."""
import http.client
import os
import re
import socket
import subprocess
import threading
import time

import pytest

import counts
import host
from agent import NO_ENGINE, known_trackers, plain_build, run_underspan
from cgroups import QuotaCgroup
from conftest import ALL_PYTHONS
from test_cpu_throttle import Burner
from test_ena import OPTIONS as VETH
from test_tcp_loss import Scene
from veth import DroppingPair

EVERYTHING = [f"--{stem}.min_duration_us=0" for stem in ("handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept",
                                                         "tcp_connect", "request")]


@pytest.mark.promise
def test_all_trackers_add_up(debian_python, start_agent, start_workload, cleanup):
    pair = DroppingPair("uso0")
    cleanup.append(pair)
    scene = Scene(lambda *options, trackers: start_agent(*options), cleanup, socket.AF_INET, [*EVERYTHING, *VETH])
    scene.watch()
    agent = scene.agent
    workload = start_workload(debian_python, "everything.py", 2).wait_covered(agent)
    cgroup = QuotaCgroup(20_000)
    cleanup.append(cgroup)
    burner = Burner(cgroup)
    cleanup.append(burner)
    workload.say()
    burner.start(0.4)
    scene.listen()
    scene.connect()
    scene.wire.drop = (lambda lost: lambda p: p.side == 0 and p.length and not lost and not lost.append(p))([])
    scene.a.do("main", "send", "c", 1000)
    scene.b.do("main", "recv", "c", 1000)
    pair.send(10)
    workload.read()
    workload.finish()
    burner.holes()
    if not cgroup.stat()["nr_throttled"]:
        burner.burn_until_throttled(cgroup, 0.4)
    scene.finish()
    found = counts.check(agent)
    assert set(known_trackers()) <= set(found)
    assert {"off_cpu_profile", "gil_wait_profile", "processes", "agent"} <= set(found)
    for tracker in known_trackers():
        assert found[tracker]["rows"] > 0, (tracker, found[tracker])
    assert found["processes"]["seen"] > 0


def test_rings_that_overflow_lose_nothing_uncounted(debian_python, start_agent, start_workload):
    """The agent is stopped while programs work: ring buffers overflow, and each lost event is counted."""
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


BUSY = """import threading
def spin():
    while True:
        pass
for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
spin()"""


@pytest.mark.promise
@pytest.mark.parametrize("method", ["sched", "callsite", "uprobe"])
def test_a_stop_in_the_midst_of_waits_for_the_gil(method, start_agent, cleanup):
    """No event is counted after the last read of the ring buffers."""
    busy = [subprocess.Popen([python.path, "-c", BUSY]) for python in ALL_PYTHONS[:3]]
    for one in busy:
        cleanup.append(one)  # killed
    for _ in range(2):
        agent = start_agent("--gil_wait.min_duration_us=0", f"--gil_wait.method={method}", *[f"--pid={one.pid}" for one in busy], trackers=["gil_wait"])
        agent.wait_rows("ebpf_gil_wait", n=20, timeout=20)
        agent.stop()
        counts.check(agent)


# ---- metrics and health over HTTP ----

def get(port, path, method="GET"):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read().decode()


SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"')


def metrics(port, path="/metrics"):
    """{(name, tracker or ''): value} of a page in Prometheus' text format 0.0.4 by the naming rules: HELP, then
    TYPE, then all samples of one metric, no duplicates; counters end in _total, gauges do not; base units."""
    status, headers, text = get(port, path)
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert text.endswith("\n")
    values, types, current, seen, sampled = {}, {}, None, set(), set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, what = line.split(" ", 3)[2:]
            assert name not in types and what.strip(), line
            current, types[name] = name, None
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ", 3)[2:]
            assert name == current and types[name] is None and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
            assert re.fullmatch(r"[a-z][a-z0-9_]*", name) and name.startswith("underspan_"), name
            assert (kind == "counter") == name.endswith("_total"), line
            parts = name.split("_")
            assert not {"ns", "us", "ms", "kib", "mb", "percent", "info"} & set(parts) or name == "underspan_build_info", name
            for unit in "seconds", "bytes":
                assert unit not in parts or parts[-2 if kind == "counter" else -1] == unit, name
        else:
            match = SAMPLE.fullmatch(line)
            name = re.sub("_(bucket|sum|count)$", "", match[1]) if types[current] == "histogram" else match[1]
            assert match and name == current and types[current], line
            labels = dict(LABEL.findall(match[2] or ""))
            assert match.group(1, 2) not in seen, line
            seen.add(match.group(1, 2))
            sampled.add(name)
            values[match[1], labels.get("tracker", "")] = float(match[3])
    assert set(types) == sampled
    return values


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_metrics_and_doctor(debian_python, start_agent, start_workload):
    port = free_port()
    agent = start_agent(*EVERYTHING, f"--metrics.listen=127.0.0.1:{port}")
    workload = start_workload(debian_python, "everything.py", 1).wait_covered(agent)
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]  # silent clients
    workload.say()
    workload.read()
    first = metrics(port)
    for tracker in known_trackers():
        assert first["underspan_tracker_live", tracker] == 1
        fates = sum(first[f"underspan_{fate}_total", tracker] for fate in counts.FATES)
        assert first["underspan_seen_total", tracker] == fates + first["underspan_pending", tracker]
    assert first["underspan_rows_total", "gc_pause"] >= 1 and first["underspan_python_processes", ""] >= 1
    workload.finish()
    second = metrics(port)
    assert all(second[key] >= value for key, value in first.items() if key[0].endswith("_total"))
    doctor = run_underspan("doctor", f"--agent=127.0.0.1:{port}", timeout=30)
    assert re.search(r"gc_pause +\d+ events? seen, nothing lost: \d+ rows?", doctor.stdout), doctor.stdout + doctor.stderr
    assert re.search("ok +delivery +no insert fails", doctor.stdout), doctor.stdout
    assert 0 < second["underspan_process_cpu_seconds_total", ""] < 600 and second["underspan_build_info", ""] == 1
    for s in slow:
        s.close()
    agent.stop()
    counts.check(agent)
    gone = run_underspan("doctor", f"--agent=127.0.0.1:{port}", timeout=30)
    assert gone.returncode == 1 and "no agent answers" in gone.stdout


def test_doctor_tells_of_an_agent_that_cannot_deliver(tmp_path, start_agent):
    """No database, then no spool either. /healthz is 503 only after metrics.stuck_after."""
    port, spool = free_port(), tmp_path / "spool"
    agent = start_agent("--clickhouse=http://127.0.0.1:1", f"--spool.directory={spool}", f"--metrics.listen=127.0.0.1:{port}",
                        "--flush_interval=1", "--report_interval=1", trackers=["gc_pause"], stdout=False)

    def doctor():
        return run_underspan("doctor", f"--agent=127.0.0.1:{port}", timeout=30)

    host.wait_until(lambda: metrics(port)["underspan_delivery_failing", ""] == 1, 20, "a failed insert")
    said = doctor()
    assert said.returncode == 1 and re.search(r"NO +delivery +the last attempt to insert failed, the oldest row waits for \d+ s: the agent's log",
                                              said.stdout), said
    assert "delivery (the running agent, since start)" in said.stdout and "NO   spool" not in said.stdout, said
    spool.chmod(0)
    os.chown(spool, 65534, 65534)
    host.wait_until(lambda: metrics(port)["underspan_spool_degraded", ""] == 1, 20, "a spool that cannot be written to")
    assert re.search("NO +spool +spool.directory cannot be written to, rows are kept in memory", doctor().stdout)
    os.chown(spool, 0, 0)
    spool.chmod(0o700)
    agent.stop()


COSTS = ["bpf_seconds_total", "bpf_hits_total", "agent_seconds_total"]


# whether or not this host keeps the statistics itself
WITHOUT_STATISTICS = ["unshare", "--mount", "sh", "-c", 'echo 0 > "$0" && mount --bind "$0" /proc/sys/kernel/bpf_stats_enabled && '
                      'exec capsh --drop=cap_sys_admin -- -c \'exec "$@"\' sh "$@"']


@pytest.mark.parametrize("governor, measured", [(100, COSTS), (0, []), (100, COSTS[2:])], ids=["all", "no governor", "no right to statistics"])
def test_costs_that_are_not_measured(governor, measured, tmp_path, start_agent):
    """They are absent at /metrics, not 0; tables of sums and the agent's own never have any."""
    prefix = [*WITHOUT_STATISTICS, str(tmp_path / "zero")] if governor and measured != COSTS else []
    port = free_port()
    start_agent(f"--governor.cpu_percent={governor}", "--governor.interval=1s", f"--metrics.listen=127.0.0.1:{port}", trackers=["gc_pause", "off_cpu"],
                prefix=prefix)
    if governor:
        host.wait_until(lambda: ("underspan_agent_seconds_total", "gc_pause") in metrics(port), 15, "costs were measured")
    else:
        time.sleep(3)
    found = metrics(port)
    for name in COSTS:
        subjects = {subject for metric, subject in found if metric == f"underspan_{name}"}
        assert subjects == ({"gc_pause", "off_cpu", "processes"} if name in measured else set()), (name, subjects)
    assert ("underspan_rows_total", "agent") in found


def test_health_and_what_is_no_request(start_agent):
    """/healthz reports success, unknown pages are 404, and strange or endless requests do not block further clients."""
    port = free_port()
    start_agent(f"--metrics.listen=127.0.0.1:{port}", trackers=["gc_pause"])
    assert get(port, "/healthz")[::2] == get(port, "/livez")[::2] == (200, "ok\n")
    assert get(port, "/healthz", "HEAD")[::2] == get(port, "/metrics", "HEAD")[::2] == (200, "")
    for bad in "/", "/metrics/", "/metrics/../x", "//healthz", "/healthz/x", "/" + "a" * 4000:
        assert get(port, bad)[0] == 404, bad
    for method in "POST", "PUT", "DELETE", "OPTIONS", "FROB":
        status, headers, _ = get(port, "/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD"), method
    # more clients than connection slots, each sending a byte now and then
    begin, slow = time.monotonic(), []
    for _ in range(64):
        slow.append(socket.create_connection(("127.0.0.1", port)))
        slow[-1].send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
    while time.monotonic() - begin < 9:
        for s in slow:
            try:
                s.send(b"y")
            except OSError:
                pass  # closed by the agent, as expected
        time.sleep(0.5)
    begin = time.monotonic()
    assert get(port, "/healthz")[0] == 200 and time.monotonic() - begin < 8  # two rounds of 5 s for all clients
    crowd = Crowd(port, 150)
    for _ in range(3):
        begin = time.monotonic()
        assert get(port, "/livez")[0] == 200 and time.monotonic() - begin < 5  # the kubelet's timeoutSeconds
    crowd.stop()
    with socket.create_connection(("127.0.0.1", port)) as s:  # a body is not read
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(1000):
                s.sendall(b"z" * 100000)
    assert get(port, "/healthz")[0] == 200
    for s in slow:
        s.close()


class Crowd:
    """So many clients at a time, each with a request without an end, that come back at once when they are closed."""

    def __init__(self, port, n):
        self.port, self.ended = port, False
        self.threads = [threading.Thread(target=self._come_back) for _ in range(n)]
        for thread in self.threads:
            thread.start()
        time.sleep(2)

    def _come_back(self):
        while not self.ended:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
                    s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
                    s.recv(1)
            except OSError:
                time.sleep(0.05)

    def stop(self):
        self.ended = True
        for thread in self.threads:
            thread.join()


def test_health_of_a_delivery_that_is_stuck(start_agent):
    port, nobody = free_port(), free_port()
    agent = start_agent(f"--clickhouse=http://127.0.0.1:{nobody}", f"--metrics.listen=127.0.0.1:{port}", "--report_interval=1s",
                        "--flush_interval=1s", "--metrics.stuck_after=4s", trackers=["gc_pause"], stdout=False)
    assert get(port, "/healthz")[0] == 200  # not ready
    host.wait_until(lambda: get(port, "/healthz")[0] == 503, 30, "503")
    assert re.fullmatch(r"delivery is stuck: no insert succeeds, the oldest row waits for \d+ s\n", get(port, "/healthz")[2])
    assert get(port, "/livez")[0] == 200  # a restart would not help
    assert metrics(port)["underspan_delivery_failing", ""] == 1
    agent.kill()


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
    assert re.search(r"gc_pause +\d+ events? seen, nothing lost: [1-9]\d* rows?", doctor.stdout), doctor.stdout
