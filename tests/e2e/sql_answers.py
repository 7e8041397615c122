# SPDX-License-Identifier: Apache-2.0
"""The files of sql/views and sql/explain: how each is asked of the rows of sql_known.py, and what has to come back. VIEWS and
EXPLAIN: file name -> a question with its parameters, and a function of (rows by table, now) that returns the whole result, as in
sql_truth.py; None: it is executed, its figures are held elsewhere."""

PROCESS = {"pid": 7, "tid": 7, "host": "web-1", "container_id": "c-1", "from_us": 0, "to_us": 1 << 51}

WINDOW = "(from = now() - INTERVAL 1 HOUR, to = now())"
# their figures are held in test_answer.py
VIEWS = {"otel_span.sql": ("SELECT * FROM otel_span", {}, None),
         "request_time.sql": (f"SELECT * FROM request_time{WINDOW}", {}, None),
         "request_time_parts.sql": (f"SELECT * FROM request_time_parts{WINDOW}", {}, None)}
EXPLAIN = {name: (None, PROCESS, None) for name in ("gc.sql", "handoff.sql", "throttle.sql", "waits.sql")}
EXPLAIN["spans.sql"] = (None, {"trace_id": f"{0:032x}", "first": "2026-01-01 00:00:00", "last": "2100-01-01 00:00:00"}, None)
EXPLAIN["when.sql"] = (None, {"trace_id": f"{0:032x}"}, None)
