# SPDX-License-Identifier: Apache-2.0
# The demo's gunicorn: one pre-forked gthread worker. demo.sh chooses the threads and whether to freeze, by the
# environment; both are fixes tried by the demo.

import gc
import os
import socket

run_dir = os.environ["DEMO_DIR"]

bind = "127.0.0.1:0"
workers = 1
worker_class = "gthread"
threads = int(os.environ["DEMO_THREADS"])
preload_app = True
timeout = 120
graceful_timeout = 2
worker_tmp_dir = run_dir


def when_ready(server):
    if os.environ.get("DEMO_FREEZE") == "1":
        # the catalogue lives as long as the process: collections may skip it
        gc.collect()
        gc.freeze()
    port = server.LISTENERS[0].sock.getsockname()[1]
    with open(f"{run_dir}/gunicorn.port.new", "w") as file:
        file.write(str(port))
    os.rename(f"{run_dir}/gunicorn.port.new", f"{run_dir}/gunicorn.port")


def post_fork(server, worker):
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from store import Store, StoreSpanExporter
    from underspan_otel import UnderspanSpanProcessor

    resource = Resource.create({"service.name": "shop", "host.name": socket.gethostname()})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(UnderspanSpanProcessor())
    exporter = StoreSpanExporter(Store(os.environ["DEMO_STORE"]))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    trace.set_tracer_provider(provider)
