# SPDX-License-Identifier: Apache-2.0
"""`underspan requests`: known rows in a store, exact numbers out; live, a client's requests to a real server."""
import json
import os
import pathlib
import pty
import re
import subprocess
import time

import pytest

from agent import NO_ENGINE, plain_build, run_underspan
from answers import Answers, emptied, store_of_answers
from conftest import GUNICORNS
from servers import Gunicorn, connect, read_response
from store_fixture import ROOT, UNDERSPAN, Store
from test_commands import Command
from test_errors import FAILED, USAGE, check_sentence

pytestmark = [plain_build(NO_ENGINE), pytest.mark.light]
PARTS = ("accept_queue client_wait queue pool_wait cpu runq throttled gil gc_own gc_sibling lock net disk fault sleep pipe child other "
         "await loop_busy client_slow").split()
NULLABLE = PARTS[:3] + PARTS[7:10]
HIDDEN = "accept_queue queue pool_wait runq throttled gil gc_sibling loop_busy".split()
T0 = (int(time.time()) - 1800) * 1_000_000  # half an hour ago, on a full second
WINDOW = "--since=2h"


class Requests(Answers):
    """Rows of known requests; times in milliseconds after T0."""

    def __init__(self, store):
        super().__init__(store, T0)
        self.rows = []

    def request(self, at, path="/", status=200, weight=1, host="h1", tid=8, **more):
        """Parts in milliseconds; None: not measured. The row adds up."""
        ns = {part: None if more.get(part, 0) is None else round(more.pop(part, 0) * 1e6) for part in PARTS}
        row = {"host": host, "pid": 7, "tid": tid, "host_pid": 107, "host_tid": 100 + tid, "comm": "gunicorn", "family": "ipv4",
               "server_port": 8000, "method": "GET", "path": path, "status": status, "weight": weight, "model": "thread", "link": "same",
               "end_by": "length", "outcome": "answered", "connection_request": 1, "peer_port": 4000 + len(self.rows),
               "peer_ip": "10.0.0.1", "request_id": 2**64 - 1000 + len(self.rows), "duration_ns": sum(v or 0 for v in ns.values()),
               "not_measured": [], **{f"{part}_ns": v for part, v in ns.items()},
               **{key: value for key, value in more.items() if key not in PARTS}}
        row["start_time"] = self.moment(at)
        row["end_time"] = self.moment(at + row["duration_ns"] / 1e6)
        self.rows.append({**row, "start_us": self.us(at)})
        self.insert("ebpf_request", row)
        return self.rows[-1]

    def watched(self, at=-60_000, seconds=100, **more):
        self.agent(at, seconds, trackers=["request"], **more)

    def ask(self, *arguments):
        done = self.command("requests", WINDOW, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.ask("--json", *arguments))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with store_of_answers(tmp_path_factory.mktemp("requests")) as store:
        yield store


@pytest.fixture
def ask(shared):
    """The tables empty."""
    return Requests(emptied(shared))


def clock(row):
    """As the command shows the start, in UTC."""
    day = "%m-%d " if time.gmtime(time.time() - 7200)[2] != time.gmtime()[2] else ""
    return time.strftime(day + "%H:%M:%S", time.gmtime(row["start_us"] // 10**6)) + f".{row['start_us'] // 1000 % 1000:03}"


def server_ns(row):
    return row["duration_ns"] - (row["client_wait_ns"] or 0) - row["client_slow_ns"]


def quantile(rows, q):
    """Of server time, each row `weight` times."""
    rows = sorted(rows, key=server_ns)
    whole, until = sum(r["weight"] for r in rows), 0
    for row in rows:
        until += row["weight"]
        if until >= q * whole:
            return server_ns(row)
    return None


def spread(ask):
    """Requests of several kinds: queue, GIL, network, a slow client, NULL parts, sampled rows."""
    ask.watched()
    ask.request(10, "/checkout/42", queue=1004.2, net=150.1, gil=30.2, cpu=12.0, runq=0.5, sleep=0.02, lock=3, trace_id="0af7651916cd43dd8448eb211c80319c",
                net_peer_ip="10.0.0.5", net_peer_port=5432, net_peer_ns=140_000_000)
    ask.request(500, "/checkout/43", status=500, tid=9, cpu=80, gil=None, gc_own=None, gc_sibling=None, not_measured=["gil", "gc"])
    ask.request(2000, "/", status=None, outcome="client_aborted", client_wait=5000, cpu=20, queue=0)
    ask.request(2100, "/", tid=9, cpu=1, weight=20, accept_queue=None, queue=None, client_wait=None, not_measured=["arrival", "accept"])
    ask.request(2200, "/", tid=9, cpu=2, queue=4, weight=10)
    ask.request(2300, "/load", tid=9, cpu=5, client_slow=300, host="h2")


def test_the_text(ask):
    """The whole text, compared with a handwritten page; 80 columns."""
    spread(ask)
    times = [clock(row) for row in ask.rows]
    gap = len(times[0]) - 12  # the day before the clock takes these columns from the path
    text = ask.ask("--host=h1")

    def line(first, what, status, total):
        return f"{first:<{14 + gap}}{what:<{46 - gap}} {status:>6} {total:>12}"

    expected = f"""\
all services on h1: 33 requests (5 rows) ended in 7200 s
measured for 100 of 7200 s (host h1): all figures are of that time

Slowest requests, the time spent waiting for the client left out of the order
{line("UTC", "request", "status", "total, ms")}
    where the time went, ms
    request id, trace id, port, pid

{line(times[0], "GET /checkout/42", 200, 1200.0)}
    queue 1004.2, net 150.1 (mostly 10.0.0.5:5432), gil 30.2, cpu 12.0, lock 3.0, others 0.5
    18446744073709550616 0af7651916cd43dd8448eb211c80319c :8000 pid 7
{line(times[1], "GET /checkout/43", 500, 80.0)}
    cpu 80.0, gil -, gc_own -, gc_sibling -
    18446744073709550617 - :8000 pid 7
{line(times[2], "GET /", "-", 5020.0)}
    client_wait 5000.0, cpu 20.0, client_aborted
    18446744073709550618 - :8000 pid 7
{line(times[4], "GET /", 200, 6.0)}
    queue 4.0, cpu 2.0
    18446744073709550620 - :8000 pid 7
{line(times[3], "GET /", 200, 1.0)}
    cpu 1.0, accept_queue -, client_wait -, queue -
    18446744073709550619 - :8000 pid 7
"""
    assert text.startswith(expected), text
    rest = text[len(expected):]
    # 33 requests in 100 s of agent, 30 of them in one second; the request of the waiting client arrived later: T 2, C = (195.8 + 80 + 20 + 20 * 1 +
    # 10 * 2) / 33 ms
    service = (195.8 + 80 + 20 + 20 * 1 + 10 * 2) / 33
    [line] = [line for line in rest.splitlines() if line.startswith("gunicorn :8000")]
    assert line.split()[2:] == [f"{33 / 100:.1f}", "30.0", f"{service:.1f}", "2", f"{33 / 100 * service / 1000 - 2:+.1f}",
                                f"{30 * service / 1000 - 2:+.1f}"]
    assert "not measured in 1 of 33 requests: gil: " in rest and "not measured in 20 of 33 requests: arrival: " in rest


def test_the_part_of_the_window_that_was_measured(ask):
    """An agent that was started ten minutes ago has ten minutes of the hour; whole hosts are not listed, of many only three."""
    minutes = {"h1": 10, "h2": 60, "h3": 30}
    now = time.time() * 1000 - T0 / 1000
    for host, n in minutes.items():
        ask.watched(now - n * 60_000 - (30_000 if n == 60 else 0), n * 60 + (30 if n == 60 else 0), host=host)
        ask.request(1000, host=host, cpu=1)
    text = run_underspan("requests", "--store=" + str(ask.store.path), "--since=1h").stdout
    parts = r"(59\d|60\d) of 3600 s \(host h1\), (179\d|180\d) of 3600 s \(host h3\)"  # more by the time of each question
    assert re.fullmatch(f"measured for {parts}: all figures are of that time", text.splitlines()[1]), text
    found = json.loads(run_underspan("requests", "--store=" + str(ask.store.path), "--since=1h", "--json").stdout)
    assert found["window_s"] == 3600 and re.fullmatch(parts, found["partly_measured"]), found
    assert {row["host"]: round(row["measured_s"] / 60) for row in found["coverage"]} == minutes
    found = json.loads(run_underspan("requests", "--store=" + str(ask.store.path), "--since=1h", "--host=h2", "--json").stdout)
    assert "partly_measured" not in found
    for i in range(3):
        ask.watched(0, 100, host=f"m{i}")
    assert ask.ask().splitlines()[1].endswith("(host h3), and 3 more hosts in part: all figures are of that time")


def test_lists_against_python(ask):
    """Order, limits and all sums, weighted."""
    spread(ask)
    found = ask.json("--top=4")
    by_time = sorted(ask.rows, key=server_ns, reverse=True)
    assert [row["request_id"] for row in found["slowest"]] == [str(row["request_id"]) for row in by_time[:4]]
    for row, known in zip(found["slowest"], by_time):
        for key, value in known.items():
            if key == "peer_ip":
                assert row[key].endswith(value)
            elif key == "net_peer_ip":
                assert row[key] == "::ffff:" + value
            elif key not in ("start_time", "end_time", "request_id"):
                assert row[key] == value, key
    assert (found["requests"], found["rows"]) == (34, 6)
    assert {n["reason"]: n["requests"] for n in found["not_measured"]} == {"gil": 1, "gc": 1, "arrival": 20, "accept": 20}

    groups = {}
    for row in ask.rows:
        groups.setdefault(re.sub(r"/\d+$", "/*", row["path"]), []).append(row)
    hidden = {path: sum(row["weight"] * sum(row[f"{p}_ns"] or 0 for p in HIDDEN) for row in rows) for path, rows in groups.items()}
    assert [row["endpoint"] for row in found["endpoints"]] == sorted(hidden, key=hidden.get, reverse=True)
    assert found["endpoints_total"] == 3
    for row in found["endpoints"]:
        rows = groups[row["endpoint"]]
        assert row["requests"] == sum(r["weight"] for r in rows)
        assert row["hidden_ns"] == pytest.approx(hidden[row["endpoint"]])
        assert row["server_sum_ns"] == sum(r["weight"] * server_ns(r) for r in rows)
        assert (row["server_p50_ns"], row["server_p99_ns"]) == (quantile(rows, 0.5), quantile(rows, 0.99))
        for part in PARTS:
            values = [(r["weight"], r[f"{part}_ns"]) for r in rows]
            measured = [w * v for w, v in values if v is not None]
            assert row[f"{part}_ns"] == (sum(measured) if measured else None), part
            if part in NULLABLE:
                assert row[f"{part}_unmeasured"] == sum(w for w, v in values if v is None), part


def test_by_part_and_by_endpoint(ask):
    spread(ask)
    found = ask.json("--by=gil")
    assert [row["path"] for row in found["slowest"]] == ["/checkout/42"]  # neither 0 nor unmeasured
    text = ask.ask("--by=gil")
    assert "Requests with most gil\n" in text and "Endpoints with most gil;" in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("GET /checkout/* :8000"))
    # of two requests, one was measured: gil 30.2 is the mean of the measured
    assert lines[at].split()[3:] == ["2", "640.0", "1200.0", "0.03"]
    assert "gil 30.2" in lines[at + 1] and "Mean and p99 leave out the waits for the client" in text
    text = ask.ask("--by=endpoint", "--top=1")
    assert "Slowest" not in text and "and 2 endpoints with less" in text
    assert [line.split()[3:] for line in text.splitlines() if line.startswith("GET ")] == [["2", "640.0", "1200.0", "1.03"]]
    assert "no request with pool_wait" in ask.ask("--by=pool_wait")


def test_nothing_of_a_part_is_left_out(ask):
    """By a part, endpoints with 0 of it are not listed; unmeasured is not 0, and a little is not printed as 0."""
    ask.watched()
    ask.request(0, "/much", gc_own=40, cpu=1)
    ask.request(10, "/little", gc_own=2, cpu=1)
    ask.request(15, "/least", gc_own=0.01, cpu=1)
    ask.request(20, "/nothing", cpu=900)
    ask.request(30, "/unknown", gc_own=None, cpu=3)
    found = ask.json("--by=gc_own")
    assert [row["path"] for row in found["slowest"]] == ["/much", "/little", "/least"]
    assert [row["endpoint"] for row in found["endpoints"]] == ["/much", "/little", "/least", "/unknown"] and found["endpoints_total"] == 4
    text = ask.ask("--by=gc_own", "--top=2")
    assert re.findall(r"(?m)^GET (/\S+) :8000.* (\S+)$", text) == [("/much", "0.04"), ("/little", "0.0020")] and "and 2 endpoints with less" in text
    assert re.findall(r"(?m)^GET (/\S+) :8000.* (\S+)$", ask.ask("--by=gc_own"))[2:] == [("/least", "1.0e-05"), ("/unknown", "-")]
    # none has any: said once, and no table
    text = ask.ask("--by=disk")
    assert "no request with disk in that time" in text and "Endpoints" not in text
    assert "/nothing" in ask.ask("--by=endpoint")
    # beside another window all are compared
    now = round(time.time() - T0 / 1e6)
    against = ask.command("requests", "--json", "--by=gc_own", f"--since={now + 60}s", f"--against-since={now + 120}s", f"--against-until={now + 60}s")
    assert "/nothing" in [row["endpoint"] for row in json.loads(against.stdout)["endpoints"]], against


def test_choice_of_requests(ask):
    spread(ask)
    ask.request(-4 * 3600_000, "/old")
    ask.span("0af7651916cd43dd8448eb211c80319d", "s1", pid=7, tid=8)
    paths = lambda *arguments: [row["path"] for row in ask.json(*arguments)["slowest"]]
    assert paths("--path=/check") == ["/checkout/42", "/checkout/43"]
    assert paths("--host=h2") == paths("--host=h2", "-p", "107") == paths("--host=h2", "--pid=7") == ["/load"]
    assert paths("--pid=8") == paths("--path=/none") == []
    check_sentence(ask.command("requests", WINDOW, "--host=h3"), FAILED, "nothing was measured")
    assert paths("--service=svc") == ["/checkout/42", "/checkout/43", "/", "/", "/"]  # h1 only
    assert paths("--service=other") == []
    # without spans: by the rows' own column
    ask.request(-1000, "/of-a-unit", service="nightly", cpu=5)
    assert paths("--service=nightly") == ["/of-a-unit"]
    check_sentence(ask.command("requests", "--since=3h", "--until=1h"), FAILED, "nothing was measured")
    # a request that ended inside the window counts, a request that only began inside does not
    now = time.time() * 1000 - T0 / 1000
    ask.request(now - 1_500_000, "/ends", cpu=600_000)
    ask.request(now - 1_100_000, "/late", cpu=1_000_000)
    done = ask.command("requests", "--json", "--since=20m", "--until=10m")
    assert [row["path"] for row in json.loads(done.stdout)["slowest"]] == ["/ends"]
    text = ask.ask("--path=/check")
    assert "Threads missing" not in text and "leave out --path" in text


def test_threads_missing(ask):
    """T - R x C of bursts: 10 arrivals in a second, each 500 ms of a thread: 2 threads, 3 missing; then the cases without an answer."""
    ask.watched(seconds=100)
    for i in range(10):
        ask.request(i * 90, cpu=100, sleep=400, queue=i * 250, tid=8 + i % 2)
    for i in range(4):  # a thread for each connection
        ask.request(i * 90, cpu=10, tid=20 + i, server_port=8001, comm="werkzeug")
    for i in range(4):  # a loop
        ask.request(i * 90, cpu=10, model="loop", server_port=8002, comm="uvicorn", **{"await": 40})
    for i in range(6):  # a loop with a pool of one thread: those that wait for it are not known to be the pool's
        known = {"sleep": 80, "model": "pool"} if i < 2 else {"await": 80 * i, "model": "loop", "not_measured": ["work_elsewhere"]}
        ask.request(i * 90, tid=30, server_port=8003, comm="django", **known)
    for i in range(20):  # one of many that looked like a loop's
        ask.request(i * 90, cpu=10, tid=40 + i % 2, server_port=8004, comm="gthread", model="thread" if i else "loop")
    ask.request(0, cpu=10, host="h2", tid=1)
    ask.request(20, cpu=10, host="h2", tid=1)
    listeners = {(l["host"], l["server_port"]): l for l in ask.json()["listeners"]}
    l = listeners["h1", 8000]
    assert (l["threads"], l["service_ms"], l["waited_ms"], l["peak_per_second"]) == (2, 500, 1125, 10)
    assert l["per_second"] == pytest.approx(10 / 100) and l["why_not"] is None
    assert l["missing"] == pytest.approx(10 / 100 * 0.5 - 2) and l["peak_missing"] == pytest.approx(3)
    l = listeners["h1", 8001]
    assert (l["missing"], l["peak_missing"], l["service_ms"]) == (None, None, 10) and "thread per connection" in l["why_not"]
    l = listeners["h1", 8002]
    assert (l["missing"], l["peak_missing"], l["service_ms"]) == (None, None, None)
    assert l["why_not"] == "an event loop: its requests share its thread, or threads of a pool that are not known"
    l = listeners["h1", 8003]
    assert [l[key] for key in ("missing", "peak_missing", "service_ms", "per_second")] == [None] * 4 and "of an unknown one" in l["why_not"]
    l = listeners["h1", 8004]
    assert l["missing"] == pytest.approx(19 / 100 * 0.01 - 2) and l["why_not"] is None
    l = listeners["h2", 8000]  # no agent's report: no rate
    assert (l["per_second"], l["missing"], l["threads"]) == (None, None, 1) and "no agent reported" in l["why_not"]
    text = ask.ask()
    assert re.search(r"gunicorn :8000 +0\.1 +10\.0 +500\.0 +2 +-1\.9[0-9]* +\+3\.0\n", text) or re.search(r"gunicorn :8000 +0\.1 +10\.0 +500\.0 +2 +-2\.0 +\+3\.0\n", text), text
    assert re.search(r"uvicorn :8002 +- +- +- +- +- +-\n", text), text


def test_it_fits_a_terminal_and_is_printable(ask):
    """A path of an attacker, on a terminal: no control passes, no line is longer than 80 columns."""
    ask.watched()
    hostile = "/\x1b[2J\x1b]0;owned\x07\u202e" + "a" * 230
    ask.request(0, hostile, queue=50, cpu=1, comm="\x1b[31mred", method="GET", trace_id="\x1b[1m" + "f" * 28, gil=None,
                not_measured=["gil", "\x1b[5mnew"], net=1234567, net_peer_ip="2001:db8::1234:5678", net_peer_port=65535, net_peer_ns=10**9,
                accept_queue=1, client_wait=2, pool_wait=3, runq=4, throttled=5, lock=6)
    ask.request(1, "/größe/名前" * 20, queue=50, cpu=1)
    master, slave = pty.openpty()
    done = subprocess.Popen([UNDERSPAN, "requests", f"--clickhouse={ask.store.url}", WINDOW, "--by=queue"], stdin=subprocess.DEVNULL,
                            stdout=slave, stderr=subprocess.PIPE, env=ask.env)
    os.close(slave)
    text = b""
    while True:
        try:
            text += os.read(master, 65536)
        except OSError:
            break
    assert done.wait(30) == 0 and not done.stderr.read()
    lines = text.decode().replace("\r\n", "\n").splitlines()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", "\n".join(lines)), lines
    wide = lambda line: sum(2 if ord(c) > 0x2e80 else 1 for c in line)
    assert max(map(wide, lines)) <= 80, [line for line in lines if wide(line) > 80]
    assert any("?[2J" in line for line in lines)
    found = ask.json()
    assert hostile in [row["path"] for row in found["slowest"]]


def test_nothing_happened_is_not_nothing_measured(ask):
    check_sentence(ask.command("requests", WINDOW), FAILED, "nothing was measured: no agent with the tracker `request` reported")
    ask.insert("ebpf_probe_health", {"host": "h1", "host_pid": 0, "time": ask.moment(0), "tracker": "request", "live": 0, "reason": "no BTF here"})
    check_sentence(ask.command("requests", WINDOW), FAILED, "nothing was measured", "host h1: no BTF here")
    ask.watched()
    ask.insert("ebpf_probe_health", {"host": "h1", "host_pid": 33, "time": ask.moment(0), "tracker": "request", "live": 1, "reason": "TLS in the process"})
    text = ask.ask()
    assert text.startswith("0 requests (0 rows) ended in 7200 s\n") and "host h1, pid 33: TLS in the process" in text
    for at, what, said in (1, "TLS", "6 connections with TLS"), (2, "TLS", "7 connections with TLS"), (3, "upgraded", "1 connection upgraded"), (4, "", ""):
        ask.insert("ebpf_probe_health", {"host": "h1", "host_pid": 0, "time": ask.moment(at), "tracker": "request", "live": 1, "binary": what, "reason": said})
    text = ask.ask()
    assert "host h1: 1 connection upgraded\nhost h1: 7 connections with TLS\n" in text and "no BTF" not in text, text
    ask.insert("ebpf_agent", {"host": "h1", "tracker": "request", "start_time": ask.moment(50_000), "end_time": ask.moment(60_000),
                              "lost_ring": 3, "lost_state": 4, "dropped_spool": 5})
    assert "host h1: 7 requests have no row for lack of space, 5 rows were not delivered" in ask.ask()


def test_one_request(ask):
    ask.watched()
    ask.request(0, "/once", cpu=1, gil=None, not_measured=["gil"])
    ask.request(-150_000, "/once", cpu=1)
    for at, what, said in (1, "TLS", "6 connections with TLS"), (2, "TLS", "7 connections with TLS"), (3, "upgraded", "1 connection upgraded"), (4, "", ""):
        ask.insert("ebpf_probe_health", {"host": "h1", "host_pid": 0, "time": ask.moment(at), "tracker": "request", "live": 1, "binary": what, "reason": said})
    text = ask.ask()
    assert "host h1: 1 connection upgraded\nhost h1: 7 connections with TLS\n" in text and "no BTF" not in text, text
    ask.insert("ebpf_agent", {"host": "h1", "tracker": "request", "start_time": ask.moment(50_000), "end_time": ask.moment(60_000),
                              "lost_ring": 1, "dropped_spool": 1})
    ago = lambda ms: f"{round(time.time() - T0 / 1e6 - ms / 1000)}s"
    text = ask.command("requests", f"--since={ago(-100_000)}", f"--against-since={ago(-200_000)}", f"--against-until={ago(-100_000)}").stdout
    for said in ("1 request (1 row) ended in", "before: 1 request, mean 1.0 ms", "not measured in 1 of 1 request: gil",
                 "host h1: 1 request has no row for lack of space, 1 row was not delivered"):
        assert said in text, text
    assert not re.search(r"\b1 (requests|rows|endpoints)\b", text), text


def test_two_windows(ask):
    """An endpoint beside itself of a hundred seconds before: sums as in Python, weights counted; one that was not asked then has nothing."""
    ask.watched(-200_000, 300)
    ago = lambda ms: f"{round(time.time() - T0 / 1e6 - ms / 1000)}s"
    now = [ask.request(20_000 + i * 1000, "/pay", lock=300 + i, cpu=2) for i in range(3)] + [ask.request(50_000, "/new", cpu=5)]
    before = [ask.request(-80_000 + i * 1000, "/pay", lock=10, cpu=2, weight=2, queue=None if i else 4) for i in range(3)]
    ask.request(-60_000, "/gone", cpu=1)
    ask.request(-150_000, "/pay", cpu=9000)  # in neither window
    arguments = [f"--since={ago(0)}", f"--until={ago(100_000)}", f"--against-since={ago(-100_000)}", f"--against-until={ago(0)}"]

    def run(*more):
        done = ask.command("requests", *arguments, *more)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    report = json.loads(run("--json"))
    endpoints = {e["endpoint"]: e for e in report["endpoints"]}
    assert set(endpoints) == {"/pay", "/new"} and "before" not in endpoints["/new"]
    pay = endpoints["/pay"]
    assert (pay["requests"], pay["lock_ns"]) == (3, sum(r["lock_ns"] for r in now[:3])) and report["requests"] == 4
    assert (pay["before"]["requests"], pay["before"]["lock_ns"], pay["before"]["queue_unmeasured"]) == (6, 2 * sum(r["lock_ns"] for r in before), 4)
    assert pay["before"]["server_sum_ns"] == 2 * sum(r["duration_ns"] for r in before)
    assert (report["against"]["to_us"] - T0) / 1e6 < 2 and "endpoints" not in report["against"] and 90 < report["against"]["measured_s"] <= 110
    text = re.sub(r"\s+", " ", run())
    assert "before: 6 requests, mean 13.3 ms, p99 16.0 ms: lock 10.0" in text and "before: no request" in text, text
    # nothing was measured then: said, and no figure
    arguments[2:] = [f"--against-since={ago(-900_000)}", f"--against-until={ago(-800_000)}"]
    report = json.loads(run("--json"))
    assert report["notes"] == ["before: nothing was measured in that time"] and not any("before" in e for e in report["endpoints"])
    assert run().count("    before: not measured\n") == 2


def test_bad_input(ask, tmp_path):
    def refused(*arguments, code=USAGE, says=()):
        check_sentence(ask.command("requests", *arguments), code, *says)
    refused("--by=gill", says=["'gill' is no part of a request", "did you mean gil"])
    refused("--by=zzzzzz", says=["'zzzzzz' is no part", "underspan requests --help"])
    refused("--since=10x", says=["since"])
    refused("--since=soon", says=["since"])
    refused("--since=10m", "--until=20m", says=["until", "--since=1h --until=30m"])
    refused("--top=0", says=["top"])
    refused("--slowest", "--by=gil", says=["exclude each other"])
    refused("--pid=x", says=["'x' is not a process id"])
    done = ask.command("requests", "--help")
    assert (done.returncode, done.stderr) == (0, "") and max(map(len, done.stdout.splitlines())) <= 80
    assert set(PARTS) <= set(re.findall(r"\w+", done.stdout))
    with Store(tmp_path / "empty") as store:
        empty = Answers(store)
        check_sentence(empty.command("requests"), FAILED, "underspan schema --apply")
        empty.apply()
        store.ask("RENAME TABLE ebpf_agent TO renamed")
        for command in "requests", "gil", "offcpu", "top":
            check_sentence(empty.command(command, "--since=1m"), FAILED, "the table ebpf_agent is missing here.*underspan schema --apply")
        store.ask("RENAME TABLE renamed TO ebpf_agent")
        store.ask("ALTER TABLE ebpf_request DROP COLUMN duration_ms, DROP COLUMN server_ms, DROP COLUMN hidden_ms, DROP COLUMN gil_ns")
        check_sentence(empty.command("requests"), FAILED, "ebpf_request is missing here, or of an older version", "underspan schema --apply")
        empty.apply()
        store.ask("INSERT INTO ebpf_request (service, path, start_time, end_time, duration_ns) VALUES ('unit', '/there', now64(6), now64(6), 5), ('other', '/not', now64(6), now64(6), 5)")
        found = empty.command("requests", "--service=unit", "--json")  # no otel_traces here
        assert [row["path"] for row in json.loads(found.stdout)["slowest"]] == ["/there"], found.stderr
        store.ask("INSERT INTO ebpf_agent (host, tracker, start_time, end_time) VALUES ('h', 'request', now64(6) - INTERVAL 5 MINUTE, now64(6))")
        found = empty.command("requests", "-p", "4242")  # the workers of a master have pids of their own
        assert found.returncode == 0 and "that process alone here, without its children" in found.stdout, found


# ---- live ----

def get(address, path, trace):
    """One request on a new connection, with a trace id; returns the client's nanoseconds."""
    begin = time.monotonic_ns()
    with connect(address) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\ntraceparent: 00-{trace}-{7:016x}-01\r\nConnection: close\r\n\r\n".encode())
        assert read_response(s)
    return time.monotonic_ns() - begin


def test_live_requests_are_those_of_the_client(debian_python, tmp_path, cleanup):
    """A master with two workers: every request once, with path, trace and sleep, and no longer than the client's wait."""
    server = Gunicorn(debian_python, GUNICORNS[-1], str(tmp_path), workers=2)
    cleanup.append(server)
    command = Command("requests", "-p", server.pid, "-d", 0, "--json", "--top=50", "--request.min_duration_us=0")
    cleanup.append(command)
    command.wait_for(b": 2 s")  # the workers' interpreters are found
    asked = {}
    for i in range(12):
        path = ["/", "/sleep/0.07", "/item/7?q=1"][i % 3]
        asked[f"{i + 1:032x}"] = (path.split("?")[0], get(server.address, path, f"{i + 1:032x}"))
    found = json.loads(command.stop())
    mine = [row for row in found["slowest"] if row["trace_id"] in asked]
    assert (found["requests"], found["rows"], len(mine)) == (12, 12, 12), found
    assert [server_ns(row) for row in mine] == sorted(map(server_ns, mine), reverse=True)
    for row in mine:
        path, client_ns = asked.pop(row["trace_id"])
        assert (row["path"], row["status"], row["method"], row["server_port"]) == (path, 200, "GET", server.address[1])
        assert row["pid"] in server.worker_pids and row["duration_ns"] == sum(row[f"{p}_ns"] or 0 for p in PARTS)
        assert row["duration_ns"] <= client_ns + 2_000_000
        assert (row["sleep_ns"] > 69_000_000) == (path == "/sleep/0.07"), row
    endpoints = {row["endpoint"]: row for row in found["endpoints"]}
    assert {name: row["requests"] for name, row in endpoints.items()} == {"/": 4, "/sleep/0.07": 4, "/item/*": 4}
    for name, row in endpoints.items():
        rows = [r for r in mine if re.sub(r"/\d+$", "/*", r["path"]) == name]
        for part in PARTS:
            assert (row[f"{part}_ns"] or 0) == sum(r[f"{part}_ns"] or 0 for r in rows), part
        assert (row["server_p50_ns"], row["server_max_ns"]) == (quantile(rows, 0.5), max(map(server_ns, rows)))
    [listener] = found["listeners"]
    assert listener["server_port"] == server.address[1] and listener["requests"] == 12
    assert 1 <= listener["threads"] <= 4


def test_live_without_an_answer(cleanup):
    process = subprocess.Popen(["true"])
    process.wait()
    check_sentence(run_underspan("requests", "-p", str(process.pid)), FAILED, f"no process {process.pid}")
    check_sentence(run_underspan("requests", "-d", "1"), USAGE, "pid", "-p PID")
    check_sentence(run_underspan("requests", "-p", "1", "-d", "1", "--store=/nowhere"), USAGE, "leave out -d")
    # of the environment, as the first answer's UNDERSPAN_STORE: for other questions
    kernel_thread = run_underspan("requests", "-p", "2", "-d", "1", prefix=["env", "UNDERSPAN_STORE=/nowhere"])
    check_sentence(kernel_thread, FAILED, "process 2 .*runs no Python")
    check_sentence(run_underspan("requests", "-p", "1", "--service=x"), USAGE, "since, until, service and host choose from a database")
    process = subprocess.Popen(["sleep", "600"])
    cleanup.append(process)
    result = run_underspan("requests", "-p", str(process.pid), "-d", "2", timeout=60)
    check_sentence(result, FAILED, rf"process {process.pid} \(sleep\) runs no Python")
    result = run_underspan("requests", "-p", str(os.getpid()), "-d", "0.4", timeout=60)
    assert result.returncode == 0 and re.search(r"ended in 0\.\d s$", result.stdout, re.M), result


def test_files_choose_alike():
    """Rows of a window are chosen by one condition, in every file; requests also by path and by the trace that they carry."""
    sql = pathlib.Path(ROOT) / "sql"
    for path in [path for folder in ("gil", "offcpu", "requests", "timeline", "top") for path in (sql / folder).glob("*.sql")]:
        text = path.read_text()
        if path.name != "measured.sql":  # of trackers, not of rows
            assert re.search(r'(?m)^#include "(window|requests)/chosen.inc"$', text) and "{from:" not in text, path
    rows, requests = ((sql / folder / "chosen.inc").read_text().split("WHERE", 1)[1] for folder in ("window", "requests"))
    of_path = "    AND ({path:String} = '' OR startsWith(r.path, {path:String}))\n"
    of_trace = re.search(r" *--spans: +OR \(r.trace_id(.*\n){3}", requests)[0]
    assert requests.replace(of_path, "").replace(of_trace, "").replace("r.", "p.") == rows
