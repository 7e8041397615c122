# SPDX-License-Identifier: Apache-2.0
"""Runs in the machine: one agent with all trackers, and for each tracker a workload that keeps its own truth. Says
"RESULT tracker ok|FAIL words" a line for each. An emulated CPU is slow and uneven: counts and identities must be
exact, moments must lie between the truth's own stamps."""
import array
import collections
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback

import host
from agent import Agent, run_underspan
from servers import Gunicorn, get
from veth import DroppingPair

STAMP_NS = 1_000_000  # the clocks' offset is read to a few us natively, under emulation to some 100
PYTHON = host.Python(os.path.realpath("/usr/bin/python3"))
ENA = ["--ena.driver=veth", "--ena.counters=pps_allowance_exceeded=rx_queue_0_xdp_drops"]


def say(*words):
    print(*words, flush=True)


# ---- one check a tracker: takes the running agent, returns a few words, raises when rows are wrong ----


def check_process(agent):
    """Children are tracked from their fork on, whatever they run."""
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
        longest = max(r["handoff_ns"] for r in rows.values()) / 1e6
        assert longest > 400, "the last two of eight waited three times 0.2 s"
        return f"8 of 8 pickups, the longest wait {longest:.0f} ms"
    finally:
        server.stop()


def ask_driver(interface):
    """What `ethtool -S` does: {name: value}."""
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
    """What the agent said of the BPF side."""
    [row] = agent.select("ebpf_probe_health", lambda r: r["tracker"] == "ena" and
                         (r["method"] == "fexit" or "_get_ethtool_stats" in r["reason"]))
    return row


def check_ena(agent):
    # 5.10 counts BPF memory against this limit; the agent, which is running already, has lifted its own
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
            assert not theirs
            return f"150 frames by ioctl; fexit: {fexit['reason']}"
        assert len(theirs) == 1, theirs
        assert theirs[0]["asked_by"] == "python3", theirs
        assert theirs[0]["pps_allowance_exceeded_total"] == asked["rx_queue_0_xdp_drops"] == 150
        return "150 frames by ioctl; fexit saw another program's reading"
    finally:
        pair.kill()


def check_ena_module():
    """The real driver is loaded, no such device is there: the program attaches to it."""
    agent = Agent("--duration=3", trackers=["ena"]).wait_ready()
    agent.wait_end(20)
    assert agent.select("ebpf_probe_health", lambda r: "no interface of driver ena" in r["reason"])
    fexit = fexit_health(agent)
    return "fexit on the ena module" if fexit["live"] else f"ioctl only; fexit: {fexit['reason']}"


# ---- the run ----


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
    for tracker in {tracker for tracker, _ in total}:
        assert not any(total[tracker, lost] for lost in ("lost_ring", "lost_state", "bad_event")), total
        assert total[tracker, "seen"] == total[tracker, "filtered"] + total[tracker, "rows"], total
        assert total[tracker, "rows"] == len(agent.rows["ebpf_" + tracker]), total
    return f"exit 0, nothing lost, {sum(n for (_, column), n in total.items() if column == 'rows')} rows"


def main():
    say("# kernel", os.uname().release)
    begin = time.monotonic()
    try:
        agent = Agent(*ENA).wait_ready(60)
    except AssertionError as e:
        say("RESULT agent FAIL", " ".join(str(e).split())[-300:])
        explain_refusal("handoff")
        return
    say("RESULT agent ok", f"ready after {time.monotonic() - begin:.1f} s")
    refused = {line.split(": ")[2] if line.startswith("underspan: error: ") else "": line for line in agent.log
               if "does not run" in line}
    for name, check in sorted(globals().items()):
        tracker = name[len("check_"):]
        if not name.startswith("check_") or tracker in ("end", "ena_module"):
            continue
        if tracker in refused:
            say("RESULT", tracker, "FAIL", refused[tracker])
            explain_refusal(tracker)
        elif len(sys.argv) < 2 or tracker in sys.argv[1:]:
            report(tracker, check, agent)
    report("end", check_end, agent)
    report("ena_module", check_ena_module)
    if any(l.startswith("underspan: error") or l.startswith("underspan: warning") for l in agent.log):
        say(*(f"# {line}\n" for line in agent.log[-20:]))
    say("DONE")


main()
