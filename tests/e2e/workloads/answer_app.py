# SPDX-License-Identifier: Apache-2.0
"""A service with requests composed of known steps (request_steps.py), as WSGI (`wsgi`) and ASGI (`asgi`) application, with OpenTelemetry's SDK:
spans are lines of SPANS_FILE, in the form of the collector's table. `answer_app.py waitress|werkzeug PORT`: under the named server."""
import asyncio
import json
import os
import sys

import underspan_otel
from opentelemetry import propagate, trace
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from request_steps import Truth, steps
from store import StoreSpanExporter


def handle(environ, start_response):
    truth = Truth(environ["REMOTE_PORT"])
    for step, ms in steps(environ["PATH_INFO"]):
        truth.add(step(ms))
    body = truth.body()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    """The span begins and ends, and has the peer's port, as in OpenTelemetry's middleware for ASGI."""
    if scope["type"] != "http":
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    with tracer.start_as_current_span(scope["method"], context=propagate.extract(headers), kind=trace.SpanKind.SERVER,
                                      attributes={"net.peer.port": scope["client"][1]}):
        truth = Truth(scope["client"][1])
        for step, ms in steps(scope["path"]):
            parts = step(ms)
            truth.add(await parts if asyncio.iscoroutine(parts) else parts)
        body = truth.body()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


def make_provider():
    provider = TracerProvider(resource=Resource.create({"host.name": os.environ["HOST_NAME"]}))
    exporter = ConsoleSpanExporter(out=open(os.environ["SPANS_FILE"], "a"), formatter=lambda span: json.dumps(StoreSpanExporter.row(span)) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    underspan_otel.install()
    return provider


provider = make_provider()
tracer = provider.get_tracer("answers")
wsgi = OpenTelemetryMiddleware(handle, tracer_provider=provider)

if __name__ == "__main__":
    if sys.argv[1] == "waitress":
        import waitress
        waitress.serve(wsgi, host="127.0.0.1", port=int(sys.argv[2]), threads=2)
    else:
        import werkzeug.serving
        werkzeug.serving.run_simple("127.0.0.1", int(sys.argv[2]), wsgi, threaded=True)
