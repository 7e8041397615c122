# SPDX-License-Identifier: Apache-2.0
"""Where a request's time went, from real servers to the answer: requests of known composition (workloads/answer_app.py), spans
of OpenTelemetry's SDK, the agent, the store; compared with the measurements of client and handler (answer_requests.py)."""
import json
import os
import random
import subprocess
import time

import pytest

import host
from agent import Agent, NO_ENGINE, plain_build
from answer_requests import HOST_NAME, LOOPS, Known, Peer, Service, finish
from answers import OTEL, Answers, rounded
from conftest import GUNICORNS
from store_fixture import Store

pytestmark = plain_build(NO_ENGINE)
GTHREAD = {f"gthread-{generation.version}": generation for generation in GUNICORNS}
SERVERS = [*GTHREAD, "sync", *LOOPS, "waitress", "werkzeug", "later"]
SEED = os.environ.get("E2E_SEED") or random.randrange(1 << 32)
STEPS = ["sleep-60", "cpu-40", "net-60", "lock-50", "gc", "siblinggc-150", "gil-60", "share-60", "disk-30"]
EVERYTHING = "/sleep-30/cpu-20/net-30/lock-30/gc/gil-30/disk-10"
# contents of the spans: with or without the peer's port, and with or without spans of callers, all delivered twice
PHASES = {"no ports": {"ports": False, "callers": False}, "ports": {"ports": True, "callers": False},
          "callers": {"ports": True, "callers": True, "times": 2}}


def each_step(service):
    for step in STEPS + ["await-250"] * (service.kind in LOOPS):
        service.ask("/" + step, name=step)


def behind_busy_threads(service):
    """As many requests as the server has threads, and two that wait."""
    threads = 1 if service.kind in ("sync", *LOOPS) else 2
    requests = [service.send("/sleep-300", name="blocks") for _ in range(threads)]
    time.sleep(0.05)
    requests += [service.send(EVERYTHING, name="waits"), service.send("/sleep-50", name="waits, too")]
    finish(requests)


def kept_alive(service):
    """The second request of a connection comes when all threads are busy."""
    if service.kind in ("sync", "werkzeug", "hypercorn"):
        return
    first = service.ask("/cpu-5", name="first of a connection", keep=True)
    time.sleep(0.05)
    requests = [service.send("/sleep-150", name="blocks") for _ in range(1 if service.kind in LOOPS else 2)]
    time.sleep(0.03)
    finish([*requests, service.send("/cpu-20", name="second of a connection", follows=first)])


def slow_client(service):
    service.ask("/sleep-30", name="slow client", slow_ms=60)


def meanwhile(service):
    """An event loop serves one request while a second request waits."""
    if service.kind in LOOPS:
        requests = [service.send("/await-200", name="awaits")]
        time.sleep(0.05)
        finish([*requests, service.send("/cpu-60", name="computes meanwhile")])


def at_random(service):
    """Any steps in any order, some several times, also while another thread serves."""
    chance = random.Random(f"{SEED} {service.kind}")
    may = [*STEPS, "child-40", "pipe-30"] + ["itself-40"] * (service.kind not in ("sync", *LOOPS))
    for _ in range(3):
        service.ask("/" + "/".join(chance.choices(may, k=4)), name="at random")


SCENARIOS = at_random, each_step, behind_busy_threads, kept_alive, slow_client, meanwhile


class Run:
    """All events, and the answers: {phase: {trace: row}}."""

    def __init__(self, ask):
        self.ask, self.services, self.answers, self.causes = ask, {}, {}, {}
        self.begin = time.time_ns()

    def add(self, name, service):
        self.services[name] = service

    def covered(self):
        """The agent has reported to watch all services, and the collections of each are rows."""
        pids = {name: service.ask("/gc").truth["pid"] for name, service in self.services.items()}

        def all_known():
            text = self.ask.store.ask("SELECT host_pid, count(DISTINCT tracker) FROM ebpf_probe_health WHERE live AND tracker IN ("
                                      "'gc_pause', 'gil_wait', 'handoff', 'off_cpu') GROUP BY host_pid FORMAT TSV")
            known = dict(map(int, line.split()) for line in text.splitlines())
            return all(known.get(pid, 0) == 4 for pid in pids.values())
        host.wait_until(all_known, 15, f"the agent watches {pids}")

        def all_seen():
            for service in self.services.values():
                service.ask("/gc")
            text = self.ask.store.ask("SELECT DISTINCT pid FROM ebpf_gc_pause WHERE generation = 2 FORMAT TSV")
            return set(pids.values()) <= set(map(int, text.split()))
        host.wait_until(all_seen, 15, f"collections of {pids} are rows")

    def spans(self):
        """The server spans by trace, and which requests count."""
        requests = {r.trace: r for service in self.services.values() for r in service.requests}
        spans = [span for service in self.services.values() for span in service.spans()]
        return requests, [span for span in spans if span["SpanKind"] == "Server"]

    def ask_causes(self):
        """Why requests waited for a thread, as `explain` says from the ledger: {service: {name of the cause: cause}}."""
        for name, service in self.services.items():
            [waited] = [r for r in service.requests if r.name == "waits"]
            [row] = json.loads(self.ask.command("explain", "--json", waited.trace).stdout)["requests"]
            self.causes[name] = {cause["cause"]: cause for cause in row["causes"]}

    def tell(self, phase, ports, callers, times=1):
        """Inserts the spans of `phase`, and asks the view."""
        requests, spans = self.spans()
        spans = [dict(s, SpanAttributes={k: v for k, v in s["SpanAttributes"].items() if ports or "peer.port" not in k}) for s in spans]
        spans += [r.client_span() for r in requests.values()] * callers
        self.ask.store.ask("TRUNCATE TABLE otel_traces")
        for _ in range(times):
            self.ask.insert("otel_traces", *spans)
        window = [f"fromUnixTimestamp64Nano({ns}, 'UTC')" for ns in (self.begin, time.time_ns())]
        text = self.ask.store.ask(f"SELECT * FROM request_time_parts(from = {window[0]}, to = {window[1]}) FORMAT JSONEachRow",
                                  connection=self.ask.store.connect(250), output_format_json_quote_64bit_integers=0)
        rows = [row for row in map(json.loads, text.splitlines()) if row["trace_id"] in requests]
        self.answers[phase] = {row["trace_id"]: row for row in rows}
        assert len(rows) == len(self.answers[phase]) == len(requests), f"{phase}: one answer for each request"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    things = []
    try:
        yield make_run(tmp_path_factory.mktemp("servers"), things)
    finally:
        for thing in reversed(things):
            thing.kill()


def make_run(directory, things):
    sdk = subprocess.run([os.path.join(host.ROOT, "deploy/demo/fetch_otel.sh")], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    store = Store(directory / "db")
    things.append(store)
    for path in OTEL:
        store.ask(path.read_text())
    run = Run(Answers(store))
    run.ask.apply()
    os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"] = store.password
    agent = Agent(f"--clickhouse={store.url}", f"--host={HOST_NAME}", "--flush_interval=0.3", "--off_cpu.min_duration_us=100", stdout=False)
    things.append(agent)
    peer = Peer()
    things.append(peer)

    def start(name, **more):
        generation = GTHREAD.get(name, GUNICORNS[0] if name == "sync" else None)
        service = Service(name, str(directory), sdk, peer, generation=generation, **more)
        things.append(service)
        return service
    for name in SERVERS[:-1]:
        run.add(name, start(name))
    agent.wait_ready()
    for service in run.services.values():
        service.wait_up()
    run.covered()
    for service in run.services.values():
        for scenario in SCENARIOS:
            scenario(service)
    # a different server takes the port
    run.services["sync"].kill()
    run.add("later", start("waitress", port=run.services["sync"].port))
    run.services["later"].wait_up()
    behind_busy_threads(run.services["later"])
    for service in run.services.values():
        service.kill()
    agent.stop()
    run.ask_causes()
    # `explain` would answer from the ledger: here the answer must come from request_time_parts
    run.ask.store.ask("TRUNCATE TABLE ebpf_request")
    for phase, said in PHASES.items():
        run.tell(phase, **said)
    return run


CAUSES = {**dict.fromkeys(LOOPS, {"loop_blocked"}), "waitress": {"pool_missing", "threads_missing"}, "later": {"pool_missing", "threads_missing"},
          "sync": {"workers_missing"}}


@pytest.mark.parametrize("name", [name for name in SERVERS if name != "werkzeug"])  # has a thread for each request
def test_threads_that_were_missing_are_the_cause(run, name):
    """A request waited for 250 of 300 ms because earlier requests, as many as the server has threads, were
    being served."""
    found = run.causes[name]
    [known] = CAUSES.get(name, {"threads_missing"}) & set(found)
    assert found[known]["ms"] > 150 and found[known]["fix"] and not {"queue", "accept_queue"} & set(found), found


@pytest.mark.parametrize("name", SERVERS)
def test_every_part_of_each_request(run, name):
    service = run.services[name]
    spans = {span["TraceId"]: span for span in service.spans() if span["SpanKind"] == "Server"}
    wrong = []
    for phase, said in PHASES.items():
        for request in service.requests:
            row = run.answers[phase][request.trace]
            found = Known(request, spans[request.trace], service.requests).wrong(row, said["ports"], said["callers"])
            wrong += [f"{phase}, {request.name} ({request.path}): {'; '.join(found)}: {row}"] * bool(found)
    assert not wrong, "\n".join([f"E2E_SEED={SEED}", *wrong])


@pytest.mark.parametrize("name", ["gthread-20", "sync", "uvicorn"])
def test_explain_says_the_same(run, name):
    [request] = [r for r in run.services[name].requests if r.name == "waits"]
    row = run.answers["callers"][request.trace]
    [said] = [span["request"] for span in run.ask.explain(request.trace) if "request" in span]
    assert rounded(row) == rounded({key: said[key] for key in row})


def test_a_loop_is_said_to_be_one(run):
    """Waits inside a loop have no row: the answer says so for loops, and not for servers with one request per thread at a
    time."""
    rows = {name: [run.answers["callers"][r.trace] for r in run.services[name].requests] for name in SERVERS}
    for name in SERVERS:
        loops = [row for row in rows[name] if any("is an event loop" in text for text in row["not_measured"])]
        assert len(loops) == (len(rows[name]) if name in LOOPS else 0), (name, loops)
    said = run.ask.command("explain", [r for r in run.services["uvicorn"].requests if r.name == "waits, too"][0].trace).stdout
    assert "hand-off: the span's thread is an event loop: no row tells how long a request waits there to be read" in said, said
