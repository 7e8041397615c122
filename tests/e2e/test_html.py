# SPDX-License-Identifier: Apache-2.0
"""HTML reports in a real browser: figures equal --json and the made rows, clicks work, hostile names are text, nothing is fetched,
and a page fits a wide and a narrow window."""
import json
import os
import pty
import re
import subprocess
import time

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build
from answers import LEDGER_PARTS, OTEL, Answers, trace_id
from browser import NARROW, Keys
from store_fixture import Store
from test_errors import FAILED, USAGE, check_sentence

pytestmark = plain_build(NO_ENGINE)
HOSTILE = "/</script><script>window.owned=1</script><img src=x onerror=window.owned=2>\u202e\x1b[31m\x00"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Requests of known parts, one behind the GIL and a collection, and one with hostile names."""
    with Store(tmp_path_factory.mktemp("html") / "db") as store:
        for path in OTEL:
            store.ask(path.read_text())
        ask = Answers(store)
        ask.apply()
        ask.agent(-120_000, 300)
        ask.request(10, {"accept_queue": 100, "queue": 300, "cpu": 50, "gil": 120, "gc_sibling": 160, "net": 20}, trace_id=trace_id(5),
                    parent_span_id="c1", busy_threads=8, queue_depth=3, net_peer_ip="::ffff:10.0.0.5", net_peer_port=5432, net_peer_ns=20_000_000)
        for i in range(8):
            ask.request(0, {"sleep": 410}, request_id=100 + i, tid=20 + i, path="/slow")
        ask.row("gil_wait", 450, 120, holder_tid=9, holder_thread_name="pdf", holder_py_stack=["render (/srv/app/pdf/draw.py:7)"],
                holders=[{"tid": 9, "ns": 120_000_000, "thread_name": "pdf"}])
        ask.row("gc_pause", 580, 160, tid=10, generation=2, thread_name="worker-10", py_stack=["load (/srv/app/shop/cache.py:12)"])
        ask.request(900, {"queue": None, "gil": None, "cpu": 80, "lock": 30}, request_id=78, path=HOSTILE, thread_name=HOSTILE,
                    not_measured=["arrival", "gil", HOSTILE], outcome="client_aborted", service=HOSTILE, namespace="shop-ns", pod="web-1", container="app")
        ask.span(trace_id(5), "c1", kind="Client", at=0, ms=800)
        ask.span(trace_id(5), "s1", "c1", at=412, ms=345)
        yield ask


def page(ask, path, *arguments):
    done = ask.command(*arguments, "--html")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    path.write_text(done.stdout)
    return path


@pytest.fixture
def connected(tmp_path):
    """A request with a handshake and a loss, and handshakes that its listener dropped before."""
    with Store(tmp_path / "db") as store:
        ask = Answers(store)
        ask.apply()
        ask.request(2000, {"cpu": 100, "net": 900}, request_id=79, path="/pay", netns=5, net_peer_ip="::ffff:10.0.0.5", net_peer_port=443, net_peer_ns=900_000_000)
        ask.row("tcp_connect", 2050, 640, remote_ip="::ffff:10.0.0.5", remote_port=443, outcome="success", total_retrans=2)
        ask.row("tcp_loss", 2700, 250, kind="rto", remote_ip="::ffff:10.0.0.5", remote_port=443, local_port=40000, segments=1, stalled_ns=250_000_000)
        ask.row("tcp_accept", 500, 900, kind="dropped", netns=5, local_port=8000, drops=7, overflows=7)
        yield ask


def test_explain_shows_connections(connected, browser, tmp_path):
    ask = connected
    browser.open(page(ask, tmp_path / "connections.html", "explain", "79"))
    text = browser.text()
    assert "640.0 ms: it connected to 10.0.0.5 port 443, its first packet sent 2 times more; 250.0 ms: on the connection to 10.0.0.5 port 443" in text, text
    assert "before: in the ten seconds before it arrived, the listener of port 8000 dropped 7 handshakes, 7 as its accept queue was full" in text, text
    lane = next(e for e in browser.all("article canvas") if e.get_attribute("aria-label").startswith("its connections"))
    assert "2 events" in lane.get_attribute("aria-label")
    lane.send_keys(Keys.ARROW_RIGHT)
    assert "connect to 10.0.0.5 port 443, its first packet sent 2 times more" in browser.text()
    lane.send_keys(Keys.ARROW_RIGHT)
    assert "connection to 10.0.0.5 port 443: packets lost, until the retransmission timer expired" in browser.text()


@pytest.fixture
def blocked(tmp_path):
    """A request that an event loop accepted late: a coroutine of another request slept; then it took 3 ms to be read."""
    with Store(tmp_path / "db") as store:
        ask = Answers(store)
        ask.apply()
        ask.request(0, {"sleep": 420}, request_id=78, path="/export", model="loop")
        ask.request(10, {"accept_queue": 412, "queue": 3, "cpu": 2}, request_id=79, path="/price", model="loop")
        ask.row("loop_stall", 2, 418, loop="asyncio", sleep_ns=418_000_000, py_stack=["write_export (/srv/app/shop/api.py:12)"])
        yield ask


def test_explain_shows_what_kept_the_loop(blocked, browser, tmp_path):
    browser.open(page(blocked, tmp_path / "loop.html", "explain", "79"))
    lane = next(e for e in browser.all("article canvas") if e.get_attribute("aria-label").startswith("event loop did not poll: 1 event"))
    lane.send_keys(Keys.ARROW_RIGHT)
    assert "sleep, in write_export (shop/api.py:12)" in browser.all("article .status")[0].text
    # of the accept queue, not of the 3 ms after it
    said = "the 1 thread of its process that serves requests was busy with others 100 % of the time"
    assert said in browser.text() and said in " ".join(blocked.command("explain", "79").stdout.split())


@pytest.fixture
def called(tmp_path):
    """A trace of two services: a client, a server with two calls of one name, one of which another service serves, and a span whose caller is not there."""
    with Store(tmp_path / "db") as store:
        for path in OTEL:
            store.ask(path.read_text())
        ask = Answers(store)
        ask.apply()
        ask.agent(-120_000, 300)
        trace = trace_id(6)
        ask.request(10, {"queue": 40, "cpu": 400}, request_id=80, trace_id=trace, parent_span_id="c1")
        ask.row("gil_wait", 200, 60, tid=9, holder_tid=8, holder_thread_name="main", holders=[{"tid": 8, "ns": 60_000_000, "thread_name": "main"}])
        ask.span(trace, "c1", kind="Client", at=0, ms=500)
        ask.span(trace, "s1", "c1", at=50, ms=400)
        ask.span(trace, "d1", "s1", kind="Client", at=100, ms=30)
        ask.span(trace, "d2", "s1", kind="Client", at=150, ms=200)
        ask.span(trace, "p1", "d2", at=160, ms=180, tid=9)
        ask.span(trace, "z1", "lost", kind="Internal", at=300, ms=10)
        store.ask("INSERT INTO otel_traces SELECT * REPLACE ('pay<b>' AS ServiceName, 'q1' AS SpanId, 'd1' AS ParentSpanId) FROM (SELECT * FROM otel_traces WHERE SpanId = 'p1')")
        yield ask


def test_spans_of_a_trace_are_a_tree(called, browser, tmp_path):
    path = page(called, tmp_path / "trace.html", "explain", trace_id(6))
    browser.open(path)
    tree = browser.all(".timeline")[-1]
    lanes = lambda: [e.text for e in browser.all(".lane-name", tree)[1:] if e.is_displayed()]
    whole = ["500.0 ms svc: GET x 5 below", "400.0 ms svc: GET x 4 below", "30.0 ms svc: GET x 1 below", "180.0 ms pay<b>: GET x",
             "200.0 ms svc: GET x 1 below", "180.0 ms svc: GET x", "10.0 ms svc: GET x"]
    assert lanes() == whole, lanes()
    steps = [browser.script("return parseInt(arguments[0].style.paddingLeft)", e) for e in browser.all(".lane-name", tree)[1:]]
    assert steps == [0, 12, 24, 36, 24, 36, 0]
    folds = browser.all("button.fold")
    browser.script("arguments[0].scrollIntoView()", tree)
    folds[2].click()
    assert lanes() == whole[:3] + whole[4:] and folds[2].get_attribute("aria-expanded") == "false"
    folds[1].click()
    assert lanes() == whole[:2] + whole[6:]
    folds[1].send_keys(Keys.ENTER)  # what was folded stays so
    assert lanes() == whole[:3] + whole[4:]
    assert [k.text for k in browser.all(".legend .key")[-2:]] == ["svc", "pay<b>"]
    browser.all("canvas", tree)[1].send_keys(Keys.ARROW_RIGHT)
    assert "server, span s1, h1, pid 7, thread 8, 400.0 ms, from 50.0 ms on" in browser.text()
    rows = browser.rows(browser.table("Where the time of spans went"))
    rest = "120.0 ms the rest of the span"  # the caller of the first has waited 60 ms longer than the span says, of the second 20
    assert rows == [["pay<b>: GET x", "160.0", "240.0", rest], ["svc: GET x", "160.0", "200.0", rest]], rows
    browser.all("tr.opens", browser.table("Where the time of spans went"))[0].click()
    assert "Span GET x: where 240.0 ms went" in browser.text()
    browser.check_quiet(path)
    browser.open(path, width=NARROW)
    assert browser.sideways() == 0


def test_explain_tells_cause_waterfall_and_what_happened(ask, browser, tmp_path):
    path = page(ask, tmp_path / "explain.html", "explain", trace_id(5))
    [request] = json.loads(ask.command("explain", "--json", trace_id(5)).stdout)["requests"]
    browser.open(path)
    text = browser.text()
    assert browser.one("h1").text == "GET /orders: status 200, 750.0 ms" and 'span "GET x" of svc says 345.0 ms (found by its traceparent)' in text
    assert request["causes"] and all(cause["said"] in text and cause["fix"] in text for cause in request["causes"])
    shown = [(row[0].split(":")[0], row[1]) for row in browser.rows(browser.one(".waterfall"))]
    assert shown == [("accept queue", "100.0"), ("queue", "300.0"), ("CPU", "50.0"), ("GIL", "120.0"), ("GC", "160.0"), ("network (20.0 ms of it", "20.0")]
    # bars lie where the parts are: the queue from 100 to 400 of 750 ms
    bar, piece = (browser.script("return arguments[0].getBoundingClientRect().toJSON()", e) for e in (
        browser.all(".waterfall .bar")[1], browser.all(".waterfall .bar > span")[1]))
    assert abs((piece["left"] - bar["left"]) / bar["width"] - 100 / 750) < 0.01 and abs(piece["width"] / bar["width"] - 300 / 750) < 0.01
    lanes = [lane.get_attribute("aria-label") for lane in browser.all("article canvas")]
    assert [l.split(":")[0] for l in lanes] == ["request", "waits of its thread", "had the GIL", "collected"] and "pdf: 1 event" in lanes[2]
    browser.all("article canvas")[1].send_keys(Keys.ARROW_RIGHT)  # the place is the holder's
    assert "gil, which pdf had in render (pdf/draw.py:7)" in browser.all("article .status")[0].text
    browser.all("article canvas")[3].send_keys(Keys.ARROW_RIGHT)
    assert "generation 2" in browser.all("article .status")[0].text and "160.0 ms, from 570.0 ms on" in browser.all("article .status")[0].text
    assert "the 9 threads of its process that serve requests were busy with others 89 % of the time; 3 requests waited at its arrival" in text
    assert ["GET /slow", "8", "3,200", "410.0"] in browser.rows(browser.all("article .table table")[0])
    browser.all(".timeline button")[1].click()
    assert browser.all(".axis span")[0].text == "187.5 ms"  # the middle half of 750 ms
    browser.check_quiet(path)


def test_requests_sort_filter_and_open(ask, browser, tmp_path):
    path = page(ask, tmp_path / "requests.html", "requests", "--since=3h", "--top=50")
    report = json.loads(ask.command("requests", "--since=3h", "--top=50", "--json").stdout)
    browser.open(path)
    [explained] = json.loads(ask.command("explain", "--json", "77").stdout)["requests"]
    short = browser.all("section")[0].text  # the slowest of each endpoint, with its two largest causes
    assert all(cause["said"] in short and cause["fix"] in short for cause in explained["causes"][:2]) and "GET /orders: 750.0 ms" in short, short
    assert [h.text.split(":")[0] for h in browser.all("h3")][:2] == ["GET /orders", "GET /slow"]
    table = browser.table("Slowest requests")
    assert [row[3] for row in browser.rows(table)] == ["750.0"] + 8 * ["410.0"] + ["110.0"] and len(report["slowest"]) == 10
    widths = [browser.script("return [...arguments[0].children].map(c => c.getBoundingClientRect().width)", bar) for bar in browser.all(".bar", table)]
    assert abs(widths[0][1] / widths[0][0] - 3) < 0.05 and len(widths[1]) == 1  # queue 300, accept queue 100; sleep alone
    assert [row[4].endswith(", client_aborted") for row in browser.rows(table)] == 9 * [False] + [True]
    browser.all("th button", table)[3].click()
    assert [row[3] for row in browser.rows(table)][0] == "110.0"
    [slowest] = [s for s in browser.all("section") if s.text.startswith("Slowest requests")]
    browser.one("input[type=search]", slowest).send_keys("/orders")
    [row] = browser.rows(table)
    assert row[1] == "GET /orders"
    browser.all("tbody tr", table)[0].click()
    assert "underspan explain 77" in browser.one(".detail", table).text and trace_id(5) in browser.one(".detail", table).text
    hidden = {row[0]: row[4] for row in browser.rows(browser.table("Endpoints"))}
    assert hidden["GET /orders :8000"] == "0.68" and hidden["GET /slow :8000"] == "0.00"


def test_hostile_names_are_text(ask, browser, tmp_path):
    for name, *command in ("explain", "explain", "78"), ("requests", "requests", "--since=3h", "--top=50"):
        path = page(ask, tmp_path / f"{name}.html", *command)
        browser.open(path)
        for opens in browser.all("tr.opens"):
            opens.click()
        assert browser.script("return window.owned") is None and not browser.all("img")
        text = browser.script("return document.body.textContent")
        shown = text.replace(browser.script("return document.getElementById('data').textContent"), "")
        assert "/</script><script>window.owned=1" in shown and not re.search("[\u202e\x1b\x00]", shown)
        browser.check_quiet(path)
    browser.open(tmp_path / "explain.html")
    owner = [fact.text for fact in browser.all(".facts span")]  # no span: the process says whose it is
    assert owner[0].startswith("service /</script>") and owner[1] == "pod shop-ns/web-1/app", owner
    assert ["queue: bytes there, not read", "not measured"] in [row[:2] for row in browser.rows(browser.one(".waterfall"))]


def test_pages_fit_a_phone_and_the_dark(ask, browser, tmp_path):
    for name, *command in ("explain", "explain", trace_id(5)), ("requests", "requests", "--since=3h"):
        browser.open(page(ask, tmp_path / f"{name}.html", *command), width=NARROW)
        assert browser.sideways() == 0
        paper = browser.script("return getComputedStyle(document.body).backgroundColor")
        browser.button("light / dark").click()
        assert browser.script("return getComputedStyle(document.body).backgroundColor") != paper
    # the last page: a table of cards is sorted by the words above it
    table = browser.table("Slowest requests")
    [by_ms] = [b for b in browser.all("th button", table) if b.text == "ms"]
    assert browser.rows(table)[0][3] == "750.0"
    by_ms.click()
    assert browser.rows(table)[0][3] == "110.0"


def test_a_long_name_leaves_the_cause_on_the_first_screen(ask, browser, tmp_path):
    """A path of 2,000 characters: begin and end are shown, all of it on hovering and in the row's details; columns beside it keep their width."""
    long = "/" + "a" * 998 + "/" + "z" * 1000
    ask.request(2_000, {"queue": 700}, request_id=90, path=long, server_port=8099)
    browser.open(page(ask, tmp_path / "explain.html", "explain", "90"), width=NARROW)
    assert browser.script("return arguments[0].getBoundingClientRect().bottom < innerHeight", browser.one(".causes")) and browser.sideways() == 0
    head = browser.one("h1")
    assert head.text.startswith("GET /aaa") and "\u2026" in head.text and head.text.endswith("zzz: status 200, 700.0 ms") and len(head.text) < 300
    assert browser.one("span", head).get_attribute("title") == f"GET {long}"
    browser.open(page(ask, tmp_path / "requests.html", "requests", "--since=3h", "--top=50"))
    table = browser.table("Slowest requests")
    [row] = [r for r in browser.all("tbody > tr", table) if "zzz" in r.text]
    time_of = browser.all("td", row)[0]
    assert browser.script("return arguments[0].getBoundingClientRect().height", row) < 200 and "\n" not in time_of.text
    row.click()
    assert long in browser.one(".detail", table).text


def test_a_request_of_many_waits_is_a_small_page(tmp_path, browser):
    """10,000 waits in code with a long name, and a path of a megabyte: the longest are drawn, the others counted."""
    with Store(tmp_path / "db") as store:
        ask = Answers(store)
        ask.apply()
        ask.request(0, {"sleep": 60_000}, request_id=91, path="/" + "<a" * 500_000 + "z")
        store.ask("INSERT INTO ebpf_off_cpu (host, pid, tid, host_pid, host_tid, comm, start_time, end_time, duration_ns, cause, state, py_stack) "
                  f"SELECT 'h1', 7, 8, 7, 8, 'python3', fromUnixTimestamp64Micro({ask.base_us} + number * 6000), fromUnixTimestamp64Micro({ask.base_us} + number * 6000 + 1100 + number % 4000), "
                  "(1100 + number % 4000) * 1000, 'sleep', 'S', [concat(repeat('<', 200), toString(number), ' (/srv/app.py:1)')] FROM numbers(9990)")
        path = page(ask, tmp_path / "long.html", "explain", "91")
    assert path.stat().st_size < 2_000_000, path.stat().st_size
    browser.open(path)
    [request] = browser.script("return page.body")["requests"]
    left, waits = request["left_out"], request["waits"]
    lengths = sorted((1100 + i % 4000 for i in range(9990)), reverse=True)
    assert len(waits) > 500 and len(waits) + left["events"] == 9990 and left["ms"] == pytest.approx(sum(lengths[len(waits):]) / 1000)
    assert sorted((w["end_us"] - w["begin_us"] for w in waits), reverse=True) == lengths[:len(waits)]
    assert f"{left['events']:,} shorter events, {left['ms']:,.0f} ms together, are left out: --json has them" in browser.text()
    head = browser.one("h1")
    assert head.text.startswith("GET /<a<a") and head.text.endswith("<az: status 200, 60,000 ms") and browser.sideways() == 0


def test_many_requests_are_a_small_page(tmp_path, browser):
    """4,000 requests of 4,000 endpoints and listeners with hostile names: the first of each list are shown, the others counted."""
    with Store(tmp_path / "db") as store:
        ask = Answers(store)
        ask.apply()
        ask.request(0, {"sleep": 100}, request_id=1, path="/first")
        store.ask("INSERT INTO ebpf_request SELECT ebpf_request.* REPLACE (number + 2 AS request_id, concat('/', repeat('<&', 100), toString(number), 'x') AS path, "
                  "concat('<', toString(number)) AS comm, 50000000 + number * 1000 AS duration_ns, 50000000 + number * 1000 AS sleep_ns, "
                  "toUInt32(number) AS netns) FROM ebpf_request CROSS JOIN numbers(3999) AS numbers")
        path = page(ask, tmp_path / "many.html", "requests", "--since=3h", "--top=10000")
        whole = json.loads(ask.command("requests", "--since=3h", "--top=10000", "--json").stdout)
    assert 1_000_000 < path.stat().st_size < 2_000_000, path.stat().st_size
    browser.open(path)
    body, text = browser.script("return page.body"), browser.text()
    for name in "slowest", "endpoints", "listeners":
        shown = len(body[name])
        assert 200 < shown < 4000 == len(whole[name]) == shown + body["left_out"][name], (name, shown)
    assert [r["request_id"] for r in body["slowest"]] == [r["request_id"] for r in whole["slowest"]][:len(body["slowest"])]
    assert f"and {body['left_out']['slowest']:,} more requests with less: --json has them" in text
    assert f"and {body['left_out']['endpoints']:,} endpoints with less" in text and f"and {body['left_out']['listeners']:,} more listeners" in text
    browser.check_quiet(path)


SLEEPER = """
import sys, threading, time
def nap(): time.sleep(0.05)
def doze(): time.sleep(0.02)
def work(f):
    while True: f()
for f in nap, nap, doze: threading.Thread(target=work, args=(f,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def sleeper():
    process = subprocess.Popen(["/usr/bin/python3", "-c", SLEEPER], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()


def test_offcpu_flame_graph_zooms_and_searches(browser, sleeper, tmp_path):
    path, before = tmp_path / "off.html", tmp_path / "before.folded"
    begun = time.monotonic()
    done = subprocess.run([UNDERSPAN, "offcpu", f"-p{sleeper}", "-d3", "-o", path], capture_output=True, text=True)
    seconds = time.monotonic() - begun
    assert done.returncode == 0 and 0 < path.stat().st_size < 2_000_000, done.stderr
    browser.open(path)
    body = browser.script("return page.body")
    stacks = [(s[0], [body["frames"][i] for i in s[2:]]) for s in body["stacks"]]
    shown = {f: sum(us for us, frames in stacks if any(x.startswith(f + " ") for x in frames)) for f in ("nap", "doze")}
    total = sum(us for us, frames in stacks if "idle" not in frames[-1])
    assert 2 * 2.2e6 < shown["nap"] < 2 * seconds * 1e6 and 2.2e6 < shown["doze"] < seconds * 1e6  # three threads for three seconds
    browser.one("section input[type=search]", browser.all("section")[0]).send_keys("nap (")
    assert browser.one(".matched").text == f"matched: {100 * shown['nap'] / total:.1f} %"
    [match] = browser.all(".frame.match")
    browser.script("arguments[0].click()", match)
    width = browser.script("return [...document.querySelectorAll('.frame.match')].map(f => f.getBoundingClientRect().width)")
    assert width[0] > 1000 and f"{shown['nap'] / 1e3:,.0f} ms" in browser.one(".flame + .status").text
    browser.one(".flame").send_keys(Keys.ESCAPE)
    assert browser.one(".flame + .status").text.startswith("all: ")
    browser.one(".flame").send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert not browser.one(".flame + .status").text.startswith("all: ")
    leaves = {row[3]: float(row[0].replace(",", "")) for row in browser.rows(browser.table("Where threads waited")) if row[2] == "sleep"}
    # on a busy machine a thread is also preempted there, which is another cause
    slept = {f: sum(us for us, frames in stacks if frames[-1].endswith("[sleep]") and any(x.startswith(f + " ") for x in frames)) for f in shown}
    assert abs(leaves["nap (<string>:3)"] - slept["nap"] / 1e3) < 1 and abs(leaves["doze (<string>:4)"] - slept["doze"] / 1e3) < 1
    [cause] = [b for b in browser.all(".legend button") if b.text.startswith("sleep")]
    cause.click()
    assert not any("nap" in row[3] and row[2] == "sleep" for row in browser.rows(browser.table("Where threads waited")))
    # the same process against lines in which naps took twice as long
    before.write_text("".join(f"{';'.join(frames)} {us * (2 if 'nap (<string>:3)' in frames else 1)}\n" for us, frames in stacks))
    subprocess.run([UNDERSPAN, "offcpu", f"-p{sleeper}", "-d3", f"--diff={before}", "-o", tmp_path / "diff.html"], check=True, stderr=subprocess.DEVNULL)
    browser.open(tmp_path / "diff.html")
    rows = browser.rows(browser.table("Where threads waited"))
    changes = [abs(float(row[1].replace(",", ""))) for row in rows]
    assert changes == sorted(changes, reverse=True)  # what changed most is first
    change = {row[4]: float(row[1].replace(",", "")) for row in rows if row[3] == "sleep"}
    assert change["nap (<string>:3)"] < -0.8 * shown["nap"] / 1e3 and "red is longer" in browser.text()
    assert browser.sideways() == 0


def test_gil_shows_what_json_says(browser, tmp_path):
    spin = "import threading\nfor i in range(2): threading.Thread(target=lambda: exec('while True: pass'), daemon=True).start()\nprint('ready', flush=True)\nthreading.Event().wait()"
    process = subprocess.Popen(["/usr/bin/python3", "-c", spin], stdout=subprocess.PIPE)
    process.stdout.readline()
    try:
        html = subprocess.run([UNDERSPAN, "gil", f"-p{process.pid}", "-d2", "--html"], capture_output=True, text=True, check=True).stdout
    finally:
        process.kill()
        process.wait()
    (tmp_path / "gil.html").write_text(html)
    browser.open(tmp_path / "gil.html")
    body = browser.script("return page.body")
    rows = browser.rows(browser.table("Threads that waited"))
    assert [row[2] for row in rows] == [f"{t['waits']:,}" for t in sorted(body["threads"], key=lambda t: -t["wait_ns"])] and body["waits"] > 50
    assert "time with the GIL held and no waiting thread" in browser.text()
    share = 100 * body["wait_ns"] / 1e9 / body["duration_s"]  # two threads that compute: about 100 %
    assert share > 20 and f"{share:.2f} % of that time" in browser.text() and "move that work to another process" in browser.one(".causes").text


def test_few_waits_for_the_gil_have_no_remedy(browser, tmp_path):
    """A thread alone waits for nobody; two that sleep wait now and then, too short a time to change anything."""
    for threads, said in (0, "no thread waited for the GIL in that time"), (2, ": little; where requests waited says"):
        nap = f"import threading, time\ndef nap():\n    while True: time.sleep(0.01)\nfor i in range({threads}): threading.Thread(target=nap, daemon=True).start()\nprint('ready', flush=True)\nthreading.Event().wait()"
        process = subprocess.Popen(["/usr/bin/python3", "-c", nap], stdout=subprocess.PIPE)
        process.stdout.readline()
        try:
            html = subprocess.run([UNDERSPAN, "gil", f"-p{process.pid}", "-d2", "--html"], capture_output=True, text=True, check=True).stdout
        finally:
            process.kill()
            process.wait()
        (tmp_path / "gil.html").write_text(html)
        browser.open(tmp_path / "gil.html")
        waited = browser.script("return page.body.waits")
        assert (said if waited or not threads else "no thread waited") in browser.text() and not browser.all(".fix"), (waited, browser.text())
        assert bool(browser.all("table")) == bool(waited)


def test_a_page_is_no_output_for_a_terminal(ask):
    """The same word of each command, before any question or measurement: where the page goes. --json may go to a terminal."""
    for arguments, example in ((["explain", "5"], "underspan explain --html ID"), (["requests"], "underspan requests --html"), (["gil"], "underspan gil -p PID --html")):
        check_sentence(ask.command(*arguments, "--html", "--json"), USAGE, "html and json exclude each other")
        for form in "--html", "--json":
            master, slave = pty.openpty()
            done = subprocess.run([UNDERSPAN, *arguments, form, "--no-config", "--clickhouse=http://127.0.0.1:1"], stdout=slave, stderr=subprocess.PIPE, text=True)
            os.close(slave)
            with pytest.raises(OSError):  # EIO: nothing is there
                assert not os.read(master, 1000)
            os.close(master)
            if form == "--html":
                assert (done.returncode, done.stderr) == (USAGE, f"underspan: error: html: stdout is a terminal, and a page is for a browser: write it to a file, `{example} > FILE.html`\n"), done
            else:
                assert done.returncode == FAILED and "is ClickHouse running there" in done.stderr, done


def test_the_waker_as_root(ask, browser, tmp_path):
    """Two threads wait for a third: its thread and stack come first, and the time stays the same."""
    ask.agent(0, 20, trackers=["off_cpu_profile"])
    for tid, ms in (31, 30), (32, 12):
        ask.row("off_cpu_profile", 0, 10_000, tid=tid, host_pid=107, host_tid=tid, thread_name=f"waiter-{tid}", cause="lock", syscall="futex", state="S", count=1, off_ns=ms * 10**6,
                py_stack=["take (/srv/app.py:3)"], waker_host_tid=33, waker_thread_name="boss", waker_stack=["post", "release"])
    path = tmp_path / "wakers.html"
    done = ask.command("offcpu", "--since=3h", "--wakers", "-o", str(path))
    assert (done.returncode, done.stderr) == (0, ""), done
    browser.open(path)
    [box] = [l for l in browser.all("label") if l.text == "by the thread that ended the wait"]
    browser.one("input", box).click()
    depths = {}
    for frame in browser.all(".frame"):
        depths.setdefault(frame.value_of_css_property("top"), []).append(frame.get_attribute("aria-label").split(",")[0])
    levels = [sorted(depths[top]) for top in sorted(depths, key=lambda top: float(top[:-2]))]
    assert levels == [["all: 42.0 ms"], ["boss: 42.0 ms"], ["release: 42.0 ms"], ["post: 42.0 ms"], ["waiter-*: 42.0 ms"], ["take (/srv/app.py:3): 42.0 ms"],
                      ["futex [lock]: 42.0 ms"]], levels


def test_locks_of_a_flame_graph(ask, browser, tmp_path):
    """Twelve threads at one lock with hostile names: the table, a row's threads and places, and the storm in words."""
    ask.agent(0, 20, trackers=["off_cpu_profile"])
    take = {"host_pid": 109, "cause": "lock", "syscall": "futex", "state": "S", "py_stack": [HOSTILE.rstrip("\0") + " (/srv/app.py:3)"], "waker_host_tid": 33, "waker_thread_name": HOSTILE}
    ask.row("off_cpu_profile", 0, 10_000, pid=9, count=12, off_ns=1200 * 10**6, **take)
    for i in range(12):
        ask.row("off_cpu", 2000, 100, pid=9, host_tid=50 + i, lock_address=0x7f0011224470, **take)
    path = tmp_path / "locks.html"
    done = ask.command("offcpu", "--since=3h", "-p109", "-o", str(path))
    assert (done.returncode, done.stderr) == (0, ""), done
    browser.open(path)
    [row] = browser.rows(browser.table("Locks"))
    assert row[:5] == ["1,200", "12", "100.0", "12", "12"] and "0x7f0011224470" in row and "app.py:3" in row[5], row
    assert "lock convoy: 12 threads waited at once for lock 0x7f0011224470" in browser.text()
    browser.all("tr.opens", browser.table("Locks"))[0].click()
    assert "others had waited, ms" in browser.text() and browser.script("return window.owned === undefined")
