# SPDX-License-Identifier: Apache-2.0
"""The demo's clients: load.py STORY PHASE PORT STORE_DIR sends a fixed schedule of requests and writes each
measurement into otel_traces, like the client span of a caller with OpenTelemetry.

Written by hand, for clock readings as close to the socket as possible.
"""

import asyncio
import os
import secrets
import socket
import sys
import time

from store import Store

story, phase, port, store_dir = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
spans = []


async def request(path, delay=0.0):
    await asyncio.sleep(delay)
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    sent, begin = time.time_ns(), time.perf_counter_ns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"
        f"traceparent: 00-{trace_id}-{span_id}-01\r\n\r\n".encode()
    )
    reply = await reader.read()
    duration = time.perf_counter_ns() - begin
    writer.close()
    if not reply.startswith(b"HTTP/1.1 200 "):
        sys.exit(f"the shop answered {path} with {reply[:60]!r}")
    spans.append(
        {
            "Timestamp": sent,
            "TraceId": trace_id,
            "SpanId": span_id,
            "SpanName": "GET",
            "SpanKind": "Client",
            "ServiceName": "clients",
            "ResourceAttributes": {"service.name": "clients", "host.name": socket.gethostname()},
            "SpanAttributes": {"url.path": path, "demo.story": story, "demo.phase": phase, "process.pid": str(os.getpid())},
            "Duration": duration,
            "StatusCode": "Unset",
        }
    )


async def queue():
    """16 requests a second for 4 s. Each waits 0.25 s for a database: two threads serve 8 a second."""
    await asyncio.gather(*(request("/orders", i / 16) for i in range(64)))


async def gc():
    """20 short requests a second, beside a client that requests reports, one after the other."""
    prices = [asyncio.create_task(request("/price", i / 20)) for i in range(240)]
    for _ in range(6):
        await request("/report", 1.0)
    await asyncio.gather(*prices)


asyncio.run({"queue": queue, "gc": gc}[story]())
Store(store_dir).insert("otel_traces", spans)
