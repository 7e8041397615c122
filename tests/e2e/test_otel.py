# SPDX-License-Identifier: Apache-2.0
"""deploy/otel under OpenTelemetry's SDK: spans carry the kernel's ids of the starting thread, rows of an agent have the same
ids, and every service still starts."""
import base64
import collections
import concurrent.futures
import csv
import datetime
import hashlib
import json
import os
import re
import subprocess
import zipfile

import pytest

import host
from servers import Server, free_port, get

OTEL = os.path.join(host.ROOT, "deploy", "otel")
NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
CELERY = [path for path in os.environ.get("UNDERSPAN_CELERY", "").split(":") if path]  # further directories of packages, for a Celery that is not installed
ALL = {"server", "child", "other thread", "forked", "collect"}


@pytest.fixture(scope="module")
def sdk():
    """The SDK's directory; fetched by the demo's script."""
    done = subprocess.run([os.path.join(host.ROOT, "deploy/demo/fetch_otel.sh")], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


class Service(Server):
    """workloads/spans.py under a server of two workers; `launcher`: the starting command."""

    def __init__(self, argv, directory, *paths, ready, prefix=(), launcher=(host.DEBIAN_PYTHON, "-m"), otel=OTEL, **env):
        self.spans_path = os.path.join(directory, "spans.jsonl")
        self.port = free_port()
        at = {"gunicorn": [f"--bind=127.0.0.1:{self.port}"], "uvicorn": [f"--port={self.port}"]}.get(argv[0], [])
        super().__init__([*prefix, *launcher, *argv, *at], cwd=directory,
                         env={"PYTHONPATH": ":".join([host.WORKLOADS, otel, *paths]), "SPANS_FILE": self.spans_path, **env})
        self.wait_log(ready, 2)

    def get(self, path):
        def up():
            try:
                return get(("127.0.0.1", self.port), path)
            except ConnectionRefusedError:
                assert self.process.poll() is None, "\n".join(self.log)
        return host.wait_until(up, 15, "the server answers")[0]

    def get_many(self, path, n):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(self.get, [path] * n)) == [{}] * n

    def spans(self):
        with open(self.spans_path) as f:
            return [json.loads(line) for line in f]


@pytest.fixture(scope="module")
def wheel(sdk, tmp_path_factory):
    """Directories for PYTHONPATH: the installed wheel; and a distribution's configurator, by the entry point."""
    built = tmp_path_factory.mktemp("wheel")
    path = subprocess.check_output([f"{OTEL}/wheel.sh", str(built)], text=True).strip()
    installed = built / "installed"
    with zipfile.ZipFile(path) as f:
        f.extractall(installed)
    info = built / "distro" / "distro-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: distro\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[opentelemetry_configurator]\nconfigurator = opentelemetry.sdk._configuration:_OTelSDKConfigurator\n")
    return path, str(installed), str(info.parent)


def gunicorn(directory, *paths, worker_class="gthread", preload=False, hook=True, **more):
    """`hook`: README's snippet, verbatim, for a service without opentelemetry-instrument."""
    readme = open(os.path.join(OTEL, "README.md")).read()
    config = os.path.join(directory, "conf.py")
    with open(config, "w") as f:
        f.write(readme.split("```python\n")[1].split("```")[0] if hook else "")
    argv = ["gunicorn", "--workers=2", f"--worker-class={worker_class}", "--graceful-timeout=2", "-c", config, "spans:wsgi"]
    argv += ["--threads=4"] * (worker_class == "gthread") + ["--preload"] * preload
    return Service(argv, str(directory), *paths, ready="Booting worker with pid", **more)


def uvicorn(directory, *paths, **more):
    return Service(["uvicorn", "--workers=2", "spans:asgi"], str(directory), *paths, ready="Started server process",
                   **{"SPANS_INSTALL": "module", **more})


def instrumented(sdk, wheel):
    """Command to start a service without code for underspan: only the wheel is installed."""
    return {"launcher": [host.DEBIAN_PYTHON, os.path.join(sdk, "../../../bin/opentelemetry-instrument"), host.DEBIAN_PYTHON, "-m"], "otel": wheel[1],
            "SPANS_INSTALL": "entry point"}


def check_ids(spans):
    """Every span has the kernel's ids of the thread at the start of the span; returns (pid, tid) by span name."""
    assert spans
    with open("/proc/sys/kernel/random/boot_id") as f:
        boot_id = f.read().strip()
    by_name = collections.defaultdict(set)
    for span in spans:
        found = span["attributes"]
        assert [found.get("process.pid"), found.get("thread.id")] == found["kernel"], span
        assert (found.get("boot_id"), "pid:[%d]" % found.get("pidns")) == (boot_id, found["namespace"]), span
        assert found["thread.name"] == found["name"], span
        by_name[span["name"]].add(tuple(found["kernel"]))
    return by_name


def check_gunicorn(service, workers_threads):
    def both_served():
        service.get_many("/", 20)
        return len({s["attributes"]["kernel"][0] for s in service.spans()}) == 2
    host.wait_until(both_served, 20, "both workers served")
    for _ in range(10):  # in sequence: the exporter's lock must be free at a fork
        service.get("/fork")
    ids = check_ids(service.spans())
    assert set(ids) == ALL
    workers = {pid for pid, _ in ids["server"]}
    assert len(workers) == 2 and ids["child"] == ids["collect"] == ids["server"]
    # one worker's main thread, or the threads of the worker's pool
    assert all((pid == tid) == (workers_threads == 1) for pid, tid in ids["server"])
    assert not ids["other thread"] & ids["server"] and {pid for pid, _ in ids["other thread"]} == workers
    assert all(pid == tid for pid, tid in ids["forked"]) and len(ids["forked"]) == 10 and not {p for p, _ in ids["forked"]} & workers
    return ids


@pytest.mark.parametrize("preload", [False, True], ids=["loaded by each", "preloaded"])
@pytest.mark.parametrize("worker_class, threads", [("gthread", 4), ("sync", 1)])
def test_gunicorn(sdk, worker_class, threads, preload, tmp_path, cleanup):
    service = gunicorn(tmp_path, sdk, worker_class=worker_class, preload=preload)
    cleanup.append(service)
    check_gunicorn(service, threads)


def test_in_a_pid_namespace(sdk, tmp_path, cleanup):
    service = gunicorn(tmp_path, sdk, prefix=NAMESPACE)
    cleanup.append(service)
    ids = check_gunicorn(service, 4)
    assert max(tid for _, tid in ids["server"]) < 100  # a separate PID namespace: counts from 1


def check_uvicorn(service):
    def both():
        service.get_many("/", 10)
        service.get_many("/sync", 10)
        return len({s["attributes"]["kernel"][0] for s in service.spans()}) == 2
    host.wait_until(both, 20, "both workers served")
    spans = service.spans()
    ids = check_ids(spans)
    assert all(pid == tid for pid, tid in ids["server"] | ids["after await"])  # the loop's thread
    assert all(pid != tid for pid, tid in ids["sync endpoint"])
    parents = {s["context"]["span_id"]: s for s in spans}
    for s in spans:
        if s["name"] == "sync endpoint":
            assert parents[s["parent_id"]]["name"] == "server"


def test_uvicorn(sdk, tmp_path, cleanup):
    service = uvicorn(tmp_path, sdk)
    cleanup.append(service)
    check_uvicorn(service)


@pytest.mark.parametrize("preload, prefix", [(False, []), (True, NAMESPACE)], ids=["loaded by each", "preloaded, namespace"])
def test_gunicorn_instrumented(sdk, wheel, preload, prefix, tmp_path, cleanup):
    """No line of the service's code or configuration: the entry point adds the processor to the configured provider."""
    service = gunicorn(tmp_path, sdk, wheel[2], preload=preload, hook=False, prefix=prefix, SPANS_PROVIDER="configured",
                       **instrumented(sdk, wheel))
    cleanup.append(service)
    check_gunicorn(service, 4)
    assert not any("underspan" in line for line in service.log), service.log


def test_gunicorn_instrumented_sets_its_own(sdk, wheel, tmp_path, cleanup):
    """No distribution configures a provider; the application sets a provider during load, in each worker."""
    service = gunicorn(tmp_path, sdk, hook=False, **instrumented(sdk, wheel))
    cleanup.append(service)
    check_gunicorn(service, 4)
    assert sum("once the application sets one" in line for line in service.log) == 1, service.log


def test_uvicorn_instrumented(sdk, wheel, tmp_path, cleanup):
    service = uvicorn(tmp_path, sdk, wheel[2], SPANS_PROVIDER="configured", **instrumented(sdk, wheel))
    cleanup.append(service)
    check_uvicorn(service)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("by", ["code", "entry point"])
def test_celery(sdk, wheel, by, pool, tmp_path, cleanup):
    """Tasks run in processes that billiard forked after the provider was set, or in threads of a pool: one there, as a fork beside a
    thread that writes a span would find the file's lock taken."""
    paths = [sdk, *CELERY]
    if subprocess.run([host.DEBIAN_PYTHON, "-c", "import celery"], env={"PYTHONPATH": ":".join(CELERY)}, capture_output=True).returncode:
        pytest.skip("no celery: deploy/dependencies.sh servers")
    argv = ["celery", "-A", "celery_tasks", "worker", "--loglevel=info", f"--pool={pool}", f"--concurrency={1 if pool == 'threads' else 2}", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    more = {"SPANS_INSTALL": "module"} if by == "code" else {"SPANS_PROVIDER": "configured", **instrumented(sdk, wheel)}
    service = Service(argv, str(tmp_path), *paths, *[wheel[2]] * (by != "code"), ready="succeeded in", **more)
    cleanup.append(service)
    host.wait_until(lambda: sum(s["name"] == "server" for s in service.spans()) == 10, 20, "ten tasks")
    ids = check_ids(service.spans())
    assert set(ids) == ALL and not {pid for pid, _ in ids["forked"]} & {pid for pid, _ in ids["server"]}
    assert all((pid == tid) == (pool == "prefork") for pid, tid in ids["server"])
    assert ({pid for pid, _ in ids["server"]} == {service.process.pid}) == (pool == "threads")


def test_an_instrumented_service_starts_without_a_provider(sdk, wheel, tmp_path, cleanup):
    service = gunicorn(tmp_path, sdk, hook=False, **{**instrumented(sdk, wheel), "SPANS_PROVIDER": "none"})
    cleanup.append(service)
    service.get_many("/", 20)
    assert any("underspan: no tracer provider is configured yet" in line for line in service.log), service.log
    assert not any("Traceback" in line for line in service.log), service.log


@pytest.mark.light
def test_the_wheel(wheel):
    """The version is underspan's; the same source gives the same bytes; the installed files are listed with the right
    hashes."""
    path, installed, _ = wheel
    version = re.search(r'UNDERSPAN_VERSION "(.*)"', open(f"{host.ROOT}/src/base/version.h").read())[1]
    assert os.path.basename(path) == f"underspan_otel-{version}-py3-none-any.whl"
    again = subprocess.check_output([f"{OTEL}/wheel.sh", installed + ".again"], text=True).strip()
    with open(path, "rb") as a, open(again, "rb") as b:
        assert a.read() == b.read()
    names = set()
    with open(f"{installed}/underspan_otel-{version}.dist-info/RECORD") as f:
        for name, digest, _ in csv.reader(f):
            names.add(name)
            if digest:
                with open(f"{installed}/{name}", "rb") as file:
                    assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(file.read()).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(path) as f:
        assert names == set(f.namelist()) and "underspan_otel.py" in names


@pytest.mark.parametrize("prefix", [[], NAMESPACE], ids=["host", "namespace"])
def test_rows_have_the_spans_ids(sdk, prefix, start_agent, tmp_path, cleanup):
    """Each collection in a span is the row with the same pid and tid, and lies in the span: the join of the
    views."""
    agent = start_agent(trackers=["gc_pause"])
    service = gunicorn(tmp_path, sdk, prefix=prefix)
    cleanup.append(service)

    def covered():
        service.get_many("/", 4)
        workers = {s["attributes"]["process.pid"] for s in service.spans()}
        return len(workers) == 2 and workers <= {r["pid"] for r in agent.select("ebpf_gc_pause", lambda r: r["generation"] == 2)}
    host.wait_until(covered, 20, "collections of both workers are rows")
    before = len(service.spans())
    service.get_many("/", 30)
    spans = [s for s in service.spans()[before:] if s["name"] == "collect"]
    agent.wait_quiet("ebpf_gc_pause", 1)
    agent.stop()

    def microseconds(text):
        return round(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6)
    assert len(spans) == 30
    for s in spans:
        ids = s["attributes"]["process.pid"], s["attributes"]["thread.id"]
        begin, end = microseconds(s["start_time"]), microseconds(s["end_time"])
        inside = agent.select("ebpf_gc_pause", lambda r: (r["pid"], r["tid"]) == ids and begin - 100 <= r["start_time"] and r["end_time"] <= end + 100)
        assert [r["generation"] for r in inside].count(2) == 1, (s, inside)


@pytest.mark.parametrize("with_sdk", [True, False], ids=["no provider", "no SDK"])
def test_a_service_starts_without_a_provider(sdk, with_sdk, tmp_path, cleanup):
    """The hook of README finds no provider: a message in the log, and the service runs."""
    service = gunicorn(tmp_path, *[sdk] * with_sdk, SPANS_PROVIDER="none")
    cleanup.append(service)
    service.get_many("/", 20)
    why = "no tracer provider of the SDK is set (it is a ProxyTracerProvider)" if with_sdk else "the OpenTelemetry SDK is not installed"
    assert any("spans carry no thread ids: " + why in line for line in service.log), service.log
    assert not any("Traceback" in line or "boot" in line and "fail" in line for line in service.log), service.log


NEVER_RAISES = """
import logging, threading, warnings
import underspan_otel
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

# spans that are not recorded, or are over, or break
underspan_otel.install(provider := TracerProvider(sampler=ALWAYS_OFF))
provider.get_tracer("t").start_span("not recorded").end()
processor = underspan_otel.UnderspanSpanProcessor()
class Broken:
    def set_attributes(self, attributes): raise MemoryError("no room")
for span in (Broken(), None, trace.INVALID_SPAN):
    processor.on_start(span)
    processor.on_end(span)
assert processor.force_flush() in (True, None)
processor.shutdown()

# providers that are none, or break
class Refuses:
    def add_span_processor(self, processor): raise RuntimeError("full")
class Unhashable(TracerProvider):
    __hash__ = None
for bad in (Refuses(), object(), 0, Unhashable(), trace.NoOpTracerProvider()):
    assert underspan_otel.install(bad) is False, bad

# twice is once
underspan_otel.install(provider := TracerProvider())
n = len(provider._active_span_processor._span_processors)
assert underspan_otel.install(provider) and len(provider._active_span_processor._span_processors) == n == 1

# names that no exporter can write, that are no text, and that break
provider.add_span_processor(SimpleSpanProcessor(memory := InMemorySpanExporter()))
class Nameless(threading.Thread):
    @property
    def name(self): raise ValueError("no name")
    @name.setter
    def name(self, value): pass
def run():
    provider.get_tracer("t").start_span("s").end()
threads = [threading.Thread(target=run, name="\\udcff half"), threading.Thread(target=run, name="x" * 100000), Nameless(target=run)]
for thread in threads:
    thread.start(); thread.join()
spans = memory.get_finished_spans()
assert [s.attributes["thread.id"] for s in spans] == [t.native_id for t in threads], spans
for s in spans:
    s.to_json().encode()
    assert isinstance(s.attributes["process.pid"], int)
    s.attributes.get("thread.name", "").encode()
assert "thread.name" not in spans[2].attributes

# a namespace that cannot be read: the other ids stay, and half of a key is none
import os
real = os.stat
def hidden(path, *more, **named):
    if str(path).startswith("/proc/self/ns"): raise PermissionError(path)
    return real(path, *more, **named)
assert {"boot_id", "pidns"} <= set(underspan_otel.thread_ids())
underspan_otel._forget_place()
os.stat = hidden
assert set(underspan_otel.thread_ids()) == {"process.pid", "thread.id", "thread.name"}
os.stat = real

# the entry point: whatever is there, it never raises, and a provider that is set later has the processor
underspan_otel.instrument()
underspan_otel.instrument()
trace.set_tracer_provider(provider := TracerProvider())
assert provider in underspan_otel._done and len(provider._active_span_processor._span_processors) == 1
underspan_otel.instrument()
assert len(provider._active_span_processor._span_processors) == 1
print("done")
"""


def test_it_never_raises(sdk):
    done = subprocess.run([host.DEBIAN_PYTHON, "-c", NEVER_RAISES], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": f"{OTEL}:{sdk}"})
    assert done.stdout == "done\n", done.stderr
    assert done.stderr.count("a span goes without its thread's ids") == 1
