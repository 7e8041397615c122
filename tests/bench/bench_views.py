#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_views.py [ROWS] [SECONDS]: what the views and `underspan explain` cost the engine over an hour of 500 requests per second
(tests/e2e/hour.py), with ROWS in ebpf_off_cpu (100 million). `make view-scale` runs this.

Of each question the least of three runs: wall time, CPU time of the engine's process, its peak of memory. The last half of the
requests has no row in the ledger; `explain` is asked about one of each half."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import hour  # noqa: E402
from answers import OTEL, Answers  # noqa: E402
from store_fixture import UNDERSPAN, Store  # noqa: E402

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000_000
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3600
LATEST = "ORDER BY total_ms DESC LIMIT 20"


def cpu(store):
    fields = pathlib.Path(f"/proc/{store.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(store, sql, **params):
    connection = store.connect(timeout=600)
    answer = store.request(body=sql.encode(), connection=connection, **params)
    connection.close()
    assert answer.status == 200, answer.text
    return answer.text


def peak_mb(store):
    """Of resident memory, since the last call."""
    process = pathlib.Path(f"/proc/{store.process.pid}")
    [line] = [line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM")]
    (process / "clear_refs").write_text("5")
    return int(line.split()[1]) // 1024


def measure(store, name, run):
    taken = []
    peak_mb(store)
    for _ in range(3):
        before, begun = cpu(store), time.monotonic()
        run()
        taken.append((time.monotonic() - begun, cpu(store) - before))
    wall, used = (min(column) for column in zip(*taken))
    print(f"{name:<52} {wall:6.2f} s {used:6.2f} s of CPU {peak_mb(store):6} MB", flush=True)


def questions(store):
    for seconds in dict.fromkeys([60, 600, SECONDS]):
        if seconds > SECONDS:
            continue
        window = hour.window(seconds)
        for columns in "count(), sum(total_ms), sum(gc_ms), sum(handoff_ms)", "*":
            of = f"{columns} FROM request_time{window}" + (f" {LATEST}" if columns == "*" else "")
            measure(store, f"{seconds} s: SELECT {columns.partition(',')[0]} FROM request_time", lambda: ask(store, f"SELECT {of}"))
        measure(store, f"{seconds} s: SELECT * FROM request", lambda: ask(store, f"SELECT * FROM request{window} FORMAT Null"))


def explain(store, word):
    env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": store.password}
    done = subprocess.run([UNDERSPAN, "explain", f"--clickhouse={store.url}", "--json", word], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as directory, Store(directory + "/db", "--max_memory_mb=6GiB") as store:
        for path in OTEL:
            ask(store, path.read_text())
        Answers(store).apply()
        begun = time.monotonic()
        hour.make(lambda sql: ask(store, sql), SECONDS, off_cpu_rows=ROWS)
        hour.make_ledger(lambda sql: ask(store, sql), SECONDS // 2)
        print(f"{ROWS} rows in ebpf_off_cpu, {SECONDS} s of 500 requests per second: made in {time.monotonic() - begun:.0f} s")
        questions(store)
        for half, where in ("with a row in the ledger", SECONDS * 125), ("without", SECONDS * 400):
            trace = ask(store, f"SELECT TraceId FROM otel_traces WHERE SpanKind = 'Server' ORDER BY Timestamp LIMIT 1 OFFSET {where}").strip()
            measure(store, f"explain of a request {half}", lambda: explain(store, trace))


if __name__ == "__main__":
    main()
