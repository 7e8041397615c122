# SPDX-License-Identifier: Apache-2.0
"""The request ledger at /metrics: counts and sums equal ebpf_request_profile and the clients' counts, open requests equal the clients'
open requests, and Prometheus' programs read the page and the alert rules."""
import collections
import contextlib
import decimal
import http.client
import os
import re
import subprocess
import threading
import time

import pytest
from prometheus_client.openmetrics import parser as openmetrics

import counts
import host
import servers
import test_counts
from test_request import MS, PARTS, TRACKERS, ask, start, trace_of

BOUNDS = ["0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0"]
LACKS = {"accept_queue": "accept", "client_wait": "arrival", "queue": "arrival", "gil": "gil", "gc_own": "gc", "gc_sibling": "gc"}
HOSTILE = b'a"b\\{\x1b[2J<b>\xff'


def page(port, accept="text/plain"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers={"Accept": accept})
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.headers["Content-Type"], answer.read().decode()


def scrape(port):
    """{name: {frozenset of labels: value}}, read by the strict parser of OpenMetrics."""
    kind, text = page(port, "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    samples, exemplars = collections.defaultdict(dict), []
    for family in openmetrics.text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name][frozenset(sample.labels.items())] = sample.value
            if sample.exemplar:
                exemplars.append((sample, sample.exemplar))
    return samples, exemplars, text


def select(samples, name, **labels):
    return {key: value for key, value in samples["underspan_" + name].items() if set(labels.items()) <= key}


def total(samples, name, **labels):
    return sum(select(samples, name, **labels).values())


def exact(text, name, **labels):
    """The sum of the samples, exact: a float would be rounded."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(decimal.Decimal(line.split("# {")[0].split()[-1]) for line in text.splitlines()
               if line.startswith(f"underspan_{name}{{") and all(w in line for w in wanted))


def ns(seconds):
    return int(seconds * 1_000_000_000)


def watch(start_agent, *options, trackers=TRACKERS):
    port = test_counts.free_port()
    agent = start_agent(f"--metrics.listen=127.0.0.1:{port}", "--request.profile_interval=1", *options, trackers=trackers)
    agent.metrics = port
    return agent


def greet(agent, server):
    """The server's port is known from the first request on."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as c:
        first = ask(c, "/", 1)
    agent.wait_rows("ebpf_request", lambda r: r["server_port"] == server.port)
    return first


def wait_counted(agent, server, n):
    def counted():
        return total(scrape(agent.metrics)[0], "request_duration_seconds_count", port=str(server.port)) >= n
    host.wait_until(counted, 15, f"{n} requests at /metrics")
    agent.wait_rows("ebpf_request_profile", lambda r: r["server_port"] == server.port)
    host.wait_until(lambda: sum(r["count"] for r in profile_of(agent, server)) >= n, 15, "the profile's rows")


def profile_of(agent, server):
    return agent.select("ebpf_request_profile", lambda r: r["server_port"] == server.port)


def check_durations(text, samples, profile, port):
    for status in {r["status_class"] for r in profile}:
        rows = [r for r in profile if r["status_class"] == status]
        labels = {"port": port, "status_class": status or "none"}
        assert total(samples, "request_duration_seconds_count", **labels) == sum(r["count"] for r in rows)
        assert ns(exact(text, "request_duration_seconds_sum", **labels)) == sum(r["duration_sum_ns"] for r in rows)
        for i in range(8, 27):
            found = [v for key, v in select(samples, "request_duration_seconds_bucket", **labels).items()
                     if abs(float(dict(key)["le"]) - 2 ** i / 1e6) < 1e-9]
            assert found == [sum(sum(r["histogram"][:i + 1]) for r in rows)], (i, labels)


def check_parts(text, samples, profile, rows, port):
    """Bounds from the rows: all requests beyond request.min_duration_us."""
    for part in PARTS:
        name = part.removesuffix("_ns")
        labels = {"port": port, "part": name}
        lacking = total(samples, "request_not_measured_total", port=port, reason=LACKS[name]) if name in LACKS else 0
        all_of = sum(r["count"] for r in profile) - lacking
        assert total(samples, "request_part_seconds_count", **labels) == all_of, labels
        assert ns(exact(text, "request_part_seconds_sum", **labels)) == sum(r[part] for r in profile), labels
        for bound in BOUNDS:
            above = sum(r["weight"] for r in rows if r[part] is not None and r[part] > float(bound) * 1e9)
            assert total(samples, "request_part_seconds_bucket", le=bound, **labels) == all_of - above, (labels, bound)


@pytest.mark.parametrize("name, slow", [("gunicorn_gthread", "/sleep-60"), ("uvicorn_h11", "/await-60")])
def test_counts_and_sums_are_the_ledgers_and_the_clients(name, slow, start_agent, cleanup, debian_python):
    server = start(cleanup, debian_python, name)
    agent = watch(start_agent)
    truths = [greet(agent, server)]
    for path in ["/"] * 25 + [slow] * 4 + ["/cpu-30"] * 2 + ["/"] * 10:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as c:
            truths.append(ask(c, path, len(truths) + 1))
    wait_counted(agent, server, len(truths))
    samples, exemplars, text = scrape(agent.metrics)
    profile, port = profile_of(agent, server), str(server.port)
    rows = agent.select("ebpf_request", lambda r: r["server_port"] == server.port)
    assert total(samples, "request_duration_seconds_count", port=port) == len(truths) == sum(r["count"] for r in profile)
    check_durations(text, samples, profile, port)
    check_parts(text, samples, profile, rows, port)
    # the clients' clocks: each client waited for the answer, and the handlers worked within the wait
    spent = ns(exact(text, "request_duration_seconds_sum", port=port))
    before = sum(ns(exact(text, "request_part_seconds_sum", port=port, part=p)) for p in ("accept_queue", "client_wait"))
    assert spent - before <= sum(t["client"] for t in truths) + len(truths) * MS
    assert spent >= sum(t["handler"] for t in truths)
    # the newest request of a bucket can be asked for
    ids = {trace_of(t["i"]): t for t in truths}
    mine = [e for sample, e in exemplars if sample.labels["port"] == port]
    assert mine and all(e.labels["trace_id"] in ids for e in mine), mine
    assert {str(r["request_id"]) for r in rows} >= {e.labels["request_id"] for e in mine}
    assert all(e.value <= float(sample.labels["le"]) for sample, e in exemplars), exemplars
    # in the old format, too
    kind, plain = page(agent.metrics)
    assert kind.startswith("text/plain; version=0.0.4") and " # {" not in plain and "# UNIT" not in plain
    test_counts.metrics(agent.metrics)
    checked = subprocess.run(["promtool", "check", "metrics"], input=plain, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked
    agent.stop()
    counts.check(agent)


@pytest.mark.parametrize("name, path, busy, waiting", [("gunicorn_gthread", "/sleep-2500", 3, 2), ("uvicorn_h11", "/await-2500", 1, 0)])
def test_what_is_served_at_the_moment(name, path, busy, waiting, start_agent, cleanup, debian_python):
    """Five clients: three threads serve three clients and two wait; one loop serves all."""
    server = start(cleanup, debian_python, name)
    agent = watch(start_agent)
    greet(agent, server)
    port, truths = str(server.port), []

    def one(i):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as c:
            truths.append(ask(c, path, i))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(2, 7)]
    for t in threads:
        t.start()

    def seen():
        samples = scrape(agent.metrics)[0]
        return [total(samples, "request_" + what, port=port) for what in ("open", "busy_threads", "queue_depth")]
    host.wait_until(lambda: seen() == [5 - waiting, busy, waiting], 2, f"what is served ({seen()})")
    for t in threads:
        t.join()
    assert len(truths) == 5
    host.wait_until(lambda: seen() == [0, 0, 0], 5, f"nothing is served ({seen()})")
    agent.stop()
    counts.check(agent)


def test_hostile_names_and_what_is_not_measured(start_agent, cleanup, debian_python):
    """A process chooses a name; without gc_pause and gil_wait the parts have no series; without the tracker there is none at all."""
    code = ("import ctypes, runpy, sys; ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0); "
            "runpy.run_path(sys.argv[2], run_name='__main__')")
    server = servers.Server([debian_python.path, "-c", code, HOSTILE.hex(), os.path.join(host.WORKLOADS, "request_app.py")])
    cleanup.append(server)
    server.port = int(server.wait_log(r"http://127\.0\.0\.1:(\d+)")[0].group(1))
    agent = watch(start_agent, trackers=["request"])
    greet(agent, server)
    wait_counted(agent, server, 1)
    samples, _, text = scrape(agent.metrics)
    parts = {dict(key)["part"] for key in select(samples, "request_part_seconds_count", port=str(server.port))}
    assert parts == {p.removesuffix("_ns") for p in PARTS} - {"gil", "gc_own", "gc_sibling"} - \
        {p for p in LACKS if total(samples, "request_not_measured_total", port=str(server.port), reason=LACKS[p])}, parts
    assert total(samples, "request_not_measured_total", port=str(server.port), reason="gil") == 1
    services = {dict(key)["service"] for key in select(samples, "request_duration_seconds_count", port=str(server.port))}
    assert services == {'a"b\\{?[2J<b>?'} or not any('"b' in s for s in services) and len(services) == 1, services
    assert "\x1b" not in text
    agent.stop()
    other = watch(start_agent, trackers=["gc_pause"])
    assert not [name for name in scrape(other.metrics)[0] if "request" in name]


# ---- files of the repository ----

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
RULES = os.path.join(ROOT, "deploy", "prometheus", "underspan.rules.yaml")
RUNBOOK = os.path.join(ROOT, "deploy", "prometheus", "README.md")
C_STRINGS = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'


def literal(strings):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings)).replace('\\"', '"')


def families():
    """{name: (type, labels)} in the sources."""
    found = {}
    for directory, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            with open(os.path.join(directory, name)) as f:
                text = f.read()
            for m in re.finditer(r'\{\s*"(\w+)",\s*METRIC_(\w+),\s*(?:NULL|"\w+"),\s*' + C_STRINGS, text):
                found[m[1]] = (m[2].lower(), literal(m[3]))
            for m in re.finditer(r'\b(GAUGE|COUNTER)\(\s*"(\w+)",\s*(?:NULL|"\w+"),\s*' + C_STRINGS, text):
                found[m[2]] = (m[1].lower(), literal(m[3]))
    with open(os.path.join(ROOT, "src", "agent", "counts.h")) as f:
        for m in re.finditer(r"X\((\w+), COUNT_(\w+),\s*(?:\\\n\s*)?" + C_STRINGS, f.read()):
            name = "sent_bytes" if m[1] == "bytes_sent" else re.sub("_ns$", "_seconds", m[1])
            found[name] = ("gauge" if m[2] == "GAUGE" else "counter", literal(m[3]))
    return found


def table():
    lines = ["| metric | type | what |", "|---|---|---|"]
    for name, (kind, what) in sorted(families().items()):
        lines.append(f"| `underspan_{name}{'_total' if kind == 'counter' else ''}` | {kind} | {what} |")
    return "\n".join(lines) + "\n"


def test_the_page_of_metrics_is_the_codes():
    with open(RUNBOOK) as f:
        text = f.read()
    head, mark, rest = text.partition("| metric | type | what |\n")
    if os.environ.get("UNDERSPAN_WRITE_TABLE"):
        with open(RUNBOOK, "w") as f:
            f.write(head + table())
        return
    assert mark + rest == table()
    assert {"request_duration_seconds", "event_loop_lag_seconds", "seen", "spool_bytes"} <= set(families())


def test_each_alert_has_its_place_in_the_runbook():
    with open(RULES) as f, open(RUNBOOK) as g:
        rules, runbook = f.read(), g.read()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) > 10 and alerts == re.findall(r"^### (\w+)", runbook, re.M)
    assert re.findall(r"runbook: deploy/prometheus/README.md#(\w+)", rules) == [a.lower() for a in alerts]
    named = {re.sub("_(total|bucket|count|sum)$", "", n) for n in re.findall(r"(?<![:\w])underspan_(\w+)", rules)}
    assert named <= set(families()), named - set(families())


def test_prometheus_reads_the_rules():
    for command in (["check", "rules", RULES], ["test", "rules", os.path.join(ROOT, "tests", "e2e", "prometheus_rules.yaml")]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
