# SPDX-License-Identifier: Apache-2.0
"""Pythons in containers: separate namespaces and overlays, equal pids, programs deleted by an upgrade, and files
that would block the agent for good."""
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

import host
from test_gc_pause import match, rows_of
from test_pythons import COLLECTIONS, GC, HANDOFF, HANDOFFS, WAITS, check, child_of

ROOT = os.path.join(host.CACHE, "root-trixie")
CONTAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "container.py")
IDS = [digit * 64 for digit in "abcd"]
with open("/proc/sys/kernel/random/boot_id") as file:
    BOOT_ID = file.read().strip()


@pytest.fixture(scope="module", autouse=True)
def user_namespaces():
    """Not available in a chroot, for example."""
    if subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("nobody may make a user namespace here")


def start(start_workload, python, container_id, *args, within=(), environment=()):
    workload = start_workload(python, *args, prefix=[
        "env", *environment, sys.executable, CONTAINER, container_id, python.root, host.WORKLOADS, "--", *within])
    workload.hello = workload.read()
    workload.host_pid = child_of(child_of(workload.pid))
    workload.pidns = os.stat(f"/proc/{workload.host_pid}/ns/pid").st_ino
    assert workload.hello["pid"] == 1
    return workload


@pytest.fixture(scope="module")
def pythons():
    return [host.Python("/usr/bin/python3.13", ROOT), host.Python("/usr/bin/python3.13-shared", ROOT)]


def play(agent, workloads):
    for workload in workloads:
        agent.wait_rows(GC, lambda r: r["host_pid"] == workload.host_pid, timeout=20)
    for workload in workloads:
        workload.say()
        workload.truth = workload.read()
        workload.process.stdin.close()


def check_all(agent, workloads):
    for workload, container_id in zip(workloads, IDS):
        check(agent, workload, workload.host_pid, "usdt")
        for table in GC, HANDOFF, "ebpf_gil_wait", "ebpf_probe_health":
            ids = {r["container_id"] for r in agent.select(table, lambda r: r["host_pid"] == workload.host_pid)}
            assert ids == {container_id}, (table, ids)
        # and the attributes of a span from inside the container
        for table in GC, HANDOFF, "ebpf_gil_wait":
            ids = {(r["boot_id"], r["pidns"]) for r in agent.select(table, lambda r: r["host_pid"] == workload.host_pid)}
            assert ids == {(BOOT_ID, workload.pidns)}, (table, ids)
    assert len({workload.pidns for workload in workloads}) == len(workloads)


def trackers(start_agent):
    return start_agent("--gc_pause.stack_min_us=0", "--gil_wait.min_duration_us=1000",
                       trackers=["gc_pause", "handoff", "gil_wait"])


def test_containers_of_one_image_stay_apart(pythons, start_agent, start_workload):
    """All are pid 1, and run the same files through separate overlays."""
    agent = trackers(start_agent)
    workloads = [start(start_workload, python, container_id, "every_python.py", COLLECTIONS, HANDOFFS, WAITS)
                 for python, container_id in zip(pythons + pythons, IDS)]
    play(agent, workloads)
    agent.stop()
    check_all(agent, workloads)
    # each collection reached the agent once, though the code is probed for several containers
    counts = [r for r in agent.rows["ebpf_agent"] if r["tracker"] == "gc_pause"]
    assert sum(r["seen"] for r in counts) == sum(r["rows"] + r["filtered"] for r in counts)


def kubelet(*files):
    """Runs the agent with the given files of a kubelet in place."""
    return ["unshare", "--mount", "sh", "-ec", "mount -t tmpfs none /var/log; mkdir /var/log/containers; cd /var/log/containers;"
            + " ".join(["touch --", *map(shlex.quote, files)]) + "; exec \"$@\"", "sh"]


def test_names_instead_of_ids(pythons, start_agent, start_workload):
    """service, namespace, pod and container of every row: of containers known to the kubelet, with and without a name in
    the environment, of an unknown container, and of a process in no container."""
    names = [("shop-7d9f", "prod", "web"), ("queue-0", "prod", "worker")]
    files = [f"{pod}_{namespace}_{container}-{container_id}.log" for (pod, namespace, container), container_id in zip(names, IDS)]
    agent = start_agent("--gc_pause.stack_min_us=0", trackers=["gc_pause"], prefix=kubelet(*files, "x_y_z-1.log", "\033[2J_a_b-" + IDS[2] + ".log"))
    services = [["OTEL_SERVICE_NAME=shop \033[2Jüber"], [], ["OTEL_RESOURCE_ATTRIBUTES=a=b,service.name=third"]]
    workloads = [start(start_workload, pythons[0], container_id, "every_python.py", COLLECTIONS, HANDOFFS, WAITS, environment=service)
                 for container_id, service in zip(IDS, services)]
    outside = start_workload(host.Python("/usr/bin/python3"), "every_python.py", COLLECTIONS, HANDOFFS, WAITS)
    outside.hello, outside.host_pid = outside.read(), outside.pid
    expected = [("shop ?[2Jüber", *names[0]), ("worker", *names[1]), ("third", "", "", "")]
    with open("/proc/self/cgroup") as f:
        units = [part.removesuffix(".service") for part in f.read().replace("\n", "/").split("/") if part.endswith(".service")]
    expected.append((*[u for u in units if not u.startswith("user@")], "python3")[:1] + ("", "", ""))
    # the first rows may precede the read of the environment: they have the name of the program
    for workload, (service, *_) in zip([*workloads, outside], expected):
        agent.wait_rows(GC, lambda r: r["host_pid"] == workload.host_pid and r["service"] == service, timeout=20)
    since = time.time_ns() // 1000
    play(agent, [*workloads, outside])
    agent.stop()
    for workload, (service, pod, namespace, container) in zip([*workloads, outside], expected):
        got = {(r["service"], r["namespace"], r["pod"], r["container"]) for r in agent.select(GC, lambda r: r["host_pid"] == workload.host_pid and r["start_time"] > since)}
        assert got == {(service, namespace, pod, container)}


def test_17_containers_of_one_image_share_its_probes(pythons, start_agent, start_workload):
    """A single file below 17 overlays: each probe set twice would cost twice everywhere. One container has a copy of
    the file, made by chmod."""
    python, n = pythons[0], 17
    copied = [python.path, "-c", "import os, sys; os.chmod(sys.argv[1], 0o700); os.execv(sys.argv[1], sys.argv[1:])"]
    ids = [f"{i:064x}" for i in range(n + 1)]

    def start_some(some):
        return [start(start_workload, python, i, "gc_truth.py", 1, 20, 1, within=copied * (i == ids[n // 2])) for i in some]

    workloads = start_some(ids[:n // 2 + 1])
    agent = trackers(start_agent)
    workloads += start_some(ids[n // 2 + 1:])
    for workload in workloads:
        agent.wait_rows(GC, lambda r: r["host_pid"] == workload.host_pid, timeout=20)
    for workload in workloads:
        workload.say()
        workload.truth = workload.read()
        workload.process.stdin.close()
    agent.stop()
    for workload, container_id in zip(workloads, ids):
        truth = workload.truth
        match(rows_of(agent, {"pid": workload.host_pid}, truth["begin"], truth["end"]), truth["collections"])
        assert {r["container_id"] for r in agent.rows[GC] if r["host_pid"] == workload.host_pid} == {container_id}
        last = agent.select("ebpf_probe_health", lambda r: r["host_pid"] == workload.host_pid and r["tracker"] == "python")[-1]
        assert last["live"] and last["python_version"] == "%d.%d.%d" % python.version, last
    probed = [line for line in agent.log if "gc_pause: /usr/bin/python3.13: " in line and "probes, found by usdt" in line]
    assert len(probed) == 2, agent.stderr


def test_programs_that_an_upgrade_has_deleted(pythons, start_agent, start_workload):
    workloads = [start(start_workload, python, container_id, "every_python.py", COLLECTIONS, HANDOFFS, WAITS)
                 for python, container_id in zip(pythons, IDS)]
    for workload in workloads:
        image = workload.python.image[len(ROOT):]
        os.unlink(f"/proc/{workload.host_pid}/root{image}")
        with open(f"/proc/{workload.host_pid}/maps") as f:
            assert f"{image} (deleted)" in f.read()
    agent = trackers(start_agent)
    play(agent, workloads)
    agent.stop()
    check_all(agent, workloads)


@pytest.mark.alone
def test_a_file_system_that_does_not_answer_holds_nobody_up(start_agent, start_workload, debian_python, tmp_path):
    """A program maps a libpython from a file system in a program, which no longer answers."""
    library = tmp_path / "libpython3.13.so.1.0"
    subprocess.run(["sh", "-c", f'echo "int nothing;" | $(command -v clang-19 || echo cc) -shared -x c - -o {library}'],
                   check=True)
    trap = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(CONTAINER), "fuse.py"), str(library), library.name,
                             "env", "LD_PRELOAD={}", "sleep", "60"], stdout=subprocess.PIPE, text=True)
    try:
        pid = int(trap.stdout.readline())
        maps = f"/proc/{pid}/maps"
        host.wait_until(lambda: library.name in open(maps).read(), 10, "the library is mapped")
        trap.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        agent = start_agent(trackers=["gc_pause"])
        workload = start_workload(debian_python, "gc_truth.py", 1, 20, 1).wait_covered(agent)
        workload.kill()
        # the file hangs every reader
        reader = subprocess.Popen(["cat", f"/proc/{pid}/root{mapped_path(maps, library.name)}"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        assert reader.poll() is None
        agent.stop()
        os.kill(pid, signal.SIGKILL)
    finally:
        trap.kill()  # the file system ends, and with the end all waiting readers
        trap.wait()
    reader.wait(10)


def mapped_path(maps, name):
    with open(maps) as f:
        return next(line.split(maxsplit=5)[5].strip() for line in f if name in line)
