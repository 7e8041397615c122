# SPDX-License-Identifier: Apache-2.0
"""Five incidents: small services without OpenTelemetry, each slow for one reason, and the load that shows it. The pages of deploy/doc
are made of these, and tests/e2e/test_incidents.py reads the cause off the pages.

    incidents.py NAME PORT      the load: prints "PATH STATUS MILLISECONDS" for each request
"""
import gc
import http.client
import os
import subprocess
import sys
import threading
import time

GUNICORN = "/usr/bin/gunicorn --bind=127.0.0.1:{port} --worker-class=gthread --threads={threads} --log-level=warning incidents:wsgi"
UVICORN = "/usr/bin/python3 -m uvicorn --port={port} --log-level=warning incidents:asgi"

# name: (service, load: [(seconds after the begin, path)], the path that is slow without a reason in its own code)
INCIDENTS = {
    "queue": (GUNICORN.replace("{threads}", "2"),
              [(i / 20, "/orders") for i in range(30)] + [(0.5 + i / 5, "/price") for i in range(6)], "/price"),
    "gc": (GUNICORN.replace("{threads}", "8"),
           [(0.2 + i / 2, "/refresh") for i in range(4)] + [(i / 20, "/quotes") for i in range(48)], "/quotes"),
    "gil": (GUNICORN.replace("{threads}", "8"),
            [(0.3, "/report"), (1.8, "/report")] + [(i / 8, "/quotes") for i in range(28)], "/quotes"),
    "lock": (GUNICORN.replace("{threads}", "8"), [(i / 25, "/pay") for i in range(8)] + [(2 + i / 25, "/pay") for i in range(8)], "/pay"),
    "loop": (UVICORN, [(0.3 + i, "/export") for i in range(3)] + [(i / 20, "/price") for i in range(66)], "/price"),
}

payments = threading.Lock()
catalogue = []


def ask_database(seconds):
    time.sleep(seconds)


def quote():
    """Small pieces of work with a wait after each, as a handler that reads a cursor: 36 ms on an idle server."""
    for _ in range(24):
        sum(range(2000))
        ask_database(0.001)


def refresh_catalogue():
    if not catalogue:
        catalogue.extend([i, str(i)] for i in range(700_000))
    gc.collect()


def render_report():
    end = time.thread_time() + 0.8
    while time.thread_time() < end:
        sum(i * i for i in range(5000))


def charge():
    with payments:
        ask_database(0.12)  # the card's bank


def write_export():
    time.sleep(0.4)


HANDLERS = {"/orders": lambda: ask_database(0.25), "/price": lambda: None, "/quotes": quote, "/refresh": refresh_catalogue,
            "/report": render_report, "/pay": charge, "/export": write_export}


def wsgi(environ, start_response):
    HANDLERS.get(environ["PATH_INFO"], lambda: None)()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"done\n"]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    HANDLERS.get(scope["path"], lambda: None)()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"done\n"})


def start(name, port, directory=os.path.dirname(os.path.abspath(__file__))):
    """The service as a process, named shop-NAME in rows, of the incidents.py in the directory."""
    return subprocess.Popen(INCIDENTS[name][0].format(port=port).split(), cwd="/", stdin=subprocess.DEVNULL,
                            env={**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1", "OTEL_SERVICE_NAME": f"shop-{name}"})


def until(true, seconds=40):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("waited too long for the service or its rows")
        time.sleep(0.3)


def until_watched(port, count):
    """Until a request is a row that names the service; count(SQL) is what the database answers."""
    def is_row():
        try:
            request(port, "/warm", 0, [])
        except OSError:
            return False  # the service starts
        return count(f"SELECT count() FROM ebpf_request WHERE server_port = {port} AND service != ''") > 0

    until(is_row)


def request(port, path, delay, told):
    time.sleep(delay)
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    told.append((path, answer.status, round((time.perf_counter() - begin) * 1000, 3)))


def load(name, port):
    """[(path, status, milliseconds)] of all requests, as the client measured."""
    told = []
    if name == "gc":
        request(port, "/refresh", 0, told)  # makes the catalogue
    threads = [threading.Thread(target=request, args=(port, path, delay, told)) for delay, path in INCIDENTS[name][1]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


if __name__ == "__main__":
    for line in load(sys.argv[1], int(sys.argv[2])):
        print(*line)
