# SPDX-License-Identifier: Apache-2.0
"""Rows of sql_known.py for locks.sql: waits for the locks of two processes, which have one address in common."""
from sql_known import HOUR, MINUTE, MS, SECOND

ADDRESSES = (0x7f0011224470, 0x7f0011224480, 2**64 - 8)
PLACES = ([f"{f} (/srv/app/{f}.py:{i})" for i, f in enumerate(["acquire", "take", "charge", "handle", "run"])], ["charge (/srv/app/charge.py:9)"], [])


def add_to(found, now):
    """Within the hour and before; ended by one of three threads, by one without a name, or by none; idle; without an address."""
    template = found["ebpf_off_cpu"][0]
    for i in range(90):
        start = now - (i % 7) * 9 * MINUTE - (2 * HOUR if i % 5 == 4 else 10 * SECOND)
        ns, waker = (i % 11 + 1) * 13 * MS, i % 4
        found["ebpf_off_cpu"].append({
            **template, "host": "lock-2", "container_id": "c" * 64 if i % 2 else "", "pid": 60 + i % 2, "host_pid": 60 + i % 2, "tid": 70 + i % 5,
            "host_tid": 70 + i % 5, "start_time": start, "end_time": start + ns // 1000, "duration_ns": ns, "weight": 1.0 + i % 3, "cause": "lock",
            "idle": int(i % 13 == 12), "syscall": "futex", "py_stack": PLACES[i % 3], "user_stack": ["pthread_mutex_lock", "work"] if i % 3 == 2 else [],
            "lock_address": 0 if i % 10 == 9 else ADDRESSES[i // 2 % 3], "waker_pid": 60, "waker_tid": waker and 90 + waker, "waker_host_tid": waker and 90 + waker,
            "waker_comm": "python3" if waker else "", "waker_thread_name": "Thread-<b>" if waker == 1 else ""})
