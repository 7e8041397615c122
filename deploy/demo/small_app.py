# SPDX-License-Identifier: Apache-2.0
"""The demo's services without OpenTelemetry: `wsgi` for gunicorn's sync workers, `asgi` for uvicorn. /orders waits 0.25 s for a
database; /report blocks the thread for 0.4 s without computing, which an event loop cannot afford; further paths answer at once."""
import time


def answer(path):
    if path == "/orders":
        time.sleep(0.25)  # the database
    elif path == "/report":
        write_report()
    return b"done\n"


def write_report():
    time.sleep(0.4)


def wsgi(environ, start_response):
    body = answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = answer(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
