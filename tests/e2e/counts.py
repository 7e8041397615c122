# SPDX-License-Identifier: Apache-2.0
"""The agent's counters, as reported in ebpf_agent, and the equations that hold after the end."""
import collections

from agent import promise

GAUGES = {"pending", "queued_rows", "spooled_rows", "sampling_level", "skip_shift"}
FATES = ["filtered", "sampled", "lost_ring", "lost_state", "bad_event", "rows"]
TABLES = {"tcp_connect": ["ebpf_tcp_connect", "ebpf_tcp_connect_closed"]}


def totals(agent):
    """{subject: {column: sum over the intervals, or the last value of a gauge}}"""
    result = collections.defaultdict(collections.Counter)
    for row in sorted(agent.rows["ebpf_agent"], key=lambda r: r["end_time"]):
        for column, value in row.items():
            if isinstance(value, int) and not column.endswith("_time"):
                result[row["tracker"]][column] = value + (0 if column in GAUGES else result[row["tracker"]][column])
    return result


def having(rows, text):
    """Number of rows with the text in a stack."""
    return sum(any(isinstance(value, list) and text in value for value in row.values()) for row in rows)


def check_lacking(subject, counts, rows):
    found = {"rows_gone": having(rows, "<gone>"), "rows_unread": having(rows, "<unread>")}
    if subject == "gc_pause":  # one per collection: by a Python thread, not by siblings
        found["rows_unnamed"] = sum(not row["thread_name"] for row in rows)
    counted = {name: counts[name] for name in found}
    promise(found == counted, (subject, found, counted))


def check(agent):
    """Every event is accounted for; every counted row was written or dropped. Returns the totals."""
    found = totals(agent)
    promise("do not add up" not in agent.stderr, agent.stderr)
    for subject, counts in found.items():
        promise(counts["pending"] == 0, (subject, counts))
        promise(counts["seen"] == sum(counts[fate] for fate in FATES), (subject, counts))
        if subject not in ("processes", "agent"):  # processes has no rows; the rows of agent continue
            written = sum(len(agent.rows[t]) for t in TABLES.get(subject, ["ebpf_" + subject]))
            promise(counts["rows"] == written + counts["dropped_memory"], (subject, counts, written))
            rows = [row for t in TABLES.get(subject, ["ebpf_" + subject]) for row in agent.rows[t]]
            if not counts["dropped_memory"] and all(rows):  # empty batches are only counted, see agent.py
                check_lacking(subject, counts, rows)
    return found
