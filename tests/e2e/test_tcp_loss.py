# SPDX-License-Identifier: Apache-2.0
"""Deliberate losses on a wire become rows: by kind equal to the kernel's counters of the namespace, in time
equal to the observations of wire and programs, with the thread that used the socket."""
import functools
import random
import socket
import subprocess
import threading
import time

import pytest

import counts
from host import DEBIAN_PYTHON, monotonic_ns, wait_until
from wire import ACK, ADDRESSES, Peer, RST, SYN, Wire

TABLE = "ebpf_tcp_loss"
MS = 1_000_000
NEAR = 10 * MS  # how near an interval's ends are to the truth
FAMILIES = [pytest.param(socket.AF_INET, id="ipv4"), pytest.param(socket.AF_INET6, id="ipv6")]

# The kernel's counters in terms of rows: (kinds, column)
SUMS = {
    "TcpRetransSegs": (("retransmit", "rto", "loss_recovery", "tlp", "syn_retransmit", "synack_retransmit"), "segments"),
    "TcpExtTCPFastRetrans": (("retransmit",), "segments"),
    "TcpExtTCPSlowStartRetrans": (("loss_recovery",), "segments"),
    "TcpExtTCPTimeouts": (("rto", "syn_retransmit"), "timeouts"),
    "TcpExtTCPLossProbes": (("tlp",), "probes"),
    "TcpExtTCPSynRetrans": (("syn_retransmit", "synack_retransmit"), "segments"),
    "TcpExtTCPWinProbe": (("zero_window_received",), "probes"),
    "TcpExtTCPToZeroWindowAdv": (("zero_window_sent",), "stalls"),
    "TcpOutRsts": (("rst_sent",), "segments"),
}


class Scene:
    """A wire, a program at each end, and an agent; connections between the programs."""

    def __init__(self, start_agent, cleanup, family, options=(), settings=None):
        self.family = family
        self.wire = Wire(**(settings or {}))
        cleanup.append(self.wire)
        self.peers = []
        for side in 0, 1:
            self.peers.append(Peer(DEBIAN_PYTHON, self.wire, side))
            cleanup.append(self.peers[side])
        self.a, self.b = self.peers
        self.before = None
        self.options = list(options)
        self._start_agent = start_agent
        self.agent = None

    def watch(self):
        self.agent = self._start_agent(*self.options, trackers=["tcp_loss"])
        self.before = [self.wire.counters(side) for side in (0, 1)]

    def listen(self, *args):
        self.port = self.b.do("main", "listen", "l", self.family, ADDRESSES[self.family][1], *args)["result"]

    def connect(self, name="c", thread="main", *args):
        """a's program connects to b's, which accepts in thread `main`; returns a's answer."""
        accepting = self.b.start("main", "accept", name, "l")
        answer = self.a.do(thread, "connect", name, self.family, ADDRESSES[self.family][1], self.port, *args)
        self.b.answer(accepting)
        return answer

    def finish(self):
        """Stops the agent; the rows are complete then."""
        for peer in self.peers:
            peer.kill()
        self.after = [self.wire.counters(side) for side in (0, 1)]
        time.sleep(1.5)  # sums wait for the tick of a second
        self.agent.stop()

    def rows(self, side, kind=None):
        netns = self.wire.inode(side)
        return sorted(self.agent.select(TABLE, lambda r: r["netns"] == netns and kind in (None, r["kind"])),
                      key=lambda r: r["start_time"])

    def check_sums(self, skip=()):
        """Rows by kind against the counters' deltas; returns the deltas, both sides' added up."""
        deltas, wrong = {}, []
        for side in 0, 1:
            for counter, (kinds, column) in SUMS.items():
                if counter in skip:
                    continue
                delta = self.after[side][counter] - self.before[side][counter]
                rows = [r for r in self.rows(side) if r["kind"] in kinds]
                found = sum(r[column] for r in rows)
                if found != delta:
                    wrong.append((side, counter, delta, [(r["kind"], r[column]) for r in rows]))
                deltas[counter] = deltas.get(counter, 0) + delta
        assert not wrong, wrong
        return deltas


def again(test):
    """Some hosts run no BPF program of any process while a process of the platform is current. A soft interrupt at
    such a time goes unseen, about 1 % on a busy machine: a failing test gets a second and a third attempt."""
    @functools.wraps(test)
    def run(*args, **kwargs):
        for i in range(2):
            try:
                return test(*args, **kwargs)
            except (AssertionError, IndexError, ValueError) as e:  # wrong rows, or none
                print(f"the {i + 1}. time: {e}")
        test(*args, **kwargs)
    return run


def assert_near(row, begin, end, *answers):
    """The programs that stamp begin or end may have waited for a processor: tolerance."""
    near = NEAR + sum(answer["delay"] for answer in answers)
    start_time, end_time = monotonic_ns(row["start_time"]), monotonic_ns(row["end_time"])
    assert abs(start_time - begin) < near, f"starts {(start_time - begin) / MS:.2f} ms off"
    assert abs(end_time - end) < near, f"ends {(end_time - end) / MS:.2f} ms off"
    assert abs(row["duration_ns"] - (end - begin)) < near


def assert_owner(row, answer):
    assert (row["pid"], row["tid"], row["host_pid"], row["host_tid"]) == (
        answer["pid"], answer["tid"], answer["pid"], answer["tid"])
    assert row["owner"] == "user"


@pytest.fixture
def scene(start_agent, cleanup):
    def make(family=socket.AF_INET, options=(), **settings):
        return Scene(start_agent, cleanup, family, options, settings)
    return make


@pytest.fixture
def noise(cleanup):
    """Unrelated, always busy programs on both processors: soft interrupts run on top of these."""
    for _ in range(2):
        process = subprocess.Popen([DEBIAN_PYTHON, "-c", "import os\nos.nice(5)\nwhile 1: pass"])
        cleanup.append(process)


def lose_copies(wire, copies):
    """The next new data from a is lost so many times; returns where the packets end up."""
    seen = []

    def drop(packet):
        if packet.side or not packet.length or len(seen) == copies:
            return False
        seen.append(packet)
        return True
    wire.drop = drop
    return seen


def wait_ack(wire, lost):
    """The first ACK that covers the lost bytes."""
    end = lost.seq + lost.length & 0xffffffff
    return wait_until(lambda: next((p for p in wire.packets if p.side == 1 and p.ack == end), None), 5, "an ACK")


@pytest.mark.parametrize("family", FAMILIES)
@again
def test_rto_stall(scene, noise, family):
    s = scene(family, tcp_early_retrans=0)
    s.listen()
    s.watch()
    s.connect()
    truths = []
    for copies in 1, 2, 3:
        s.a.do("worker", "send", "c", 100)  # makes the worker the last user of the socket
        s.b.do("main", "recv", "c", 100)
        lost = lose_copies(s.wire, copies)
        sent = s.a.do("worker", "send", "c", 1000)
        received = s.b.do("main", "recv", "c", 1000)
        assert len(lost) == copies
        ack = wait_ack(s.wire, lost[-1])
        truths.append((sent, ack.time, copies))
        assert received["end"] - sent["begin"] > 200 * MS
    s.finish()
    assert s.check_sums()["TcpExtTCPTimeouts"] == 6
    rows = s.rows(0)
    assert [r["kind"] for r in rows] == ["rto"] * 3
    for row, (sent, end, copies) in zip(rows, truths):
        assert_near(row, sent["begin"], end, sent)
        assert_owner(row, sent)
        assert (row["segments"], row["timeouts"], row["ended_by"]) == (copies, copies, "progress")
        assert row["family"] == ("ipv4" if family == socket.AF_INET else "ipv6")
        assert row["remote_port"] == s.port and row["tcp_state"] == "ESTABLISHED"
        assert row["local_ip"].endswith(ADDRESSES[family][0]) and row["remote_ip"].endswith(ADDRESSES[family][1])


@pytest.mark.parametrize("family", FAMILIES)
@again
def test_tail_loss_probe(scene, family):
    s = scene(family)
    s.listen()
    s.watch()
    s.connect()
    s.a.do("main", "send", "c", 1000)
    s.b.do("main", "recv", "c", 1000)
    truths = []
    for _ in range(5):
        lost = lose_copies(s.wire, 1)
        sent = s.a.do("main", "send", "c", 1000)
        s.b.do("main", "recv", "c", 1000)
        ack = wait_ack(s.wire, lost[-1])
        truths.append((sent, ack.time))
        # a probe is only sent after the success of the previous probe, known from the next ACK
        s.a.do("main", "send", "c", 1000)
        s.b.do("main", "recv", "c", 1000)
    s.finish()
    rows = s.rows(0)
    assert [(r["kind"], r["segments"], r["probes"]) for r in rows] == [("tlp", 1, 1)] * 5
    for row, (sent, end) in zip(rows, truths):
        assert_near(row, sent["begin"], end, sent)
        assert_owner(row, sent)
    assert s.check_sums()["TcpExtTCPLossProbes"] == 5


@pytest.mark.parametrize("family", FAMILIES)
@again
def test_syn(scene, family):
    """Lost SYNs, a lost SYN-ACK, and no listener at all."""
    s = scene(family)
    s.listen()
    s.watch()

    def lose(count, flags):
        lost = []
        s.wire.drop = lambda p: p.flags & (SYN | ACK) == flags and len(lost) < count and not lost.append(p)
    lose(2, SYN)
    first = s.connect("c", "worker")
    lose(1, SYN | ACK)
    second = s.connect("d", "worker")
    s.wire.drop = lambda packet: packet.side == 0
    third = s.a.do("other", "connect", "e", family, ADDRESSES[family][1], s.port, 1)
    assert third["result"] == -110
    s.wire.drop = lambda packet: False
    s.finish()
    rows = s.rows(0)
    assert ",".join(r["kind"] for r in rows) == "syn_retransmit,syn_retransmit,syn_retransmit"
    for row, answer in zip(rows, (first, second, third)):
        assert_near(row, answer["begin"], answer["end"], answer)
        assert_owner(row, answer)
    assert [r["ended_by"] for r in rows] == ["progress", "progress", "timeout"]
    assert sum(r["segments"] for r in s.rows(1, "synack_retransmit")) >= 1
    # a timer of SYN-ACKs counts as a timeout too, and shows nowhere: left to the kernel's counter
    deltas = s.check_sums(skip=["TcpExtTCPTimeouts"])
    assert deltas["TcpExtTCPSynRetrans"] >= 6
    assert s.after[0]["TcpExtTCPTimeouts"] - s.before[0]["TcpExtTCPTimeouts"] == sum(r["timeouts"] for r in rows)


def closed_windows(wire, side):
    """[(begin, end)] of the times in which the side advertised no window, by the packets."""
    found, begin = [], None
    for packet in wire.packets:
        if packet.side != side or packet.flags & (SYN | RST):
            continue
        if not packet.window:
            begin = begin or packet.time
        elif begin:
            found.append((begin, packet.time))
            begin = None
    return found


@pytest.mark.parametrize("family", FAMILIES)
@again
def test_zero_window(scene, noise, family):
    s = scene(family)
    s.listen(16384)
    s.watch()
    s.connect()
    s.a.do("sender", "send", "c", 1)
    s.b.do("reader", "recv", "c", 1)  # the accepting thread is no longer the last user
    truths = []
    for pause in 0.3, 1.3, 0.7:
        sending = s.a.start("sender", "send", "c", 1 << 18)
        time.sleep(pause)
        received = s.b.do("reader", "recv", "c", 1 << 18)
        truths.append((pause, received, s.a.answer(sending)))
        time.sleep(0.2)  # so that the next stall is a new row
    s.finish()
    deltas = s.check_sums()
    opened = s.after[1]["TcpExtTCPFromZeroWindowAdv"] - s.before[1]["TcpExtTCPFromZeroWindowAdv"]
    assert sum(r["stalls"] for r in s.rows(1, "zero_window_sent") if r["ended_by"] == "progress") == opened
    assert deltas["TcpExtTCPToZeroWindowAdv"] >= 3
    closed = closed_windows(s.wire, 1)
    for side, kind, user in (1, "zero_window_sent", 1), (0, "zero_window_received", 2):
        for truth in truths:
            pause, received = truth[:2]
            # the long stall, without reads; reads may have closed the window again a few times
            begin, end = next(c for c in closed if abs(c[1] - received["begin"]) < NEAR + received["delay"])
            assert end - begin > pause * 1e9 / 3
            near = [(monotonic_ns(r["start_time"]) - begin, r) for r in s.rows(side, kind)]
            row = next((r for offset, r in near if abs(offset) < NEAR), None)
            assert row, f"{kind} begins {[offset / MS for offset, _ in near]} ms off"
            assert_owner(row, truth[user])
            row_end = monotonic_ns(row["end_time"])
            assert row_end > end - NEAR
            mine = sum(e - b for b, e in closed if b >= begin - NEAR and b < row_end)
            assert abs(row["stalled_ns"] - mine) < NEAR
            if row["stalls"] == 1:
                assert_near(row, begin, end)


@again
def test_resets(scene):
    s = scene()
    s.listen()
    s.watch()
    for i in range(7):
        s.connect(f"c{i}", "worker")
        waiting = s.b.start("reader", "error", f"c{i}")
        aborted = s.a.do("worker", "abort", f"c{i}")
        broken = s.b.answer(waiting)
        assert broken["result"] == 104
    s.b.do("main", "close", "l")
    for i in range(11):
        refused = s.a.do("worker", "connect", f"d{i}", s.family, ADDRESSES[s.family][1], s.port)
        assert refused["result"] == -111
    s.finish()
    assert s.check_sums()["TcpOutRsts"] == 18
    sent = s.rows(0, "rst_sent")
    assert [r["segments"] for r in sent] == [1] * 7
    for row in sent:
        assert_owner(row, aborted)
        assert row["duration_ns"] == 0
    nobody = s.rows(1, "rst_sent")
    assert sum(r["segments"] for r in nobody) == 11
    assert {(r["pid"], r["owner"], r["local_port"]) for r in nobody} == {(0, "", s.port)}
    received = s.rows(0, "rst_received") + s.rows(1, "rst_received")
    assert len(received) == 18
    for row in s.rows(0, "rst_received"):
        assert_owner(row, refused)
    for row in s.rows(1, "rst_received"):
        assert_owner(row, broken) if row["tid"] else None


@pytest.mark.parametrize("family", FAMILIES)
@again
def test_lossy_transfer(scene, noise, family):
    """Random loss in both directions and blackouts: the sums are right for any reaction of the kernel."""
    s = scene(family)
    s.listen()
    s.wire.delay = 0.005
    s.watch()
    s.connect()
    chance = random.Random(family)
    s.wire.drop = lambda packet: chance.random() < (0.07 if packet.length else 0.03)
    draining = s.b.start("main", "drain", "c")
    pouring = s.a.start("worker", "pour", "c", 8)
    for _ in range(3):
        time.sleep(1.7)
        usual, s.wire.drop = s.wire.drop, lambda packet: True
        time.sleep(0.6)
        s.wire.drop = usual
    s.wire.drop = lambda packet: False
    poured = s.a.answer(pouring)
    s.a.do("worker", "shutdown", "c")
    assert s.b.answer(draining)["result"] == poured["result"]
    s.finish()
    deltas = s.check_sums()
    assert deltas["TcpExtTCPTimeouts"] >= 3 and deltas["TcpExtTCPFastRetrans"] >= 11
    for row in s.rows(0):
        assert_owner(row, poured)
    assert len(s.rows(0)) < 150  # of some hundred segments


@again
def test_owner_of_old_sockets(scene):
    """Connected before the agent started: the process is known at once, the thread after the next use of the
    socket. In the middle of a send the thread may be unknown: rather no thread than a wrong thread."""
    s = scene()
    s.listen(16384)
    s.connect("idle")
    s.connect("stuck")
    sending = s.a.start("sender", "send", "stuck", 1 << 18)
    time.sleep(0.5)
    s.watch()
    watched = time.monotonic_ns()
    time.sleep(2)
    # a stall under way is seen at the next probe: the longer the stall, the later
    wait_until(lambda: sum(p.side == 0 and p.time > watched for p in s.wire.packets) >= 2, 25, "two probes")
    received = s.b.do("reader", "recv", "stuck", 1 << 18)
    sent = s.a.answer(sending)
    s.b.do("main", "abort", "idle")
    time.sleep(0.3)  # everything is acknowledged: the next bytes start the socket's timer
    lost = lose_copies(s.wire, 1)
    s.a.do("sender", "send", "stuck", 1)
    s.b.do("reader", "recv", "stuck", 1)
    assert len(lost) == 1
    s.finish()
    [reset] = s.rows(0, "rst_received")
    assert (reset["host_pid"], reset["pid"], reset["tid"], reset["owner"]) == (s.a.pid, s.a.pid, 0, "file")
    stall = s.rows(0, "zero_window_received")[0]
    assert stall["host_pid"] == s.a.pid
    assert (stall["tid"], stall["owner"]) in ((0, "file"), (sent["tid"], "user"))
    [again] = [r for r in s.rows(0) if r["kind"] in ("tlp", "rto")]
    assert_owner(again, sent)
    row = s.rows(1, "zero_window_sent")[0]
    assert_owner(row, received)
    assert row["ended_by"] == "progress" and row["stalled_ns"] > 1900 * MS


@again
def test_only_chosen(scene):
    """--pid: rows of the chosen process only, though each process loses packets."""
    s = scene()
    s.options = [f"--pid={s.b.pid}"]
    s.listen()
    s.watch()
    s.connect()
    for peer, side, other in (s.a, 0, s.b), (s.b, 1, s.a):
        s.wire.drop = (lambda lost: lambda p: p.side == side and p.length and not lost and not lost.append(p))([])
        peer.do("main", "send", "c", 1000)
        other.do("main", "recv", "c", 1000)
    s.finish()
    assert s.rows(0) == []
    assert [(r["kind"], r["host_pid"]) for r in s.rows(1)] == [("tlp", s.b.pid)]
    assert sum(r["filtered"] for r in s.agent.rows["ebpf_agent"] if r["tracker"] == "tcp_loss") >= 1


@again
def test_without_congestion_states(scene):
    """Before 6.0: the end of a stall is noticed later, and known to the jiffy."""
    s = scene(options=["--degrade=tcp_cong_state_set"])
    s.listen()
    s.watch()
    s.connect()
    s.a.do("main", "send", "c", 1000)
    s.b.do("main", "recv", "c", 1000)
    lost = lose_copies(s.wire, 3)
    sent = s.a.do("main", "send", "c", 1000)
    s.b.do("main", "recv", "c", 1000)
    ack = wait_ack(s.wire, lost[-1])
    time.sleep(0.3)
    s.a.do("main", "send", "c", 1000)
    s.b.do("main", "recv", "c", 1000)
    s.finish()
    s.check_sums()
    assert_near(s.rows(0, "rto")[0], sent["begin"], ack.time, sent)


@again
def test_missing_tracepoints(scene):
    """A missing tracepoint is skipped, logged, and affects nothing beyond."""
    missing = ["tcp_retransmit_synack", "tcp_receive_reset", "tcp_send_reset", "tcp_rcv_space_adjust", "timer_start",
               "timer_expire_exit"]
    s = scene(options=["--degrade=" + ",".join(missing)], tcp_early_retrans=0)
    s.listen()
    s.watch()
    for name in missing:
        assert [line for line in s.agent.log if f"no tracepoint {name}" in line]
    s.connect()
    lose_copies(s.wire, 2)
    s.a.do("main", "send", "c", 1000)
    s.b.do("main", "recv", "c", 1000)
    s.a.do("main", "abort", "c")
    s.finish()
    assert [(r["kind"], r["segments"]) for r in s.rows(0) + s.rows(1)] == [("rto", 2)]
    said = [r["reason"] for r in s.agent.rows["ebpf_probe_health"] if r["tracker"] == "tcp_loss" and not r["live"] and not r["host_pid"]]
    assert sorted(said) == sorted(f"this kernel has no tracepoint {name}" for name in missing)


@pytest.mark.alone
@pytest.mark.parametrize("option", ["max_intervals=2", "max_sockets=3"])
@again
def test_what_finds_no_room_is_counted(scene, option):
    """Five connections stall at once: retransmitted segments in rows + lost = the kernel's count."""
    s = scene(options=[f"--tcp_loss.{option}"], tcp_early_retrans=0)
    s.listen()
    s.watch()
    names = [f"c{i}" for i in range(5)]
    for name in names:
        s.connect(name, name)
    s.wire.drop = lambda packet: packet.side == 0 and packet.length
    for name in names:
        s.a.do(name, "send", name, 1000)
    time.sleep(1)
    s.wire.drop = lambda packet: False
    for name in names:
        s.b.do("main", "recv", name, 1000)
    s.finish()
    found = counts.check(s.agent)["tcp_loss"]
    delta = s.after[0]["TcpRetransSegs"] - s.before[0]["TcpRetransSegs"]
    rows = s.rows(0)
    # unrelated programs of this host may have taken all the room for sockets
    assert {r["kind"] for r in rows} <= {"rto", "loss_recovery"} and len(rows) < 5
    assert delta - sum(r["segments"] for r in rows) >= 3
    # concurrent losses of the host are counted too
    assert sum(r["segments"] for r in rows) + found["lost_state"] == delta
