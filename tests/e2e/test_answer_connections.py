# SPDX-License-Identifier: Apache-2.0
"""What `explain` says of a request whose time went into a handshake, lost packets, a closed window or a DNS server. A wire between
two namespaces drops chosen packets, and its records are the truth; real servers, agent and store."""
import concurrent.futures
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest

from agent import Agent, NO_ENGINE, plain_build
from answers import Answers
from host import DEBIAN_PYTHON, WORKLOADS, wait_until
from netns import Netns, tcp_counters
from store_fixture import Store
from test_request import TRACKERS
from wire import ACK, ADDRESSES, SYN, Wire, in_namespace

pytestmark = plain_build(NO_ENGINE)
HERE, THERE = ADDRESSES[socket.AF_INET]
PORTS = {"gthread": 8080, "uvicorn": 8081}
MS = 1_000_000


class Scene:
    """Two services in namespace a; their clients and the server that they ask in namespace b."""

    def __init__(self, directory, cleanup, monkeypatch):
        self.wire = Wire()
        cleanup.append(self.wire)
        # `ip netns exec` shows it as /etc/resolv.conf
        self.etc = pathlib.Path("/etc/netns", self.wire.names[0])
        self.etc.mkdir(parents=True)
        cleanup.append(self)
        (self.etc / "resolv.conf").write_text(f"nameserver {THERE}\noptions timeout:1 attempts:1\n")
        self.listener = in_namespace(self.wire.names[1], lambda: socket.create_server((THERE, 0), backlog=100))
        self.deaf = in_namespace(self.wire.names[1], self._deaf)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        store = Store(directory / "db")
        cleanup.append(store)
        self.ask = Answers(store)
        self.ask.apply()
        monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
        self.servers = {
            "gthread": self._start(cleanup, DEBIAN_PYTHON, "-m", "gunicorn", "-k", "gthread", "--threads", "2", "-b", f"{HERE}:{PORTS['gthread']}", "connections_app:app"),
            "uvicorn": self._start(cleanup, DEBIAN_PYTHON, "-m", "uvicorn", "--loop", "uvloop", "--host", HERE, "--port", str(PORTS["uvicorn"]), "connections_app:asgi")}
        for port in PORTS.values():
            wait_until(lambda: in_namespace(self.wire.names[1], lambda: self._listens(port)), 20, f"a server at {port}")
        pids = ",".join(str(server.pid) for server in self.servers.values())
        self.agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={pids}", stdout=False,
                           trackers=[*TRACKERS, "off_cpu", "tcp_connect", "tcp_loss"])
        cleanup.append(self.agent)
        self.agent.wait_ready()
        time.sleep(1)

    def kill(self):
        shutil.rmtree(self.etc)

    @staticmethod
    def _deaf():
        asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asked.bind((THERE, 53))
        return asked

    @staticmethod
    def _listens(port):
        with socket.socket() as probe:
            return probe.connect_ex((HERE, port)) == 0

    def _start(self, cleanup, *argv):
        server = subprocess.Popen(["ip", "netns", "exec", self.wire.names[0], *argv], cwd=WORKLOADS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cleanup.append(server)
        return server

    def _serve(self):
        """A line back for a line."""
        def answer(connection):
            with connection:
                while data := connection.recv(1000):
                    connection.sendall(data)
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def get(self, server, path, read=lambda answer: answer.read()):
        """(ms until the whole answer, its body), of a client in namespace b"""
        def run():
            begun = time.monotonic()
            connection = http.client.HTTPConnection(HERE, PORTS[server], timeout=60)
            connection.request("GET", path)
            body = read(connection.getresponse())
            connection.close()
            return (time.monotonic() - begun) * 1000, body
        return in_namespace(self.wire.names[1], run)

    def dropping(self, fits, n=1):
        """The next n packets that fit are lost."""
        left = [n]

        def drop(packet):
            if left[0] and fits(packet):
                left[0] -= 1
                return True
            return False
        self.wire.dropped.clear()
        self.wire.drop = drop

    def late_ms(self, again):
        """From the first lost packet until one that fits passed."""
        first = self.wire.dropped[0].time
        return min(p.time - first for p in self.wire.packets if p.time > first and again(p)) / MS

    def explain(self):
        """{(server's port, path): its row of explain --json}"""
        rows = self.ask.store.ask("SELECT toString(request_id) AS id FROM ebpf_request FORMAT JSONEachRow").splitlines()
        found = {}
        for row in rows:
            done = self.ask.command("explain", "--json", json.loads(row)["id"])
            assert done.returncode == 0, done.stderr
            [request] = json.loads(done.stdout)["requests"]
            found[request["server_port"], request["path"].partition("/")[2]] = request
        return found


def read_late(answer):
    """Nothing is read for 0.7 s: the windows fill up."""
    time.sleep(0.7)
    return answer.read()


def cause(row, name):
    found = [c for c in row["causes"] if c["cause"] == name]
    assert len(found) == 1, row["causes"]
    return found[0]


def ms_before(said, words):
    """Of "; 1005.2 ms: it connected to ...": 1005.2"""
    return float(said.partition(" ms: " + words)[0].rpartition(" ")[2])


def test_the_network_is_named(tmp_path, cleanup, monkeypatch):
    scene = Scene(tmp_path, cleanup, monkeypatch)
    upstream, truth, took = scene.port, {}, {}

    def first_of_handshake(packet):
        return packet.side == 0 and packet.target == upstream and packet.flags & (SYN | ACK) == SYN

    def line(packet):
        return packet.side == 0 and packet.target == upstream and packet.length > 0

    def of_answer(packet):
        return packet.side == 0 and packet.source == PORTS["gthread"] and packet.length > 0

    for server, path in ("gthread", f"connect/{upstream}"), ("uvicorn", f"await/{upstream}"):
        scene.dropping(first_of_handshake)
        took[path] = scene.get(server, "/" + path)[0]
        truth[path] = scene.late_ms(first_of_handshake)
        assert truth[path] > 900, truth
    scene.dropping(line, 3)  # also the probe
    took["echo"] = scene.get("gthread", f"/echo/{upstream}")[0]
    truth["echo"] = scene.late_ms(line)
    took["dns"] = scene.get("gthread", "/dns")[0]
    took["name"] = scene.get("uvicorn", "/name")[0]
    took["big"] = scene.get("gthread", "/big", read_late)[0]
    time.sleep(1.5)
    scene.agent.stop()
    said = scene.explain()
    port = PORTS["gthread"]

    row = said[port, f"connect/{upstream}"]
    net = cause(row, "net")
    assert abs(ms_before(net["said"], f"it connected to {THERE} port {upstream}, its first packet sent 1 time more") - truth[f"connect/{upstream}"]) < 20, (net, truth)
    assert "accept queue was full, or a firewall or the network dropped packets" in net["fix"], net
    [connect] = row["connections"]
    assert (connect["kind"], connect["outcome"], connect["repeated"]) == ("connect", "success", 1), connect

    row = said[PORTS["uvicorn"], f"await/{upstream}"]
    waited = cause(row, "await")
    assert abs(ms_before(waited["said"], f"it connected to {THERE} port {upstream}") - truth[f"await/{upstream}"]) < 20, (waited, truth)
    assert "accept queue was full" in waited["fix"], waited

    row = said[port, f"echo/{upstream}"]
    net = cause(row, "net")
    assert abs(ms_before(net["said"], f"on the connection to {THERE} port {upstream} packets were lost") - truth["echo"]) < 30, (net, truth)
    assert "the network or that host drops packets" in net["fix"], net

    net = cause(said[port, "dns"], "net")
    assert f"ms of it for {THERE} port 53, in getaddrinfo" in net["said"] and "connected" not in net["said"] and "lost" not in net["said"], net
    assert "a DNS server answered late or never" in net["fix"] and 1000 < net["ms"] < took["dns"] + 5, (net, took)
    # asked by a thread of libuv's, known to work for the request or as one that woke the loop
    [waited] = said[PORTS["uvicorn"], "name"]["causes"]
    ms = re.search(r"longest for: net \(([0-9.]+) ms in 1 thread\)", waited["said"])
    assert waited["cause"] == ("await" if ms else "net") and 1000 < float(ms[1] if ms else waited["ms"]) < took["name"] + 5, (waited, took)
    assert "a DNS server answered late or never" in waited["fix"], waited

    slow = cause(said[port, "big"], "client_slow")
    assert 500 < ms_before(slow["said"], "the client's receive window was closed: it did not read") < 800, slow
    assert "a proxy in front" in slow["fix"] and "the client is " not in slow["said"], slow  # this agent does not watch the client
    for (_, path), row in said.items():
        print(path, took.get(path.partition("/")[0]), [(c["cause"], c["said"], c["fix"]) for c in row["causes"]])


# ---- made rows ----

UPSTREAM = {"remote_ip": "::ffff:10.0.0.5", "remote_port": 5432, "local_port": 40000}
CLIENT = {"remote_ip": "::ffff:10.0.0.9", "remote_port": 50000, "local_port": 8000}
POOL, DROPPED, LOST = "keep connections open (a pool)", "accept queue was full", "the network or that host drops packets"
# rows (table, begin, ms, columns) in a request's wait from 100 to 1100 ms; what is said after the place; the remedy
ROWS = {
    "a far server": ([("tcp_connect", 200, 600, {**UPSTREAM, "outcome": "success"})], "; 600.0 ms: it connected to 10.0.0.5 port 5432", POOL),
    "many handshakes": ([("tcp_connect", 200 + 200 * i, 100 + 20 * i, {**UPSTREAM, "outcome": "success"}) for i in range(4)],
                        "; 520.0 ms: it connected 4 times, longest (160.0 ms) to 10.0.0.5 port 5432", POOL),
    "timed out": ([("tcp_connect", 150, 900, {**UPSTREAM, "outcome": "timeout", "total_retrans": 0})], "; 900.0 ms: it connected to 10.0.0.5 port 5432, timeout", DROPPED),
    "refused": ([("tcp_connect", 150, 700, {**UPSTREAM, "outcome": "refused", "total_retrans": 1})],
                "; 700.0 ms: it connected to 10.0.0.5 port 5432, refused, its first packet sent 1 time more", DROPPED),
    "given up": ([("tcp_connect", 150, 700, {**UPSTREAM, "outcome": "aborted"})], "; 700.0 ms: it connected to 10.0.0.5 port 5432, aborted", "gave up before an answer"),
    "refused far away": ([("tcp_connect", 150, 700, {**UPSTREAM, "outcome": "refused"})], "; 700.0 ms: it connected to 10.0.0.5 port 5432, refused",
                         "find why that peer cannot be reached (refused)"),
    "a part of it": ([("tcp_loss", 50, 350, {**UPSTREAM, "kind": "rto"})], "; 300.0 ms: on the connection to 10.0.0.5 port 5432 packets were lost, and the", "ask that peer"),
    "recovered": ([("tcp_loss", 200, 800, {**UPSTREAM, "kind": "retransmit"})], "; 800.0 ms: on the connection to 10.0.0.5 port 5432 packets were lost and sent", LOST),
    "merged": ([("tcp_loss", 200, 800, {**UPSTREAM, "kind": "retransmit", "stalled_ns": 5_000_000, "stalls": 2})], "", "ask that peer"),
    "nobody read there": ([("tcp_loss", 200, 700, {**UPSTREAM, "kind": "zero_window_received"})],
                          "; 700.0 ms: on the connection to 10.0.0.5 port 5432 the peer's receive window was closed: it did not read", "ask that peer"),
    "nobody read here": ([("tcp_loss", 200, 700, {**UPSTREAM, "kind": "zero_window_sent"})],
                         "; 700.0 ms: on the connection to 10.0.0.5 port 5432 its receive window was closed, as no thread here read", "ask that peer"),
    "another thread's": ([("tcp_loss", 200, 700, {**UPSTREAM, "kind": "rto", "tid": 9}), ("tcp_connect", 200, 700, {**UPSTREAM, "outcome": "success", "tid": 9})],
                         "", "ask that peer"),
    "an earlier request's": ([("tcp_loss", -800, 890, {**UPSTREAM, "kind": "rto"}), ("tcp_loss", 200, 700, {**CLIENT, "remote_port": 50001, "kind": "rto"})],
                             "", "ask that peer"),
    "EC2": ([("ena", 500, 1000, {"interface": "ens5", "pps_allowance_exceeded": 120, "bw_in_allowance_exceeded": 7})],
            "; the EC2 instance exceeded its allowance pps on ens5 meanwhile (120 packets queued or dropped)", "an instance type with a higher allowance"),
}


def explained(ask, i, parts, rows):
    """The causes of a request from 0 ms on, with rows beside it; each a host of its own."""
    host = f"h-{i}"
    ask.request(0, parts, request_id=1000 + i, host=host, peer_port=50000, net_peer_ip="::ffff:10.0.0.5", net_peer_port=5432, net_peer_ns=round(parts.get("net", 0) * 1e6))
    for table, at, ms, columns in rows:
        if table == "ena":
            ask.insert("ebpf_ena", {"host": host, "start_time": ask.moment(at), "end_time": ask.moment(at + ms), **columns})
        else:
            ask.row(table, at, ms, **{"host": host, "stalled_ns": round(ms * 1e6), **columns} if table == "tcp_loss" else {"host": host, **columns})
    done = ask.command("explain", "--json", str(1000 + i))
    assert done.returncode == 0, done.stderr
    [request] = json.loads(done.stdout)["requests"]
    return {c["cause"]: c for c in request["causes"]}


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("connections") / "db") as store:
        ask = Answers(store)
        ask.apply()
        yield ask


@pytest.mark.parametrize("name", ROWS)
def test_words_of_a_wait_for_sockets(ask, name):
    rows, said, fix = ROWS[name]
    net = explained(ask, list(ROWS).index(name), {"queue": 100, "net": 1000}, rows)["net"]
    head = "the thread waited for sockets, 1000.0 ms of it for 10.0.0.5 port 5432"
    assert net["said"].startswith(head + said) and (said or net["said"] == head), net
    assert fix in net["fix"], net


def test_words_of_a_slow_client(ask):
    lost = explained(ask, 100, {"cpu": 100, "client_slow": 1000}, [("tcp_loss", 300, 600, {**CLIENT, "kind": "rto", "tid": 9})])["client_slow"]
    assert lost["said"].endswith("; 600.0 ms: packets were lost, and the retransmission timer had to expire") and LOST in lost["fix"], lost
    slow = explained(ask, 101, {"cpu": 100, "client_slow": 1000}, [("tcp_loss", 300, 600, {**UPSTREAM, "kind": "rto"})])["client_slow"]
    assert slow["said"].endswith("more slowly than the server wrote") and "a proxy in front" in slow["fix"], slow


def test_who_the_client_is(ask):
    """A watched process, by the connection that it opened last with that address and port; a program of the same host; or unknown, as far as rows show."""
    client = {"remote_ip": "::ffff:10.0.0.1", "local_ip": "::ffff:10.0.0.9", "local_port": 50000, "remote_port": 8000, "outcome": "success", "service": "shop", "pid": 44}
    proxy, sentence = "a proxy in front that takes whole answers", "more slowly than the server wrote"
    local = {"local_ip": "::ffff:127.0.0.1", "remote_ip": "::ffff:127.0.0.1", "netns": 5}

    def told(i, rows, closed=(), part="client_slow", **more):
        for at, columns in rows:
            ask.row("tcp_connect", at, 1, **{**client, "host": f"h-{i}", **columns})
        for at, columns in closed:
            ask.row("tcp_connect_closed", at, 1, **{**{k: v for k, v in client.items() if k != "outcome"}, "host": f"h-{i}", **columns})
        ask.request(0, {"cpu": 100, part: 1000}, request_id=2000 + i, host=f"h-{i}", **{"peer_port": 50000 + i, **more})
        done = ask.command("explain", "--json", str(2000 + i))
        assert done.returncode == 0, done.stderr
        [cause] = [c for c in json.loads(done.stdout)["requests"][0]["causes"] if c["ms"] == 1000]
        return cause["said"], cause["fix"]
    of = lambda i, **columns: {"local_port": 50000 + i, **columns}
    said, fix = told(1, [(-5000, of(1, pid=43)), (-900, of(1)), (50, of(1, pid=45))])
    assert said.endswith("; the client is shop, pid 44") and fix == "find what kept that client from reading, or smaller answers", (said, fix)
    said, fix = told(2, [(-900, of(2, host="far"))], part="client_wait")
    assert said.endswith("; the client is shop, pid 44 on far") and fix == "find what kept that client from sending", (said, fix)
    unknown = {3: [(-900, of(3, outcome="refused"))], 4: [(-900, of(4, remote_port=8001))], 5: [(-900, of(5, host="far", container_id="c1"))],
               6: [(-900, of(6, host="far")), (-800, of(6, host="farther"))]}
    for i, rows in unknown.items():
        said, fix = told(i, rows)
        assert said.endswith(sentence) and fix.startswith(proxy) and "if the client is one, its buffers are off or full" in fix, (i, said, fix)
    said, fix = told(7, [(-900, of(7))], [(-500, of(7))])
    assert said.endswith(sentence) and fix.startswith(proxy), (said, fix)
    # of loopback: of the same host and network namespace only
    for i, columns, whose in (8, {}, "shop, pid 44"), (9, {"netns": 6}, "a program of the same host"), (10, {"host": "far"}, "a program of the same host"):
        said, fix = told(i, [(-900, of(i, **{**local, **columns}))], peer_ip="::ffff:127.0.0.1", netns=5)
        assert said.endswith(f"; the client is {whose}"), (i, said)
        assert fix.startswith("find what" if i == 8 else "if that client is a proxy, let it take whole answers (nginx: proxy_buffering"), fix
    said, fix = told(11, [], peer_ip="::", peer_port=0, family="unix")
    assert said.endswith("; the client is a program of the same host"), said


def test_a_small_part_is_not_examined(ask):
    """Nor is its reason a cause."""
    causes = explained(ask, 102, {"cpu": 1000, "net": 20}, [("tcp_connect", 1000, 20, {**UPSTREAM, "outcome": "success"})])
    assert list(causes) == ["cpu"], causes


def test_handshakes_dropped_before_a_request(ask):
    """Of the same listener, shortly before; no part has their time, and a later request of a connection did not wait for one."""
    listener = {"host": "h-drop", "netns": 5, "local_port": 8000}
    for at, columns in ((-3000, {}), (-1500, {"overflows": 2}), (-60_000, {}), (500, {}), (-2000, {"netns": 6}), (-2000, {"local_port": 8001})):
        ask.row("tcp_accept", at, 900, **{**listener, "kind": "dropped", "drops": 7, "overflows": 7, **columns})
    ask.row("tcp_accept", -2000, 900, **listener, kind="accepted", drops=7)
    for i, more in enumerate(({}, {"connection_request": 2}, {"netns": 7})):
        ask.request(0, {"cpu": 20}, request_id=2000 + i, **{"host": "h-drop", "netns": 5, **more})
    first, second, other = (json.loads(ask.command("explain", "--json", str(2000 + i)).stdout)["requests"][0] for i in range(3))
    assert (first["before"]["drops"], first["before"]["overflows"]) == (14, 9) and "before" not in second and "before" not in other
    assert "the listener of port 8000 dropped 14 handshakes, 9 as its accept queue was full" in first["before"]["said"]
    text = " ".join(ask.command("explain", "2000").stdout.split())
    assert f"before: {first['before']['said']}" in text and f"fix: {first['before']['fix']}" in text, text


OVERFLOWING = """
import time

def app(environ, start_response):
    time.sleep(0.4)
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""


def test_a_full_queue_is_told_to_who_got_in(tmp_path, cleanup, monkeypatch):
    """A worker, a queue of one, and eight clients at once: some connect only at the second or third try."""
    netns, store = Netns(), Store(tmp_path / "db")
    cleanup.extend([netns, store])
    ask = Answers(store)
    ask.apply()
    monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
    (tmp_path / "overflowing.py").write_text(OVERFLOWING)
    server = subprocess.Popen([*netns.prefix, DEBIAN_PYTHON, "-m", "gunicorn", "-b", "127.0.0.1:8000", "--backlog", "1", "overflowing:app"], cwd=tmp_path,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cleanup.append(server)

    def get():
        begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
        connection.request("GET", "/")
        port = connection.sock.getsockname()[1]
        connection.getresponse().read()
        connection.close()
        return port, (time.monotonic() - begun) * 1000

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", 8000)) == 0
    wait_until(lambda: in_namespace(netns.name, listens), 20, "gunicorn")
    agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", f"--pid={server.pid}", stdout=False,
                  trackers=[*TRACKERS, "tcp_accept"])
    cleanup.append(agent)
    agent.wait_ready()
    time.sleep(1)
    before = in_namespace(netns.name, lambda: tcp_counters("thread-self"))
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        took = dict(clients.map(lambda _: in_namespace(netns.name, get), range(8)))
    after = in_namespace(netns.name, lambda: tcp_counters("thread-self"))
    drops = after["ListenDrops"] - before["ListenDrops"]
    time.sleep(2)
    agent.stop()
    rows = [json.loads(line) for line in store.ask("SELECT toString(request_id) AS id, peer_port FROM ebpf_request FORMAT JSONEachRow").splitlines()]
    told = {row["peer_port"]: json.loads(ask.command("explain", "--json", row["id"]).stdout)["requests"][0] for row in rows}
    assert sorted(told) == sorted(took)
    # the row begins at the handshake that succeeded
    late = [port for port, ms in took.items() if ms - told[port]["duration_ms"] > 800]
    print(f"{drops} drops, {len(late)} of 8 clients tried again: {[round(ms) for ms in took.values()]}")
    assert late and all(0 < told[port]["before"]["drops"] <= drops for port in late), (drops, [told[port].get("before") for port in late])
    # by the last all drops are told, if the first is no longer ago than ten seconds
    assert max(told[port]["before"]["drops"] for port in late) == drops
