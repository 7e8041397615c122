#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""sizes.py [SECONDS] [REQUESTS_PER_SECOND]: rows and bytes that a service costs in the database, with the defaults. `make sizes`
runs this; with UNDERSPAN_WRITE_TABLE=1 what it prints replaces the tables of deploy/doc/guide.md.

gunicorn (2 workers of 4 threads) with Django is asked at a constant rate, each request connects to another service, without a
pool; beside it an agent that watches only this service and writes into an embedded store. Without the governor's limits on CPU, which
would sample on a busy machine: a whole host's rows. Measured after WARM_UP seconds of the same load: until then governor.rows_per_second
lets more rows through. The tables are merged; rows and compressed bytes are those of system.parts."""
import http.client
import json
import math
import os
import re
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
WRITE = os.environ.pop("UNDERSPAN_WRITE_TABLE", None)  # no variable of the agent
ARGUMENTS = [float(a) for a in sys.argv[1:3]] if __name__ == "__main__" else []
SECONDS, RATE = [*ARGUMENTS, 60, 100][:1] + [*ARGUMENTS[1:], 100][:1]
CLIENTS = 8
GUIDE = os.path.join(HERE, "..", "..", "deploy", "doc", "guide.md")
BEGINS, ENDS = "<!-- written by `make sizes` -->\n", "<!-- end -->\n"
SUMS = ["ebpf_off_cpu_profile", "ebpf_gil_wait_profile"]
LIMITED = [("hand-offs", ["ebpf_handoff"]), ("connections (both tables)", ["ebpf_tcp_connect", "ebpf_tcp_connect_closed"]),
           ("waits off the CPU", ["ebpf_off_cpu"]), ("waits for the GIL", ["ebpf_gil_wait"])]
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
    agent, log = None, open(os.path.join(directory, "log"), "w+")
    try:
        wait_for(port)
        agent = subprocess.Popen([AGENT, "run", "--no-config", f"--store={store}", f"--pid={server.pid}", "--log_level=error", "--governor.cpu_percent=100", "--governor.tracker_cpu_percent=0"], stderr=log)
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
    log.seek(0)
    missing = re.findall(r"(\w+): does not run", log.read())
    parts = []
    for line in ask(store, "SELECT DISTINCT table FROM system.parts WHERE active AND startsWith(table, 'ebpf_') ORDER BY table").splitlines():
        table = json.loads(line)["table"]
        ask(store, f"OPTIMIZE TABLE {table} FINAL")
        parts += [json.loads(ask(store, "SELECT table, toFloat64(sum(rows)) AS rows, toFloat64(sum(data_compressed_bytes)) AS bytes "
                                 f"FROM system.parts WHERE active AND table = '{table}' GROUP BY table"))]
    return requests, parts, missing


def size(gigabytes):
    """Two digits, with the unit that has one or more."""
    value, unit = (gigabytes / 1000, "TB") if gigabytes >= 1000 else (gigabytes, "GB")
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(digits, 0)}f} {unit}"


def hosts(a_request):
    a_day = a_request * RATE * 86400 / 1e9
    text = f"At this rate per host ({RATE:.0f} requests/s), on disk, compressed:\n\n| hosts | a day | kept (TTL 7 days) |\n|---|---|---|\n"
    for n in 1, 100, 1000, 100000:
        text += f"| {n:,} | {size(n * a_day)} | {size(7 * n * a_day)} |\n"
    return text


def kept_longer(known, agent):
    """What flame graphs of a past window need: the sums, and when an agent measured."""
    a_day = 86400 / SECONDS / 1e9
    sums = sum(known[name]["bytes"] for name in SUMS if name in known) * a_day
    reports = sum(p["bytes"] for p in agent) * a_day  # few rows compress badly: at most
    return f"Of that the sums that flame graphs of a past window need (`{'`, `'.join(SUMS)}`): {size(sums)} a day and host, with the agent's reports " \
        f"(`ebpf_agent`, {size(reports)} at most) {size(90 * (sums + reports))} for 90 days.\n"


def tables(requests, parts):
    """The guide's text: bytes by table, hosts, and the limit of rows."""
    text = "| table | rows a request | bytes a row | bytes a request |\n|---|---|---|---|\n"
    # few rows tell nothing about compression; tables about the agent do not grow with requests
    known = {p["table"]: p for p in parts if p["rows"] >= 100 and p["table"] not in ("ebpf_agent", "ebpf_probe_health", "ebpf_schema")}
    for name, part in sorted(known.items(), key=lambda item: -item[1]["bytes"]):
        text += f"| `{name}` | {part['rows'] / requests:.2f} | {part['bytes'] / part['rows']:.0f} | {part['bytes'] / requests:.0f} |\n"
    a_request = round(sum(p["bytes"] for p in parts) / requests)
    text += f"| all tables | | | {a_request} |\n\n" + hosts(a_request)
    text += "\n" + kept_longer(known, [p for p in parts if p["table"] == "ebpf_agent"])
    # both tables of connections are one tracker's: the mean of their rows
    rates = [(what, sum(known[t]["bytes"] for t in of) / sum(known[t]["rows"] for t in of)) for what, of in LIMITED if all(t in known for t in of)]
    return text + "\nAt the limit of 100 rows a second and tracker, with these bytes, a day and host:\n" + \
        ", ".join(f"{what} {bytes_a_row * 100 * 86400 / 1e9:.2f} GB" for what, bytes_a_row in rates) + ".\n"


def write(text):
    with open(GUIDE) as f:
        before, begins, rest = f.read().partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not ends:
        sys.exit(f"sizes: {GUIDE} has no tables to replace")
    with open(GUIDE, "w") as f:
        f.write(before + begins + text + ends + after)


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # the engine is a different user
        requests, parts, missing = measure(directory)
    text = (f"{requests} requests in {SECONDS:.0f} s; {os.cpu_count()} CPUs, Linux {os.uname().release.split('-')[0]}, "
            f"{time.strftime('%Y-%m-%d')}, load {os.getloadavg()[1]:.0f} in the last five minutes"
            f"{'; not measured, as the kernel refused it: ' + ', '.join(missing) if missing else ''}.\n\n" + tables(requests, parts))
    print(text, end="")
    if WRITE:
        write(text)


if __name__ == "__main__":
    main()
