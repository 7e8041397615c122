# SPDX-License-Identifier: Apache-2.0
"""Rows of sql_known.py for coroutines.sql: stacks of event loops' threads, on a CPU and blocked; and waits within stalls, for stalls.sql."""
from sql_known import HOUR, MINUTE, MS, SECOND

EVENTS, BASE = "/usr/lib/python3.11/asyncio/events.py", "/usr/lib/python3.11/asyncio/base_events.py"
LOOP = [f"Handle._run ({EVENTS}:80)", f"BaseEventLoop._run_once ({BASE}:1922)", f"BaseEventLoop.run_forever ({BASE}:607)",
        "Runner.run (/usr/lib/python3.11/asyncio/runners.py:118)", "<module> (/srv/app/main.py:9)"]
OLD = ["_run (/usr/lib/python3.9/asyncio/events.py:81)", "_run_once (/usr/lib/python3.9/asyncio/base_events.py:1890)"]
UVLOOP = ["run (/usr/lib/python3/dist-packages/uvloop/__init__.py:82)", "<module> (/srv/app/main.py:9)"]
# (stack, the coroutine; None: no coroutine's)
STACKS = [
    (["parse (/srv/app/shop/parse.py:3)", "handle (/srv/app/shop/api.py:9)", *LOOP], "handle (/srv/app/shop/api.py)"),
    (["handle (/srv/app/shop/api.py:12)", *LOOP], "handle (/srv/app/shop/api.py)"),
    (["a (/a.py:1)", "b (/b.py:2)", "c (/c.py:3)", "d (/d.py:4)", "old (/srv/app/old.py:5)", *OLD], "old (/srv/app/old.py)"),
    (["fast (/srv/app/fast.py:7)", *UVLOOP], "fast (/srv/app/fast.py)"),
    # asyncio's own functions within a coroutine are no loop
    ([f"BaseEventLoop.run_in_executor ({BASE}:829)", "to_thread (/usr/lib/python3.11/asyncio/threads.py:25)", "lent (/srv/app/lent.py:2)", *LOOP],
     "lent (/srv/app/lent.py)"),
    (LOOP, None), (UVLOOP, None), (["work (/srv/app/work.py:1)", "Thread.run (/usr/lib/python3.11/threading.py:982)"], None), ([], None)]


def add_to(found, now):
    """Of two processes of one host, within the hour and before; blocked and idle."""
    for table, more in ("ebpf_on_cpu", {}), ("ebpf_off_cpu_profile", {"idle": 0}), ("ebpf_off_cpu_profile", {"idle": 1}):
        template = found[table][0]
        for i, (stack, _) in enumerate(STACKS * 6):
            start = now - (i % 7) * 9 * MINUTE - (2 * HOUR if i % 5 == 4 else 10 * SECOND)
            ns = (i % 11 + 1) * 13 * MS
            found[table].append({**template, **more, "host": "loop-2", "container_id": "", "pid": 60 + i % 2, "host_pid": 60 + i % 2, "tid": 60 + i % 2,
                                 "host_tid": 60 + i % 2, "start_time": start, "end_time": start + ns // 1000, "duration_ns": ns, "weight": 1.0 + i % 3,
                                 "py_stack": stack, **({} if table == "ebpf_on_cpu" else {"off_ns": ns, "cause": "sleep"})})
    is_of_loop = lambda r: (r["host"], r["container_id"], r["pid"], r["tid"]) == ("web-1", "", 7, 7)
    stall, wait = (next(filter(is_of_loop, found[table])) for table in ("ebpf_loop_stall", "ebpf_off_cpu"))
    for i in range(16):
        end, ns = now - 5 * HOUR - i * MINUTE, 200 * MS
        parts = {f"{part}_ns": 0 for part in ("cpu", "runq", "gil", "lock", "net", "disk", "sleep")} | {"cpu_ns": 40 * MS, "other_ns": 160 * MS}
        found["ebpf_loop_stall"].append({**stall, **parts, "start_time": end - ns // 1000, "end_time": end, "duration_ns": ns})
        # from before the stall until after it; too short; not most of it; of a time that another part has
        us = (600, 70_000)[i % 2] if i > 11 else 202_000
        found["ebpf_off_cpu"].append({**wait, "start_time": end + 1000 - us, "end_time": end + 1000, "duration_ns": us * 1000, "idle": 0, "weight": 1.0,
                                      "lock_address": 0, "state": "T" if i % 4 == 3 else "S", "cause": ("child", "pipe", "sleep", "net", "poll")[i % 5]})
    # of code that waits for a child: mostly so, mostly on the CPU, and no such code near the leaf
    waits = ["Popen._wait (/usr/lib/python3.11/subprocess.py:1959)", "run (/usr/lib/python3.11/subprocess.py:550)"]
    for i, (stack, other) in enumerate([(waits, 160), (waits[::-1], 10), ([*STACKS[2][0][:4], *waits], 160)]):
        start, parts = now - (5 + i) * MINUTE, {"cpu_ns": (200 - other) * MS, "other_ns": other * MS}
        found["ebpf_loop_stall"].append({**stall, **{f"{part}_ns": 0 for part in ("runq", "gil", "lock", "net", "disk", "sleep")}, **parts, "host": "loop-3",
                                         "start_time": start, "end_time": start + 200_000, "duration_ns": 200 * MS, "weight": 500.0, "py_stack": stack})


def add_workers(found, now):
    """Of the host loop-4 the threads 1 (a loop) and 2 to 4, which work for it: waits of thread 2 before, in and after its last piece of work, which
    ends 2 ms before an answer's end, ten minutes ago. (columns, begin and end of each wait in ms before the end)"""
    stack, lock = ["Condition.wait (/usr/lib/python3.11/threading.py:324)", "get_connection (/usr/lib/python3/dist-packages/redis/connection.py:9)", "orders (/srv/app/db.py:4)"], {"cause": "lock"}
    for columns, begin, end in (
            ({"tid": 1, "cause": "poll", "idle": 1, "waker_tid": 2}, 700, 600), ({"tid": 1, "cause": "poll", "idle": 1, "waker_tid": 2}, 90, 2),
            ({"tid": 1, "cause": "poll", "idle": 1, "waker_tid": 3}, 1, -40), ({"tid": 2, "cause": "net"}, 690, 605),
            ({"tid": 2, "py_stack": ["before (/srv/app/db.py:8)"], **lock}, 590, 570), ({"tid": 2, "idle": 1, "waker_tid": 1, **lock}, 560, 500),
            ({"tid": 2, "py_stack": stack, **lock}, 500, 200), ({"tid": 2, "py_stack": stack, **lock}, 190, 150),
            ({"tid": 2, "cause": "net", "py_stack": ["ask (/srv/app/db.py:6)"]}, 140, 20), ({"tid": 2, "cause": "sleep"}, 10, -30), ({"tid": 3, "cause": "net"}, 400, 3)):
        at = now - 10 * MINUTE
        wait = {**found["ebpf_off_cpu"][0], "host": "loop-4", "container_id": "", "pid": 7, "waker_pid": 7, "waker_tid": 0, "idle": 0, "state": "S", "py_stack": [],
                "thread_name": f"t{columns['tid']}", "weight": 1.0, "lock_address": 0}
        found["ebpf_off_cpu"].append({**wait, **columns, "start_time": at - begin * 1000, "end_time": at - end * 1000, "duration_ns": (begin - end) * MS})


    for ago, seconds in (4, 10), (14, 9):
        found["ebpf_off_cpu_profile"].append({**found["ebpf_off_cpu_profile"][0], "host": "loop-4", "container_id": "", "pid": 7, "start_time": now - (ago + seconds) * SECOND,
                                              "end_time": now - ago * SECOND, "duration_ns": seconds * 1000 * MS})


def last_worker(known, now):
    return [[2, "t2", "lock", "Condition.wait (python3.11/threading.py:324), called from orders (app/db.py:4)", "pool", 340.0],
            [2, "t2", "net", "ask (app/db.py:6)", "", 120.0]]


def coroutine_of(stack):
    """Of a stack of this file; None: no coroutine, or a stack of sql_known.py."""
    return next((found for known, found in STACKS if known == stack), None)
