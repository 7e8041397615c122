# SPDX-License-Identifier: Apache-2.0
"""One check a tracker: takes the running agent, returns a few words, raises when rows are wrong. An emulated CPU is slow
and uneven: counts and identities must be exact, moments must lie between the truth's own stamps. Checks that start agents
of their own are in checks_alone.py."""
import array
import errno
import fcntl
import http.client
import json
import os
import resource
import socket
import struct
import subprocess
import threading
import time

import host
from cgroups import QuotaCgroup
from servers import Gunicorn, Server, get
from veth import DroppingPair

STAMP_NS = 1_000_000  # the clocks' offset is read to a few us natively, under emulation to some 100
PYTHON = host.Python(os.path.realpath("/usr/bin/python3"))
ENA = ["--ena.driver=veth", "--ena.counters=pps_allowance_exceeded=rx_queue_0_xdp_drops"]


def check_process(agent):
    """Children are tracked from the fork on, whatever the program."""
    code = ("import os, sys, time; pids = [os.fork() for _ in range(3)]; 0 in pids and (time.sleep(2), os._exit(0));"
            "print(*pids, flush=True); time.sleep(2)")
    parent = subprocess.Popen([PYTHON.path, "-c", code], stdout=subprocess.PIPE, text=True)
    pids = {parent.pid, *map(int, parent.stdout.readline().split())}
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] in pids and r["tracker"] == "gc_pause" and r["live"],
                    n=len(pids))
    parent.wait()
    return f"{len(pids)} processes covered"


def check_gc_pause(agent):
    workload = host.Workload(PYTHON, "gc_truth.py", 3, 300, 1)
    workload.wait_covered(agent, 30)
    workload.say()
    truth = workload.read()
    hello = workload.hello
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        mine = [r for r in agent.select("ebpf_gc_pause", lambda r: r["host_pid"] == hello["pid"])
                if truth["begin"] - STAMP_NS <= host.monotonic_ns(r["start_time"]) <= truth["end"] + STAMP_NS
                and truth["begin"] <= host.monotonic_ns(r["end_time"])]
        if len(mine) >= len(truth["collections"]):
            break
        time.sleep(0.2)
    workload.say()
    workload.finish()
    mine.sort(key=lambda r: r["start_time"])
    records = truth["collections"]
    assert len(mine) == len(records), f"{len(mine)} rows for {len(records)} collections"
    for row, record in zip(mine, records):
        for column in ("tid", "generation", "collected", "uncollectable"):
            assert row[column] == record[column], (column, row, record)
        assert host.monotonic_ns(row["start_time"]) < record["stop"] + STAMP_NS, (row, record)
        assert host.monotonic_ns(row["end_time"]) > record["start"] - STAMP_NS, (row, record)
    frozen = sum(r["frozen_threads"] for r in mine)
    return f"{len(mine)} collections, found by {mine[0]['method']}, {frozen} frozen threads"


def compare_worker_stack(row, noted):
    """Whole, or absent; single places may be unread."""
    wanted = [f"{function} ({file}:{line})" for function, file, line in noted]
    stack = row["py_stack"]
    assert not stack or len(stack) == len(wanted), (stack, wanted)
    assert all(s in (w, "<unread>") for s, w in zip(stack, wanted)), (stack, wanted)


def check_handoff(agent):
    generation = host.find_gunicorns()[0]
    server = Gunicorn(PYTHON, generation, "/tmp", threads=2)
    try:
        server.wait_covered(agent)
        covered = len(server.truth())
        clients = [threading.Thread(target=get, args=(server.address, "/sleep/0.2")) for _ in range(8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        # a pickup is written down after the answer
        host.wait_until(lambda: len(server.truth()) == covered + 8, 10, "the truth is complete")
        truth = server.truth()[covered:]
        ports = {t["peer_port"] for t in truth}
        assert len(truth) == 8
        agent.wait_rows("ebpf_handoff", lambda r: r["peer_port"] in ports, 8, 15)
        rows = {r["peer_port"]: r for r in agent.select("ebpf_handoff", lambda r: r["peer_port"] in ports)}
        for t in truth:
            row = rows[t["peer_port"]]
            assert (row["host_pid"], row["host_tid"], row["main_tid"]) == (t["pid"], t["tid"], t["main_tid"]), (row, t)
            start, end = host.monotonic_ns(row["start_time"]), host.monotonic_ns(row["end_time"])
            assert t["accept"][0] - STAMP_NS <= start <= t["accept"][1] + STAMP_NS, (row, t)
            assert t["touch"][0] - STAMP_NS <= end <= t["touch"][1] + STAMP_NS, (row, t)
            compare_worker_stack(row, t["stack"])
        longest = max(r["handoff_ns"] for r in rows.values()) / 1e6
        assert longest > 200, "eight requests of 0.2 s have two threads, however slowly an emulated CPU sends them"
        stacks = sum(bool(r["py_stack"]) for r in rows.values())
        assert stacks >= 4, f"{stacks} stacks of 8 pickups by two threads"
        return f"8 of 8 pickups, the longest wait {longest:.0f} ms, {stacks} with the worker's stack"
    finally:
        server.stop()


def check_gil_wait(agent):
    """Four threads that compute share one GIL: at each moment one runs and three wait."""
    workload = host.Workload(PYTHON, "gil_contention.py", "cpu4", 3)
    workload.wait_covered(agent, 30)
    time.sleep(1.5)
    workload.say()
    truth = workload.read()
    workload.finish()
    agent.wait_quiet("ebpf_gil_wait")  # rows wait for names and stacks, and for an emulated reader
    rows = agent.select("ebpf_gil_wait", lambda r: r["host_pid"] == workload.pid and r["tid"] in truth["tids"])
    assert rows, "no rows"
    wall = truth["end"] - truth["begin"]
    share = sum(r["duration_ns"] for r in rows) / wall
    # beside the waits there is time in which a thread was awake and no CPU was free, or a wait under a millisecond
    assert 1.5 < share < 3.05, f"{share:.2f} threads waited on average"
    strangers = [r for r in rows if r["holder_tid"] not in {*truth["tids"], workload.pid, 0}]
    assert not strangers, strangers[0]
    known = sum(r["holder_tid"] != 0 for r in rows)
    assert known > len(rows) * 0.9, f"the holder is known in {known} of {len(rows)}"
    return f"{len(rows)} waits, {share:.2f} of 3 threads waiting, holder known in {known}, method {rows[0]['method']}"


def check_off_cpu(agent):
    """Beside other work an emulated CPU stops for longer than a wait is to take, and then there is none: the kernel's count of switches
    tells."""
    code = """if True:
        import os, resource, sys, time
        def waits(call):
            n, begin = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, time.monotonic()
            call()
            return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > n and time.monotonic() > begin + 0.005
        sys.stdin.readline()
        print(sum(waits(lambda: time.sleep(0.03)) for _ in range(20)))
        r, w = os.pipe()
        for _ in range(7):
            writer = os.fork()
            if writer == 0:
                time.sleep(0.04)
                os.write(w, b"x")
                os._exit(0)
            if waits(lambda: os.read(r, 1)):
                print(writer)
            os.wait()"""
    child = subprocess.Popen([PYTHON.path, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == child.pid and r["tracker"] == "off_cpu", timeout=20)
    sleeps, *writers = list(map(int, child.communicate("go\n", timeout=60)[0].split()))
    assert sleeps >= 15 and len(writers) >= 3, (sleeps, writers)
    agent.wait_rows("ebpf_off_cpu", lambda r: r["host_pid"] == child.pid and
                    (r["cause"] == "sleep" or r["cause"] == "pipe" and r["waker_pid"] in writers), sleeps + len(writers))
    rows = agent.select("ebpf_off_cpu", lambda r: r["host_pid"] == child.pid)
    slept = [r for r in rows if r["cause"] == "sleep"]
    piped = [r for r in rows if r["cause"] == "pipe" and r["waker_pid"] in writers]
    causes = sorted({r["cause"] for r in rows})
    assert len(slept) == sleeps, f"{len(slept)} of {sleeps} sleeps; causes {causes}"
    # the timer is armed before the thread leaves the CPU, which at times takes an emulated CPU ten milliseconds
    slept_ns = sorted(r["duration_ns"] for r in slept)
    assert slept_ns[0] > 5_000_000 and slept_ns[3] > 25_000_000, slept_ns
    assert sorted(r["waker_pid"] for r in piped) == sorted(writers), [r for r in rows if r["cause"] == "pipe"]
    assert all(r["syscall"] == "clock_nanosleep" for r in slept), slept[0]
    assert all(r["kernel_stack"] for r in rows), "a row has no kernel stack"
    return f"{sleeps} sleeps, {len(writers)} waits for a pipe with their waker, of {len(rows)} rows"


def check_loop_stall(agent):
    """The first stalls show that the loop's thread is watched; then each blocking call is a row with cause and place."""
    workload = host.Workload(PYTHON, "loop_truth.py", "asyncio", 2, 0.25)
    workload.wait_covered(agent, 30)
    agent.wait_rows("ebpf_loop_stall", lambda r: r["host_pid"] == workload.pid and r["sleep_ns"] is not None, timeout=30)
    workload.say()
    stalls = workload.read()["stalls"]
    workload.say("end")
    workload.finish()
    agent.wait_rows("ebpf_loop_stall", lambda r: host.monotonic_ns(r["end_time"]) >= stalls[-1]["stop"] - STAMP_NS
                    and r["host_pid"] == workload.pid, timeout=20)
    parts = ("cpu", "runq", "gil", "lock", "net", "disk", "sleep", "other")
    # an emulated CPU is at times later than the awaited event: the event had come before
    asleep_ns = lambda s: s["stop"] - s["start"] - s["cpu"] - s["delay"]  # noqa: E731
    waited = [s for s in stalls if (s["cpu"] if s["kind"] == "cpu" else asleep_ns(s)) > 120_000_000]
    assert len(waited) > len(stalls) / 2, stalls
    worst = told = 0
    for stall in waited:
        own = [r for r in agent.select("ebpf_loop_stall", lambda r: r["host_pid"] == workload.pid)
               if host.monotonic_ns(r["start_time"]) - STAMP_NS <= stall["start"]
               and stall["stop"] <= host.monotonic_ns(r["end_time"]) + STAMP_NS]
        assert len(own) == 1, (stall, own)
        row = own[0]
        assert sum(row[f"{part}_ns"] for part in parts) == row["duration_ns"], row
        asleep = asleep_ns(stall)
        if (stall["cpu"] if stall["kind"] == "cpu" else asleep) > row["duration_ns"] / 2:  # otherwise the start of the turn took most
            told += 1
            assert max(parts, key=lambda part: row[f"{part}_ns"]) == stall["kind"], (stall, row)
        name, file, line = stall["place"]
        assert row["py_stack"], row
        at = host.monotonic_ns(row["start_time"]) + row["stack_at_ns"]
        # on a CPU the place is a sample, which may be of the code around the call
        if stall["kind"] != "cpu" or stall["start"] + STAMP_NS <= at <= stall["stop"] - STAMP_NS:
            assert row["py_stack"][0] in (f"{name} ({file}:{line})", "<unread>"), (row["py_stack"][:3], at - stall["start"], stall["stop"] - at, stall, row)
        if stall["kind"] != "cpu":
            # the GIL after the wait, and a wait for a CPU, are parts of the row, and asleep for schedstat
            found, off = row[f"{stall['kind']}_ns"], asleep + stall["delay"]
            worst = max(worst, abs(off - min(max(off, found), row["duration_ns"] - row["cpu_ns"])))
    assert told and worst < 25_000_000, f"{told} of {len(waited)} stalls; {worst} ns"
    return f"{len(waited)} stalls with their place, {told} with their cause; times asleep right to {worst / 1e6:.1f} ms"


def check_on_cpu(agent):
    """An emulated CPU: samples are counted against the clock of the thread's CPU time, places against the code."""
    code = ("import os, sys, time; print(os.getpid(), flush=True); sys.stdin.readline()\ndef grind(s):\n until = time.thread_time() + s\n"
            " while time.thread_time() < until: pass\ngrind(3); time.sleep(1); print(time.thread_time(), flush=True); sys.stdin.readline()")
    process = subprocess.Popen([PYTHON.path, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == pid and r["tracker"] == "gc_pause" and r["live"], timeout=30)
    process.stdin.write("go\n")
    process.stdin.flush()
    used_ns = float(process.stdout.readline()) * 1e9
    agent.wait_rows("ebpf_on_cpu", lambda r: r["host_pid"] == pid and r["py_stack"][:1] == ["grind (<string>:4)"], n=30, timeout=30)
    process.communicate("end\n")
    rows = agent.select("ebpf_on_cpu", lambda r: r["host_pid"] == pid)
    sampled = sum(r["duration_ns"] for r in rows)
    assert 0.6 * 3e9 <= sampled <= 1.2 * used_ns, (sampled, used_ns)
    return f"{len(rows)} samples, {sampled / 1e9:.1f} of {used_ns / 1e9:.1f} s of CPU time"


def connected_pair(backlog=16):
    listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    client = socket.create_connection(listener.getsockname())
    return listener, client


def check_tcp_accept(agent):
    truth = {}
    for seconds in (0.02, 0.05, 0.1) * 2:
        listener, client = connected_pair()
        connected = time.monotonic_ns()
        time.sleep(seconds)
        accepting = time.monotonic_ns()
        peer, _ = listener.accept()
        truth[client.getsockname()[1]] = connected, accepting, time.monotonic_ns()
        for s in (peer, client, listener):
            s.close()
    rows = agent.wait_rows("ebpf_tcp_accept", lambda r: r["host_pid"] == os.getpid() and r["remote_port"] in truth, 6)
    assert len(rows) == 6
    for row in rows:
        connected, accepting, accepted = truth[row["remote_port"]]
        assert host.monotonic_ns(row["start_time"]) <= connected + STAMP_NS, row
        assert accepting - STAMP_NS <= host.monotonic_ns(row["end_time"]) <= accepted + STAMP_NS, row
        assert row["queue_max"] == 16 and row["kind"] == "accepted", row
    return f"6 of 6 waits in the queue, {check_drops(agent)} drops of a full one"


def check_drops(agent):
    """A queue of one without accept(): an iterator reads the listener's drops."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    clients = [socket.socket() for _ in range(4)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
    rows = agent.wait_rows("ebpf_tcp_accept", lambda r: r["kind"] == "dropped" and r["local_port"] == listener.getsockname()[1], 1)
    for s in (*clients, listener):
        s.close()
    return len(rows)


def check_tcp_connect(agent):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    closed = socket.create_server(("127.0.0.1", 0))
    refusing = closed.getsockname()
    closed.close()
    ports = {listener.getsockname()[1]: ("success", 0, 10), refusing[1]: ("refused", errno.ECONNREFUSED, 5)}
    for _ in range(10):
        socket.create_connection(listener.getsockname()).close()
    for _ in range(5):
        try:
            socket.create_connection(refusing)
        except ConnectionRefusedError:
            pass
    agent.wait_rows("ebpf_tcp_connect", lambda r: r["host_pid"] == os.getpid() and r["remote_port"] in ports, 15)
    for port, (outcome, number, n) in ports.items():
        rows = agent.select("ebpf_tcp_connect", lambda r: r["host_pid"] == os.getpid() and r["remote_port"] == port)
        got = [(r["outcome"], r["errno"], r["tid"]) for r in rows]
        assert got == [(outcome, number, threading.get_native_id())] * n, got
    return "10 connected, 5 refused"


def tcp_counter(name):
    with open("/proc/net/snmp") as f:
        names, values = [line.split() for line in f if line.startswith("Tcp:")]
    return int(values[names.index(name)])


def check_tcp_loss(agent):
    """A receiver that drops everything for a second, then a receiver that does not read: stalls with a known
    length."""
    drop_all = struct.pack("HBBI", 6, 0, 0, 0)
    code = array.array("B", drop_all)
    listener, client = connected_pair()
    peer, _ = listener.accept()
    before = tcp_counter("RetransSegs")
    peer.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", 1, code.buffer_info()[0]))  # SO_ATTACH_FILTER
    client.send(b"lost")
    time.sleep(1)
    peer.setsockopt(socket.SOL_SOCKET, 27, 0)  # SO_DETACH_FILTER
    assert peer.recv(100) == b"lost"
    port = client.getsockname()[1]
    client.setblocking(False)
    sent = 0
    begin = time.monotonic()
    while time.monotonic() - begin < 1.5:
        try:
            sent += client.send(bytes(65536))
        except BlockingIOError:
            time.sleep(0.05)
    peer.settimeout(1)
    received = 0
    while received < sent:
        received += len(peer.recv(1 << 20))
    time.sleep(1)
    lost = tcp_counter("RetransSegs") - before
    for s in (client, peer, listener):
        s.close()
    kinds = ("retransmit", "rto", "loss_recovery", "tlp", "syn_retransmit", "synack_retransmit")
    mine = lambda r: r["netns"] == os.stat("/proc/self/ns/net").st_ino and r["local_port"] == port  # noqa: E731
    windows = agent.wait_rows("ebpf_tcp_loss", lambda r: mine(r) and r["kind"] == "zero_window_received", timeout=15)
    stalled = sum(r["stalled_ns"] for r in windows)  # one row, if the emulated CPU is fast enough
    rows = agent.select("ebpf_tcp_loss", mine)
    counted = sum(r["segments"] for r in rows if r["kind"] in kinds)
    assert lost > 0 and counted == lost, f"{lost} segments sent again, {counted} in the rows"
    assert any(r["kind"] == "rto" for r in rows), sorted({r["kind"] for r in rows})
    assert all(w["host_pid"] == os.getpid() for w in windows) and 0.5e9 < stalled < 3e9, windows
    return f"{lost} segments sent again, of {sorted({r['kind'] for r in rows})}; window closed for {stalled / 1e6:.0f} ms"


def ask_driver(interface):
    """As `ethtool -S`: {name: value}."""
    def ioctl(command):
        buffer = array.array("B", command)
        request = struct.pack("16sP", interface.encode(), buffer.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, 0x8946, request)  # SIOCETHTOOL
        return buffer.tobytes()

    n = struct.unpack("IIQI", ioctl(struct.pack("IIQI", 0x37, 0, 1 << 1, 0)))[3]
    names = ioctl(struct.pack("III", 0x1b, 1, n) + bytes(32 * n))[12:]
    values = struct.unpack(f"{n}Q", ioctl(struct.pack("II", 0x1d, n) + bytes(8 * n))[8:])
    return {names[32 * i:32 * i + 32].split(b"\0")[0].decode(): values[i] for i in range(n)}


def fexit_health(agent):
    """The agent's report about the BPF side."""
    [row] = agent.select("ebpf_probe_health", lambda r: r["tracker"] == "ena" and
                         (r["method"] == "fexit" or "_get_ethtool_stats" in r["reason"]))
    return row


def fexit_must_work():
    """5.10 of Debian has no type information of modules; arm64 can call programs from functions since 6.4 (2aa6ac03516d)."""
    first = (6, 4) if os.uname().machine == "aarch64" else (6, 1)
    return tuple(map(int, os.uname().release.split(".")[:2])) >= first


def check_ena(agent):
    # 5.10 counts BPF memory against this limit; the running agent has lifted the limit for itself
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    pair = DroppingPair("us")
    try:
        rows = agent.wait_rows("ebpf_ena", lambda r: r["interface"] == "usb")
        assert rows[0]["pps_allowance_exceeded"] is None
        for _ in range(3):
            pair.send(50)
            time.sleep(1.1)
        agent.wait_rows("ebpf_ena", lambda r: r["interface"] == "usb" and r["pps_allowance_exceeded_total"] == 150)
        asked = ask_driver("usb")
        time.sleep(1.5)
        rows = agent.select("ebpf_ena", lambda r: r["interface"] == "usb")
        deltas = sum(r["pps_allowance_exceeded"] or 0 for r in rows)
        assert deltas == 150, f"150 frames, {deltas} in the deltas"
        fexit = fexit_health(agent)
        theirs = [r for r in rows if r["source"] == "fexit"]
        if not fexit["live"]:
            assert not theirs and not fexit_must_work(), fexit["reason"]
            return f"150 frames by ioctl; fexit: {fexit['reason']}"
        assert len(theirs) == 1, theirs
        assert theirs[0]["asked_by"] == "python3", theirs
        assert theirs[0]["pps_allowance_exceeded_total"] == asked["rx_queue_0_xdp_drops"] == 150
        return "150 frames by ioctl; fexit saw another program's reading"
    finally:
        pair.kill()


def check_cpu_throttle(agent):
    """A fifth of a CPU: the denied time is cpu.stat's number, however slow the emulated CPU."""
    cgroup = QuotaCgroup(20_000, 100_000)
    code = "import time; end = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(flush=True); input()"
    child = subprocess.Popen([PYTHON.path, "-c", code], preexec_fn=cgroup.enter, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    child.stdout.readline()
    time.sleep(0.5)  # the end of the last period
    after = cgroup.stat()  # during the life: throttling of the exit may be counted afterwards
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        rows = agent.select("ebpf_cpu_throttle", lambda r: r["host_pid"] == child.pid)
        if sum(r["throttled_periods"] for r in rows) >= after["nr_throttled"]:
            break
        time.sleep(0.2)
    child.communicate(b"\n")
    cgroup.kill()
    assert after["nr_throttled"] > 3, after
    periods, ns = sum(r["throttled_periods"] for r in rows), sum(r["throttled_ns"] for r in rows)
    assert periods == after["nr_throttled"], f"{periods} in the rows, {after}"
    assert abs(ns - after["throttled_ns"]) <= 1000, f"{ns} in the rows, {after}"
    assert {(r["cgroup"], r["quota_us"]) for r in rows} == {(cgroup.name, 20_000)}
    return f"{periods} periods, {ns / 1e6:.0f} ms, in {len(rows)} windows"


def check_request(agent):
    """Each request of a server of threads is a row or in a row's weight; a long request has the right
    parts."""
    server = Server([PYTHON.path, os.path.join(host.WORKLOADS, "request_app.py")])
    port = int(server.wait_log(r"127\.0\.0\.1:(\d+)", timeout=60)[0].group(1))
    agent.wait_rows("ebpf_probe_health", lambda r: r["host_pid"] == server.pid and r["tracker"] == "gc_pause", timeout=30)
    truths = []
    try:
        for path in ["/sleep-1", "/sleep-60", "/cpu-60", "/sleep-200/cpu-30"]:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            for _ in range(2):
                connection.request("GET", path)
                truths.append({"path": path, **json.loads(connection.getresponse().read())})
            connection.close()
        n = sum(t["path"] != "/sleep-1" for t in truths)
        rows = agent.wait_rows("ebpf_request", lambda r: r["host_pid"] == server.pid and r["path"] != "/sleep-1", n=n)
    finally:
        server.kill()
    assert len(rows) == n, f"{len(rows)} rows of {n} requests"
    for row, truth in zip(sorted(rows, key=lambda r: r["end_time"]), [t for t in truths if t["path"] != "/sleep-1"]):
        parts = sum(v or 0 for c, v in row.items() if c.endswith("_ns") and c not in ("duration_ns", "net_peer_ns", "body_wait_ns"))
        assert parts == row["duration_ns"], row
        assert row["path"] == truth["path"] and row["status"] == 200 and row["tid"] == truth["tid"], (row, truth)
        why = {c: v for c, v in row.items() if c.endswith("_ns") and v}, row["path"], row["not_measured"], truth
        # a sleep ends at a set time: after a late begin, the sleep is shorter than requested, and the rest is not asleep
        assert bool(row["sleep_ns"]) == ("sleep" in row["path"]) and row["sleep_ns"] <= truth["asleep"] + 1_000_000, why
        assert row["sleep_ns"] + row["runq_ns"] + row["cpu_ns"] + (row["gil_ns"] or 0) >= truth["asleep"] - 1_000_000, why
        # the agent's work at a switch is the thread's CPU time for the kernel, and large on an emulated CPU
        computed = row["cpu_ns"] + (row["gc_own_ns"] or 0) + row["runq_ns"] + (row["gil_ns"] or 0)
        assert computed >= truth["cpu"] * 0.95 - 2_000_000, why
    lacks = sorted({lack for row in rows for lack in row["not_measured"]})
    return f"{n} requests, their parts add up; not measured: {' '.join(lacks) or 'nothing'}"
