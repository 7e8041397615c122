# SPDX-License-Identifier: Apache-2.0
"""Random requests on random servers, by a few fixed seeds of tests/random: the row of each agrees with the clocks of its client and of its handler.
`make random` plays more, and tests/random/README.md says how to read what is reported. What is wrong in one play of three is the machine's."""
import os
import sys

import pytest

from agent import ROOT

sys.path.append(os.path.join(ROOT, "tests", "random"))

from check import check  # noqa: E402
from plan import make  # noqa: E402
from play import Stage  # noqa: E402
from result import Result  # noqa: E402

pytestmark = pytest.mark.sole  # milliseconds, of up to six requests at once

# of each model; 23 has a proxy, 42 a unix socket, 35 six threads of the client
SEEDS = {1: "gunicorn-gthread", 23: "gunicorn-sync", 35: "tornado", 38: "uvicorn-h11", 42: "gunicorn-gevent", 55: "fastapi"}


@pytest.fixture(scope="module")
def stage():
    stage = Stage()
    yield stage
    try:
        stage.stop()
    finally:
        stage.kill()


@pytest.fixture(scope="module")
def play(stage):
    return stage.play(make(1))


@pytest.mark.parametrize("seed, kind", SEEDS.items())
def test_rows_agree_with_both_clocks(stage, seed, kind):
    assert make(seed)["kind"] == kind
    result = Result(stage, seed)
    print(result.line())
    assert not result.lasting, "\n".join([result.line(), *result.report()])
    assert result.counts["compared"]


@pytest.mark.parametrize("aspect, change", [
    ("sum", lambda row: {"duration_ns": row["duration_ns"] + 1}),
    ("stamps", lambda row: {"end_time": row["end_time"] + 1000}),
    ("null", lambda row: {"other_ns": None}),
    ("path", lambda row: {"path": "/"}),
    ("trace", lambda row: {"trace_id": ""}),
    ("span", lambda row: {"parent_span_id": "1" * 16}),
    ("method", lambda row: {"method": "PATCH"}),
    ("connection_request", lambda row: {"connection_request": row["connection_request"] + 1}),
    ("status", lambda row: {"status": row["status"] + 1}),
    ("outcome", lambda row: {"outcome": "no_answer"}),
    ("bytes_in", lambda row: {"bytes_in": row["bytes_in"] + 1}),
    ("bytes_out", lambda row: {"bytes_out": row["bytes_out"] + 1}),
    ("end_by", lambda row: {"end_by": "upgrade"}),
    ("whole", lambda row: {"duration_ns": row["duration_ns"] * 2}),
    ("client_wait high", lambda row: {"client_wait_ns": row["duration_ns"]}),
    ("before high", lambda row: {"queue_ns": row["duration_ns"]}),
    ("pid", lambda row: {"pid": 1}),
    ("tid", lambda row: {"tid": 1}),
    ("model", lambda row: {"model": "pool"}),
    ("low sleep", lambda row: {"sleep_ns": 0}),
    ("high lock", lambda row: {"lock_ns": row["duration_ns"]}),
    ("low cpu", lambda row: {"cpu_ns": 0}),
    ("high gil", lambda row: {"gil_ns": row["duration_ns"]}),
    ("high client_slow", lambda row: {"client_slow_ns": row["duration_ns"]}),
])
def test_what_is_not_true_is_found(play, monkeypatch, aspect, change):
    """A test of the comparison: rows that are changed."""
    monkeypatch.setattr(play, "rows", [{**row, **change(row)} for row in play.rows])
    assert aspect in {mismatch.aspect for mismatch in check(play)[0]}


@pytest.mark.parametrize("aspect, rows", [
    ("rows", lambda rows: rows[1:]),
    ("rows", lambda rows: [rows[0], *rows]),
    ("row of no request", lambda rows: [*rows, {**rows[0], "trace_id": "1" * 32}]),
])
def test_a_missing_or_invented_row_is_found(play, monkeypatch, aspect, rows):
    monkeypatch.setattr(play, "rows", rows(play.rows))
    assert aspect in {mismatch.aspect for mismatch in check(play)[0]}
