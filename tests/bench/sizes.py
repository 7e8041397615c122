#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""sizes.py [SECONDS] [REQUESTS_PER_SECOND]: rows and bytes that a service costs in the database, with the defaults. `make sizes`
runs this.

gunicorn (2 workers of 4 threads) with Django is asked at a constant rate, each request connects to another service, without a
pool; beside it an agent that watches only this service and writes into an embedded store. Without the governor's limits on CPU, which
would sample on a busy machine: a whole host's rows. Measured after WARM_UP seconds of the same load: until then governor.rows_per_second
lets more rows through. The tables are merged; rows and compressed bytes are those of system.parts."""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
AGENT = os.environ.get("UNDERSPAN", os.path.join(HERE, "..", "..", "build", "underspan"))
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60
RATE = float(sys.argv[2]) if len(sys.argv) > 2 else 100
CLIENTS = 8
WARM_UP = 100  # the burst of a minute at twice the limit, and steps of the limit; the rows until then go with TRUNCATE


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def client(port, until, done):
    """A new connection for each request, as behind a proxy without keep-alive."""
    due = time.monotonic()
    while due < until:
        time.sleep(max(0, due - time.monotonic()))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
            done.append(1)
        except OSError:
            pass
        finally:
            connection.close()
        due += CLIENTS / RATE


def load(port, seconds):
    done, until = [], time.monotonic() + seconds
    threads = [threading.Thread(target=client, args=[port, until, done]) for _ in range(CLIENTS)]
    for i, thread in enumerate(threads):
        time.sleep(1 / RATE if i else 0)
        thread.start()
    for thread in threads:
        thread.join()
    return len(done)


def ask(store, query):
    return subprocess.run([AGENT, "sql", "--no-config", f"--store={store}", "--format=JSONEachRow", query], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def forget(store):
    with open(f"{store}/endpoint") as endpoint, open(f"{store}/password") as password:
        url, key = endpoint.read().strip(), password.read().strip()
    for line in ask(store, "SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, 'ebpf_')").splitlines():
        statement = f"TRUNCATE TABLE {json.loads(line)['name']}".encode()
        urllib.request.urlopen(urllib.request.Request(url, statement, {"X-ClickHouse-User": "default", "X-ClickHouse-Key": key})).read()


def other_service():
    """Takes connections until they are closed; the listener is the caller's."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.recv(1)
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener


def wait_for(port):
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
    sys.exit("sizes: gunicorn does not start")


def measure(directory):
    store, port, other = os.path.join(directory, "store"), free_port(), other_service()
    server = subprocess.Popen([sys.executable, "-m", "gunicorn", "-k", "gthread", "-w", "2", "--threads", "4", "-b", f"127.0.0.1:{port}",
                               "--log-level", "error", "--chdir", HERE, "django_app:app"],
                              env={**os.environ, "BENCH_CONNECT": str(other.getsockname()[1])})
    agent = None
    try:
        wait_for(port)
        agent = subprocess.Popen([AGENT, "run", "--no-config", f"--store={store}", f"--pid={server.pid}", "--log_level=error", "--governor.cpu_percent=100", "--governor.tracker_cpu_percent=0"])
        time.sleep(8)  # the store starts, the processes are found
        load(port, WARM_UP)
        forget(store)
        requests = load(port, SECONDS)
        time.sleep(3)  # the interval of sums ends
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
    finally:
        for process in agent, server:
            if process and process.poll() is None:
                process.terminate()
                process.wait(30)
        other.close()
    parts = []
    for line in ask(store, "SELECT DISTINCT table FROM system.parts WHERE active AND startsWith(table, 'ebpf_') ORDER BY table").splitlines():
        table = json.loads(line)["table"]
        ask(store, f"OPTIMIZE TABLE {table} FINAL")
        parts += [json.loads(ask(store, "SELECT table, toFloat64(sum(rows)) AS rows, toFloat64(sum(data_compressed_bytes)) AS bytes "
                                 f"FROM system.parts WHERE active AND table = '{table}' GROUP BY table"))]
    return requests, parts


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # the engine is a different user
        requests, parts = measure(directory)
    print(f"{requests} requests in {SECONDS:.0f} s\n\n| table | rows a request | bytes a row | bytes a request |\n|---|---|---|---|")
    # few rows tell nothing about compression; tables about the agent do not grow with requests
    for part in sorted(parts, key=lambda p: -p["bytes"]):
        rows, size = part["rows"], part["bytes"]
        if rows >= 100 and part["table"] not in ("ebpf_agent", "ebpf_probe_health", "ebpf_schema"):
            print(f"| `{part['table']}` | {rows / requests:.2f} | {size / rows:.0f} | {size / requests:.0f} |")
    total = sum(p["bytes"] for p in parts)
    print(f"\nAll tables: {total / requests:.0f} bytes a request, {total / SECONDS * 86400 / 1e9:.2f} GB a day at this rate")


main()
