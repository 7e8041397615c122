# SPDX-License-Identifier: Apache-2.0
"""The cost of sql/queries: a question about the last hour reads only the days of this hour, and takes time in proportion to
the rows. UNDERSPAN_SQL_ROWS=10000000 is a minute of each table (300,000 by default)."""
import json
import os
import pathlib
import re
import time

import pytest

from store_fixture import ROOT, Store, sql_text

ROWS = int(os.environ.get("UNDERSPAN_SQL_ROWS", 300_000))
SECONDS_A_ROW = 10e-6  # measured: 0.05 to 2 us on two idle processors
DAY = 86400

# 20 hosts of 50 processes of 8 threads
COMMON = """concat('host-', toString(number % 20)) AS host, if(number % 3 = 0, '', repeat(hex(number % 7), 32)) AS container_id,
    toUInt32(intDiv(number, 20) % 50 + 1) AS pid, toUInt32(pid + intDiv(number, 1000) % 8) AS tid, toUInt32(pid + 1000 * (number % 21)) AS host_pid,
    toUInt32(host_pid + tid - pid) AS host_tid, concat('comm', toString(number % 5)) AS comm, concat('Thread-', toString(number % 30)) AS thread_name,
    now64(6, 'UTC') - toIntervalMicrosecond({age} + rand64(1) % {span}) AS start_time, toUInt64(1000 * (1 + rand(2) % 1000000)) AS duration_ns,
    start_time + toIntervalMicrosecond(intDiv(duration_ns, 1000)) AS end_time, toFloat32(if(number % 4 = 0, 2.5, 1)) AS weight"""
STACK = "arrayMap(i -> concat('function_', toString(i * (1 + rand(3) % 20)), ' (/srv/app/module.py:', toString(i), ')'), range(8)) AS {}"
OF_LOOP = STACK.replace(" AS {}", "").join(["arrayPushBack(", ", 'Handle._run (/usr/lib/python3.11/asyncio/events.py:80)') AS py_stack"])
TCP = """toIPv6(concat('::ffff:10.0.', toString(number % 20), '.', toString(rand(5) % 20))) AS remote_ip, toUInt16(443) AS remote_port,
    toUInt16(8000 + number % 9) AS local_port, toUInt32(rand(7) % 5000) AS srtt_us, toUInt32(number % 100 = 0) AS total_retrans"""
TABLES = {
    "ebpf_gc_pause": [COMMON, STACK.format("py_stack"), "toInt8(number % 3) AS generation"],
    "ebpf_gil_wait": [COMMON, STACK.format("holder_py_stack"), "toUInt32(pid) AS holder_tid", """arrayMap(i -> (toUInt32(pid + i),
        toUInt64(1000 * (rand(8) % 100000)), concat('Thread-', toString(i))), range(1 + rand(9) % 4)) AS holders"""],
    "ebpf_handoff": [COMMON, STACK.format("py_stack"), "intDiv(duration_ns, 2) AS handoff_ns", "toUInt16(8000) AS local_port"],
    "ebpf_loop_stall": [COMMON, STACK.format("py_stack"), "duration_ns AS sleep_ns", "['asyncio', 'uvloop'][1 + number % 2] AS loop"],
    "ebpf_on_cpu": [COMMON, OF_LOOP],
    "ebpf_off_cpu_profile": [COMMON, STACK.format("py_stack"), "toUInt64(1 + rand(11) % 99) AS count", "duration_ns AS off_ns",
                             "intDiv(off_ns, 9) AS runq_ns", "off_ns AS max_ns", "['gil', 'lock', 'net', 'sleep'][1 + number % 4] AS cause",
                             "['futex', 'epoll_wait', 'read'][1 + number % 3] AS syscall", "concat('waker', toString(rand(12) % 40)) AS waker_comm"],
    "ebpf_off_cpu": [COMMON, STACK.format("py_stack"), "'lock' AS cause", "toUInt64(140737488355328 + rand(11) % 50 * 16) AS lock_address",
                     "toUInt32(rand(12) % 40) AS waker_host_tid", "'Thread-1' AS waker_thread_name"],
    "ebpf_tcp_accept": [COMMON, TCP, "['accepted', 'accepted', 'dropped'][1 + number % 3] AS kind", "toUInt32(rand(13) % 200) AS queue_len"],
    "ebpf_tcp_connect": [COMMON, TCP, "['success', 'success', 'success', 'refused'][1 + rand(14) % 4] AS outcome"],
    "ebpf_tcp_connect_closed": [COMMON, TCP, "toUInt64(rand(15) % 100000) AS bytes_sent"],
    "ebpf_tcp_loss": [COMMON, TCP, "['retransmit', 'rto', 'tlp', 'zero_window_sent'][1 + rand(14) % 4] AS kind", "duration_ns AS stalled_ns",
                      "toUInt32(3) AS segments"],
    "ebpf_cpu_throttle": [COMMON, "number % 500 AS cgroup_id", "concat('/pod-', toString(cgroup_id)) AS cgroup", "duration_ns AS throttled_ns",
                          "toUInt32(3) AS throttled_periods", "toUInt32(10) AS periods", "50000 AS quota_us", "100000 AS period_us"],
    "ebpf_ena": ["concat('host-', toString(number % 20)) AS host", "'ens5' AS interface",
                 "now64(6, 'UTC') - toIntervalMicrosecond({age} + rand64(1) % {span}) AS start_time", "start_time + INTERVAL 1 SECOND AS end_time",
                 "toUInt64(rand(2) % 50 = 0) AS pps_allowance_exceeded"],
    "ebpf_agent": ["concat('host-', toString(number % 20)) AS host", "['agent', 'gc_pause', 'handoff'][1 + intDiv(number, 20) % 3] AS tracker",
                   "now64(6, 'UTC') - toIntervalMicrosecond({age} + rand64(1) % {span}) AS start_time", "start_time + INTERVAL 10 SECOND AS end_time",
                   "toUInt64(number % 9) AS seen", "seen AS rows"],
    "ebpf_probe_health": ["concat('host-', toString(number % 20)) AS host", "toUInt32(number % 9973 * (number % 1000 != 0)) AS host_pid",
                          "now64(6, 'UTC') - toIntervalMicrosecond({age} + rand64(1) % {span}) AS time", "'gc_pause' AS tracker",
                          "toUInt8(rand(2) % 20 != 0) AS live", "if(live, '', 'no symbol') AS reason"],
}
QUESTIONS = {"gc_pause.sql": ["ebpf_gc_pause"], "gil_wait.sql": ["ebpf_gil_wait"], "handoff_places.sql": ["ebpf_handoff"],
             "loop_stall.sql": ["ebpf_loop_stall"], "coroutines.sql": ["ebpf_on_cpu", "ebpf_off_cpu_profile"],
             "locks.sql": ["ebpf_off_cpu"], "off_cpu.sql": ["ebpf_off_cpu_profile"], "on_cpu.sql": ["ebpf_on_cpu"], "tcp_accept.sql": ["ebpf_tcp_accept"],
             "tcp_connect.sql": ["ebpf_tcp_connect", "ebpf_tcp_connect_closed"], "tcp_loss.sql": ["ebpf_tcp_loss"],
             "cpu_throttle.sql": ["ebpf_cpu_throttle"], "ena.sql": ["ebpf_ena"], "unwatched.sql": ["ebpf_probe_health"],
             "coverage.sql": ["ebpf_agent", "ebpf_probe_health"]}
OF_VIEWS = {"gc_victims.sql", "handoff.sql", "slowest_requests.sql", "slowest_spans.sql"}  # the cost is the view's


def ask(store, sql):
    connection = store.connect(timeout=280)
    answer = store.request(body=sql.encode(), connection=connection, default_format="JSONCompact", output_format_json_quote_64bit_integers=0)
    connection.close()
    assert answer.status == 200, answer.text
    return answer.text


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("scale") / "db") as s:
        for path in sorted(pathlib.Path(ROOT, "sql/tables").glob("*.sql")):
            s.ask(sql_text(path))
        yield s


def insert(store, table, rows, age_seconds, span_seconds):
    """Rows of the given ages, a million at a time, like agents' batches."""
    for first in range(0, rows, 1_000_000):
        of = f"FROM numbers({first}, {min(rows - first, 1_000_000)})"
        columns = ", ".join(TABLES[table]).replace("{age}", str(age_seconds * 10**6)).replace("{span}", str(span_seconds * 10**6))
        names = [c["name"] for c in json.loads(ask(store, f"DESCRIBE (SELECT {columns} {of})  FORMAT JSON"))["data"]]
        ask(store, f"INSERT INTO {table} ({', '.join(names)}) SELECT {columns} {of}")


def test_no_question_is_left_out():
    assert {p.name for p in pathlib.Path(ROOT, "sql/queries").glob("*.sql")} == set(QUESTIONS) | OF_VIEWS


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_question_reads(store, question):
    of_a_day = question in ("ena.sql", "unwatched.sql", "coverage.sql")
    for table in QUESTIONS[question]:
        ask(store, f"TRUNCATE TABLE {table}")
        # rows older than the day before the window do not matter, though equally many
        insert(store, table, ROWS, 49 * 3600, 72 * 3600)
        insert(store, table, ROWS, 0, DAY if of_a_day else 3600 - 60)
    text = pathlib.Path(ROOT, "sql/queries", question).read_text()
    begun = time.monotonic()
    answer = json.loads(ask(store, text))
    took = time.monotonic() - begun
    read = answer["statistics"]["rows_read"]
    print(f"\n{question}: {read} rows read of {2 * ROWS * len(QUESTIONS[question])}, {took:.2f} s, {1e6 * took / ROWS:.2f} us a row", end=" ")
    assert answer["rows"] > 0
    # gc_pause reads granules of the twenty lines twice; coverage asks the two tables several times: only the time is
    # compared
    if question != "coverage.sql":
        assert read <= 1.9 * ROWS * len(QUESTIONS[question]), f"{read} rows read: the days before are read, too"
    assert took <= 2 + SECONDS_A_ROW * ROWS
    for table in QUESTIONS[question]:
        ask(store, f"TRUNCATE TABLE {table}")


@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - {"coverage.sql"}))
def test_days_are_pruned(store, question):
    """EXPLAIN says so: of a part for each of six days those of the window are left, by the times in the partition key."""
    table = QUESTIONS[question][-1]
    ask(store, f"TRUNCATE TABLE {table}")
    for day in range(6):
        insert(store, table, 100, day * DAY, 60)
    plan = ask(store, "EXPLAIN indexes = 1 " + pathlib.Path(ROOT, "sql/queries", question).read_text())
    text = "\n".join(row[0] for row in json.loads(plan)["data"])
    parts = re.findall(r"Min-?Max(?:(?!Min-?Max).)*?Parts: (\d+)/(\d+)", text, re.S)
    assert parts and all(int(of) >= 6 and int(left) <= 3 for left, of in parts), text
    ask(store, f"TRUNCATE TABLE {table}")
