# SPDX-License-Identifier: Apache-2.0
"""Five incidents on real servers (deploy/demo/incidents.py): the first screen of `requests --html` and of `explain --html` names the
cause and the fix, and no other incident's cause."""
import json
import os
import re
import runpy
import subprocess
import time

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build
from answers import OTEL
from servers import free_port
from store_fixture import ROOT, Store
from test_grafana import SQL, expand

pytestmark = [plain_build(NO_ENGINE), pytest.mark.sole]  # an incident has one cause only on a quiet machine
DEMO = runpy.run_path(os.path.join(ROOT, "deploy/demo/incidents.py"))

# incident: (sentence, fix); each sentence names the code, as far as code is the cause
CAUSES = {
    "queue": (r"no thread read it: all 2 threads that serve requests in its process were busy with other requests "
              r"\(\d+ % of that time\), longest with GET /orders \(\d+ requests?, [\d.]+ ms\)", "more threads or workers"),
    # the slowest may have been stopped while it waited to be accepted
    "gc": (r"garbage collections (of other threads stopped the request|stopped the process [\d.]+ ms of that); the longest: generation 2 over \d+ objects, "
           r"thread ThreadPoolExecutor-0_\d, triggered by refresh_catalogue", r"gc\.freeze\(\)"),
    "gil": (r"other threads held the GIL, thread ThreadPoolExecutor-0_\d longest \([\d.]+ ms\), in render_report", "move that work to another process"),
    "lock": (r"the thread waited for a lock, in charge \(demo/incidents\.py:\d+\); \d threads had it in turn, longest ThreadPoolExecutor-0_\d "
             r"\([\d.]+ ms, [\d.]+ of it sleep, in ask_database", "do less while holding that lock"),
    "loop": (r"in write_export \(demo/incidents\.py:\d+\), which kept the event loop for 4\d\d\.\d ms", "use await instead of blocking calls"),
}
# what must not be said of the slow request; a collection or a report does stop the thread that accepts connections
NAMED = {"queue": r"all \d+ threads|more threads or workers", "gc": "collections", "gil": r"held the GIL|waited for the GIL", "lock": "for a lock", "loop": "event loop"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """{incident: what the clients measured}, all in one database."""
    with Store(tmp_path_factory.mktemp("incidents") / "db") as store:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}
        for path in OTEL:
            store.ask(path.read_text())
        command(store, "schema", "--apply")
        agent = subprocess.Popen([UNDERSPAN, "run", f"--clickhouse={store.url}", "--flush_interval=1", "--request.min_duration_us=0",
                                  "--governor.cpu_percent=0"], env=env, stderr=subprocess.PIPE, text=True)
        try:
            while "ready" not in agent.stderr.readline():
                assert agent.poll() is None
            yield store, {name: incident(name, store) for name in CAUSES}
        finally:
            agent.terminate()
            agent.wait(30)


def incident(name, store):
    port = free_port()
    service = DEMO["start"](name, port)
    try:
        DEMO["until_watched"](port, lambda sql: int(store.ask(sql)))
        told = DEMO["load"](name, port)
        assert {status for _, status, _ in told} == {200}
    finally:
        service.terminate()
        service.wait(10)
    n = len(told)
    DEMO["until"](lambda: int(store.ask(f"SELECT count() FROM ebpf_request WHERE server_port = {port} AND path != '/warm'")) >= n)
    return told


def command(store, *arguments):
    done = subprocess.run([UNDERSPAN, *arguments, f"--clickhouse={store.url}"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password})
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_screen(browser, path):
    """The texts in the window without scrolling."""
    browser.open(path)
    return browser.script("""return [...document.querySelectorAll("h1, h2, h3, p, li, td")].filter((e) => e.getBoundingClientRect().bottom <= innerHeight)
        .map((e) => e.textContent).join("\\n")""")


@pytest.mark.parametrize("name", CAUSES)
def test_the_first_screen_names_the_cause(told, browser, tmp_path, name):
    store, loads = told
    slow, page = DEMO["INCIDENTS"][name][2], tmp_path / "page.html"
    said, fix = CAUSES[name]
    choice = ["requests", "--since=1h", f"--service=shop-{name}"]
    [row] = json.loads(command(store, *choice, "--json", f"--path={slow}", "--top=1"))["slowest"]
    measured = max(ms for path, _, ms in loads[name] if path == slow)
    # the incident is the slow one; the server's thread may lose its CPU when the client has the answer, and before the write has ended
    assert abs(row["duration_ns"] / 1e6 - measured) < 20 + measured / 20 + row["runq_ns"] / 1e6, (row, measured)

    page.write_text(command(store, *choice, "--html"))
    seen = first_screen(browser, page)
    assert re.search(said, seen) and re.search(f"fix: .*{fix}", seen), seen

    page.write_text(command(store, "explain", row["request_id"], "--html"))
    seen = first_screen(browser, page)
    assert re.search(said, seen) and re.search(f"fix: .*{fix}", seen) and f"GET {slow}" in seen, seen
    [request] = json.loads(command(store, "explain", row["request_id"], "--json"))["requests"]
    causes = [c for c in request["causes"] if c["cause"] != "cpu_missing"]  # a busy machine
    assert any(re.search(said, c["said"] + c["fix"]) for c in causes), causes
    # a wait of unknown cause may be longer on a busy machine; the same may also have kept the thread that accepts
    first = next(c for c in causes if c["fix"])
    assert re.search(NAMED[name], first["said"] + first["fix"]), causes
    others = {other for other, words in NAMED.items() if other != name and any(re.search(words, c["said"] + c["fix"]) for c in causes)}
    assert not others, (others, causes)


def test_the_holders_of_a_lock_add_up(told):
    """Each holds it for the 120 ms of its wait for the bank, the first at the begin for the rest of its own; all of the wait has a holder."""
    store, _ = told
    [row] = json.loads(command(store, "requests", "--since=1h", "--service=shop-lock", "--json", "--top=1"))["slowest"]
    [request] = json.loads(command(store, "explain", row["request_id"], "--json"))["requests"]
    held = [h["held_ms"] for h in request["lock_holders"]]
    longest = max(w["end_us"] - w["begin_us"] for w in request["waits"] if w["cause"] == "lock") / 1000
    assert abs(sum(held) - longest) < 0.01 and len(held) >= 4 and held == sorted(held, reverse=True)
    assert sum(119 < ms < 140 for ms in held) >= len(held) - 1, held
    assert all(h["did"] == "sleep" and h["place"].startswith("ask_database") and h["did_ms"] <= h["held_ms"] for h in request["lock_holders"])
    assert len({h["tid"] for h in request["lock_holders"]}) == len(held) and request["tid"] not in {h["tid"] for h in request["lock_holders"]}


# incident: (panel of Grafana's dashboard of a service, what its first row says)
PANELS = {
    "queue": ("Listeners: threads missing (the window's last hour)", lambda row: row["threads"] == 2 and row["missing_peak"] > 1 and row["waited_ms"] > row["thread_held_ms"]),
    "gc": ("Garbage collections, at exit last", lambda row: row["generation"] == 2 and "refresh_catalogue" in row["set_off_by"]),
    "gil": ("Holders of the GIL", lambda row: "render_report" in row["running"] and row["kept_waiting_ms"] > 300),
    "lock": ("Waits by cause and place", lambda row: row["cause"] == "lock" and row["place"].startswith("charge (")),
    "loop": ("Event-loop stalls by place", lambda row: row["stalled_in"].startswith("write_export (") and row["stalled_ms"] > 1100),
}


@pytest.mark.parametrize("name", PANELS)
def test_grafanas_panel_names_the_cause(told, name):
    """The panel that answers for this kind of cause, of the service's dashboard; sums come every 10 s."""
    panel, says = PANELS[name]

    def rows():
        now = int(time.time())
        sql = expand(SQL["service", panel], now - 3600, now + 60, service=f"shop-{name}")
        return json.loads(told[0].ask(sql, default_format="JSON", output_format_json_quote_64bit_integers=0, readonly=2))["data"]

    DEMO["until"](lambda: any(map(says, rows()[:1])), 25)
