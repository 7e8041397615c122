# SPDX-License-Identifier: Apache-2.0
"""Processes come, change and go: covered early, with the right ids, and without residue in the agent."""
import os
import subprocess
import time

import pytest

import host
from agent import SANITIZER
from conftest import GUNICORNS, PYTHONS
from servers import Gunicorn, get
from test_gc_pause import check_after_a_second, check_rows, copy_python, match, rows_of

GC = "ebpf_gc_pause"
SHORT_LIVED = 200
IN_PID_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
COLLECT_ONCE = "import gc; gc.collect(); gc.disable()"


def held_by(pid):
    """Resources of the agent: descriptors, BPF maps, links and programs, memory."""
    kinds = {"fds": 0, "maps": 0, "links": 0, "programs": 0}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        kinds["fds"] += 1
        for kind, name in ("maps", "bpf-map"), ("links", "bpf_link"), ("links", "bpf-link"), ("programs", "bpf-prog"):
            kinds[kind] += f"anon_inode:{name}" == target
    return kinds, int(host.status_field(pid, "VmRSS")[0])


def collect_in_new_process(python):
    process = subprocess.Popen([python.path, "-c", COLLECT_ONCE], stdin=subprocess.DEVNULL)
    assert process.wait(20) == 0
    return process.pid


def test_200_short_lived_processes_are_all_rows_and_leave_nothing(start_agent, start_workload):
    # only processes started here: unrelated Pythons, new to the agent, would add resources
    agent = start_agent(f"--pid={os.getpid()}", trackers=["gc_pause", "handoff"])
    pythons = [PYTHONS[0], PYTHONS[-1]]
    for python in pythons:  # so that the agent knows both binaries
        start_workload(python, "gc_truth.py", 1, 1, 1).wait_covered(agent)

    def run(n):
        pids = [collect_in_new_process(pythons[i % 2]) for i in range(n)]
        for pid in pids:
            agent.wait_rows(GC, lambda r: r["host_pid"] == pid and r["generation"] == 2)
        time.sleep(0.5)  # the end of the last process is handled, too

    run(50)
    held, rss = held_by(agent.pid)
    run(SHORT_LIVED - 50)
    host.wait_until(lambda: held_by(agent.pid)[0] == held, 5, f"{held} again, not {held_by(agent.pid)[0]}")
    rss_after = held_by(agent.pid)[1]
    # a sanitizer keeps freed memory, to find uses; the allocator's granularity: one arena's top pad of 128 KiB a thread, and stdio's buffers
    assert SANITIZER or rss_after - rss <= 512, f"{rss} kB became {rss_after} kB"
    agent.stop()


def test_gunicorn_workers_are_covered_from_their_first_second(start_agent, debian_python, tmp_path, cleanup):
    """After each kill, the new worker collects at once on request, and the collection is a row."""
    agent = start_agent(trackers=["gc_pause"])
    gunicorn = Gunicorn(debian_python, GUNICORNS[-1], str(tmp_path))
    cleanup.append(gunicorn)
    seen = []
    for n in range(1, 7):
        gunicorn.wait_log("Booting worker", n)
        pid = gunicorn.worker_pids[-1]
        body, _ = get(gunicorn.address, "/gc")
        assert body["pid"] == pid
        seen.append(pid)
        if n < 6:
            os.kill(pid, 9)
    for pid in seen[1:]:
        agent.wait_rows(GC, lambda r: r["host_pid"] == pid and r["generation"] == 2)
    gunicorn.stop()
    agent.stop()


def test_binaries_never_seen_are_covered_within_their_first_second(start_agent, start_workload, tmp_path):
    """Pythons of copied files start after the agent; every collection after the first second is a row."""
    agent = start_agent(trackers=["gc_pause"])
    workloads = []
    for python in PYTHONS:
        copy, env = copy_python(python, tmp_path / python.name)
        workloads.append(start_workload(copy, "gc_exec.py", "collect", env=env))
    for workload in workloads:
        workload.truth = workload.read()
    for workload in workloads:
        workload.finish()
    agent.stop()
    host.check_each(workloads, lambda workload: check_after_a_second(agent, workload))


def test_started_before_the_agent(start_agent, start_on_all):
    workloads = start_on_all("gc_truth.py", 3, 300, 1)
    agent = start_agent(trackers=["gc_pause"])
    host.run_together(agent, workloads)
    agent.stop()
    host.check_each(workloads, lambda workload: check_rows(agent, workload))


def test_only_the_given_pids_are_watched(debian_python, start_agent, start_workload):
    wanted, other = (start_workload(debian_python, "gc_truth.py", 2, 50, i) for i in range(2))
    agent = start_agent(f"--pid={wanted.pid}", trackers=["gc_pause"])
    wanted.wait_covered(agent)
    other.read()
    for workload in wanted, other:
        workload.say()
        workload.truth = workload.read()
        workload.finish()
    agent.stop()
    check_rows(agent, wanted)
    assert {r["host_pid"] for r in agent.rows[GC]} == {wanted.pid}


def test_what_a_given_process_starts_is_watched_too(start_agent, start_on_all):
    """This process starts Pythons with different files."""
    agent = start_agent(f"--pid={os.getpid()}", trackers=["gc_pause"])
    workloads = start_on_all("gc_truth.py", 1, 20, 1)
    host.run_together(agent, workloads)
    agent.stop()
    host.check_each(workloads, lambda workload: check_rows(agent, workload))


def python_child_of(pid):
    """The host's pid of the only child of a process made by unshare."""
    return host.wait_until(lambda: host.children_of(pid), 5, f"{pid} has a child")[0]


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=str)
def test_ids_of_a_pid_namespace_and_of_the_host(python, start_agent, start_workload):
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(python, "gc_truth.py", 3, 300, 1,
                              prefix=IN_PID_NAMESPACE)
    hello = workload.hello = workload.read()
    host_pid = python_child_of(workload.pid)
    nspid = host.status_field(host_pid, "NSpid")
    assert int(nspid[-1]) == hello["pid"] == 1 and int(nspid[-2 if len(nspid) > 1 else -1]) == host_pid
    agent.wait_rows(GC, lambda r: r["host_pid"] == host_pid)
    host_tids = {}
    workload.say()
    truth = workload.read()
    for tid in host.threads_of(host_pid):  # the remaining thread: the main thread
        host_tids[int(host.status_field(f"{host_pid}/task/{tid}", "NSpid")[-1])] = tid
    workload.process.stdin.close()
    workload.process.wait(10)
    agent.stop()
    rows = rows_of(agent, {"pid": host_pid}, truth["begin"], truth["end"])
    match(rows, truth["collections"])  # tid is compared there: the namespace's
    assert {(r["pid"], r["host_pid"]) for r in rows} == {(1, host_pid)}
    assert len({r["tid"] for r in rows}) == 3 and {r["tid"] for r in rows} & {2, 3}
    by_tid = {r["tid"]: r["host_tid"] for r in rows}
    assert by_tid[1] == host_tids[1] == host_pid
    assert len(set(by_tid.values())) == 3 and all(t != h for t, h in by_tid.items())


def test_handoff_in_a_pid_namespace(debian_python, start_agent, tmp_path, cleanup):
    agent = start_agent(trackers=["handoff"])
    gunicorn = Gunicorn(debian_python, GUNICORNS[-1], str(tmp_path), prefix=IN_PID_NAMESPACE)
    cleanup.append(gunicorn)
    (host_worker,) = host.children_of(python_child_of(gunicorn.pid))

    replies = {}

    def covered():  # a row comes some time after the request
        reply, port = get(gunicorn.address)
        replies[port] = reply
        return [(replies[r["peer_port"]], r) for r in agent.select("ebpf_handoff", lambda r: r["host_pid"] == host_worker)]
    reply, row = host.wait_until(covered, 10, "a hand-off row")[0]
    assert reply["pid"] == gunicorn.worker_pids[0] != host_worker
    assert (row["pid"], row["tid"], row["main_tid"]) == (reply["pid"], reply["tid"], reply["pid"])
    namespaced = host.status_field(f"{host_worker}/task/{row['host_tid']}", "NSpid")[-1]
    assert int(namespaced) == row["tid"]
    gunicorn.kill()
    agent.stop()


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]], ids=str)
def test_files_of_another_mount_namespace(python, tmp_path, start_agent, start_workload):
    """The interpreter lies on a tmpfs that exists only in a private mount namespace."""
    copy, env = copy_python(python, tmp_path)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = 'mount -t tmpfs tmpfs "$0" && cp -a "$1" "$2" "$0" && rm -rf "$1" "$2" && shift 2 && exec "$@"'
    agent = start_agent(trackers=["gc_pause"])
    copy.path = str(hidden / "bin" / os.path.basename(copy.path))
    env["LD_LIBRARY_PATH"] = str(hidden / "lib")
    workload = start_workload(copy, "gc_truth.py", 2, 200, 1, env=env,
                              prefix=["unshare", "--mount", "sh", "-c", script, str(hidden),
                                      str(tmp_path / "bin"), str(tmp_path / "lib")])
    host.run_together(agent, [workload])
    assert not os.path.exists(copy.path), "the file is visible here: the test tests nothing"
    agent.stop()
    check_rows(agent, workload)


def test_processes_that_vanish_while_being_looked_at(start_agent):
    """Half-started, gone at once, not readable, not Python: none is an error or a warning."""
    agent = start_agent(trackers=["gc_pause", "handoff"])
    commands = [[PYTHONS[0].path, "-S", "-c", "import os; os._exit(0)"], [PYTHONS[-1].path, "--version"], ["true"],
                [PYTHONS[0].path, "-S", "-c", "import os; os.fork(); os.fork(); os.kill(os.getpid(), 9)"]]
    running, starts = [], host.Starts()
    for i in range(200):
        starts.note()
        running.append(subprocess.Popen(commands[i % len(commands)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL))
        if i % 3 == 0:
            running[-1].kill()
        if len(running) > 8:
            running.pop(0).wait()
        time.sleep(0.01)
    for process in running:
        process.wait()
    starts.note()
    agent.stop()
    complaints = [line for line in agent.log if "warning" in line or "error" in line]
    if starts.most_per_second() > 200:  # of the whole host: a build beside this test
        complaints = [line for line in complaints if "more than 200 programs start per second" not in line]
    assert complaints == []


def test_python_of_another_user_that_is_not_dumpable(debian_python, start_agent, start_workload):
    """/proc/PID belongs to root then; the agent has the required capabilities."""
    agent = start_agent(trackers=["gc_pause"])
    workload = start_workload(debian_python, "gc_truth.py", 2, 100, 1, env={"BECOME_USER": "65534"})
    workload.wait_covered(agent)
    assert os.stat(f"/proc/{workload.pid}/environ").st_uid == 0 != os.stat(f"/proc/{workload.pid}").st_uid
    workload.say()
    workload.truth = workload.read()
    workload.finish()
    agent.stop()
    check_rows(agent, workload)
