# SPDX-License-Identifier: Apache-2.0
"""The demo's stories without spans: ledger.py STORY PORT sends a load, waits until the requests are rows of ebpf_request, and shows the
slowest: the client's measurement beside the kernel's. Client and row are joined by the client's port and the time: ports are used
again."""
import asyncio
import sys
import time

from report import ask, heading, ms

story, port = sys.argv[1], int(sys.argv[2])
waited = []  # by the client: (its port, begin and end in microseconds since 1970, nanoseconds between)

PARTS = ("accept_queue client_wait queue pool_wait cpu runq throttled gil gc_own gc_sibling lock net disk fault sleep pipe child other await "
         "loop_busy client_slow").split()

STORIES = {
    "sync": {
        "title": "Story 3, without spans: gunicorn's sync workers",
        "victim": "/orders",
        "text": [
            "Two sync workers, 16 requests a second of 0.25 s each. A worker accepts the next connection when it has answered the",
            "last one: the others wait in the kernel's accept queue. No line of the service knows of underspan or OpenTelemetry.",
        ],
    },
    "loop": {
        "title": "Story 4, without spans: a blocking call in a coroutine",
        "victim": "/price",
        "text": [
            "uvicorn, one event loop. /price takes no time at all, but once a second a /report blocks the loop for 0.4 s: requests that",
            "come meanwhile lie unread (queue), or their connections are not even accepted (accept_queue).",
        ],
    },
}


async def request(path, delay):
    await asyncio.sleep(delay)
    begin_us, begin = time.time_ns() // 1000, time.perf_counter_ns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    own_port = writer.get_extra_info("sockname")[1]
    writer.write(f"GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n".encode())
    reply = await reader.read()
    ns = time.perf_counter_ns() - begin
    waited.append((own_port, begin_us, begin_us + ns // 1000, ns))
    writer.close()
    if not reply.startswith(b"HTTP/1.1 200 "):
        sys.exit(f"the service answered {path} with {reply[:60]!r}")


async def load():
    orders = [request("/orders", i / 16) for i in range(48)] if story == "sync" else []
    prices = [request(path, delay) for i in range(3) for path, delay in (
        ("/report", 0.2 + i), *(("/price", i + j / 20) for j in range(20)))] if story == "loop" else []
    await asyncio.gather(*orders, *prices)


def client_ns(row):
    """What the client measured; None: not a request of the load."""
    return next((ns for own_port, begin_us, end_us, ns in waited
                 if own_port == row["peer_port"] and begin_us - 1000 <= int(row["start_us"]) <= end_us), None)


def rows(since):
    """All of the load, or fewer after 15 s: the table then says so."""
    deadline = time.monotonic() + 15
    while True:
        found = [row for row in ask(f"SELECT *, toUnixTimestamp64Micro(start_time) AS start_us FROM ebpf_request "
                                    f"WHERE server_port = {port} AND start_time >= '{since}'") if client_ns(row) is not None]
        if len(found) >= len(waited) or time.monotonic() > deadline:
            return found
        time.sleep(0.3)


def places(row):
    """The parts of a hundredth and more, the largest first."""
    found = sorted(((int(row[f"{part}_ns"] or 0), part) for part in PARTS), reverse=True)
    return " + ".join(f"{part} {ms(ns / 1e6)}" for ns, part in found if ns > int(row["duration_ns"]) / 100)


def tell(found):
    told = STORIES[story]
    heading(told["title"])
    print("\n".join(told["text"]) + "\n")
    victims = sorted((row for row in found if row["path"] == told["victim"]), key=lambda row: -int(row["duration_ns"]))
    print(f"{'slowest ' + told['victim']:<16} {'client':>9} {'ledger':>9} = its parts")
    for row in victims[:5]:
        client = client_ns(row) / 1e6
        print(f"{row['method'] + ' ' + row['path']:<16} {ms(client):>9} {ms(int(row['duration_ns']) / 1e6):>9} = {places(row)}")
    gaps = [abs(client_ns(row) - int(row["duration_ns"])) / 1e6 for row in found]
    off = sum(sum(int(row[f"{part}_ns"] or 0) for part in PARTS) != int(row["duration_ns"]) for row in found)
    print(f"\n{len(found)} of {len(waited)} requests are rows; the parts of {len(found) - off} add up to the nanosecond; the client measured "
          f"{ms(max(gaps, default=0))} more at most.")


def tell_stalls(since):
    pids = f"SELECT pid FROM ebpf_request WHERE server_port = {port} AND start_time >= '{since}'"
    for row in ask(f"SELECT count() AS n, min(duration_ms) AS shortest, max(duration_ms) AS longest, arrayStringConcat(arraySlice("
                   f"argMax(py_stack, duration_ns), 1, 2), ' < ') AS place FROM ebpf_loop_stall WHERE pid IN ({pids}) HAVING n > 0"):
        print(f"The loop did not poll {row['n']} times for {ms(row['shortest'])} to {ms(row['longest'])} (ebpf_loop_stall), in {row['place']}.")


began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
asyncio.run(load())
tell(rows(began))
if story == "loop":
    tell_stalls(began)
