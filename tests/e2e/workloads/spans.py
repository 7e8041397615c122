# SPDX-License-Identifier: Apache-2.0
"""A service with OpenTelemetry's SDK, as WSGI (`wsgi`) and ASGI (`asgi`) application. Each span has the kernel's ids of the
starting thread in the attribute `kernel`; spans are lines of SPANS_FILE, by the SDK's exporter."""
import asyncio
import contextvars
import gc
import json
import os
import threading

tracer = None


def set_up():
    """As an application does during load. SPANS_PROVIDER=none: there is no SDK, or no provider is set; "configured": the
    service was started by opentelemetry-instrument, which has set a provider. SPANS_INSTALL: the place that adds underspan's
    processor."""
    global tracer
    how = os.environ.get("SPANS_PROVIDER")
    if how == "none":
        if os.environ.get("SPANS_INSTALL") != "entry point":
            import underspan_otel
            underspan_otel.install()
        return
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    provider = trace.get_tracer_provider() if how == "configured" else TracerProvider()
    out = open(os.environ["SPANS_FILE"], "a")  # appends: workers share the file
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")))
    if how != "configured":
        trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("spans")
    if os.environ.get("SPANS_INSTALL") == "module":
        import underspan_otel
        underspan_otel.install()


def kernel():
    """[pid, tid] of this thread in the kernel, in the process's PID namespace and in the namespace of
    /proc."""
    with open("/proc/thread-self/status") as f:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    return [int(fields["NStgid"].split()[-1]), int(fields["NSpid"].split()[-1])]


def span(name):
    """Started by the calling thread."""
    return tracer.start_as_current_span(name, attributes={
        "kernel": kernel(), "namespace": os.readlink("/proc/thread-self/ns/pid"), "name": threading.current_thread().name})


def work(path):
    """A request's work inside the server span: a child, a span of a second thread, a span of a forked process, a
    collection."""
    with span("child"):
        pass
    context = contextvars.copy_context()

    def elsewhere():
        with span("other thread"):
            pass
    thread = threading.Thread(target=context.run, args=(elsewhere,), name="other's")
    thread.start()
    thread.join()
    if path == "/fork":
        pid = os.fork()
        if not pid:
            with span("forked"):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
    with span("collect"):
        gc.collect()


def wsgi(environ, start_response):
    body = b"{}"
    if tracer:
        with span("server"):
            work(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def endpoint(path):
    with span("sync endpoint"):
        work(path)


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    with span("server"):
        if scope["path"] == "/sync":
            await asyncio.to_thread(endpoint, scope["path"])
        else:
            work(scope["path"])
            await asyncio.sleep(0.01)
            with span("after await"):
                pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2"), (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": json.dumps({}).encode()})


set_up()
