# SPDX-License-Identifier: Apache-2.0
"""deploy/demo/agree.py compares `underspan explain` with the views in `make demo`: no difference for known requests with and
without a row in the ledger; a view with a different answer is noticed."""
import os
import runpy

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build
from answers import OTEL, Answers, trace_id
from store_fixture import ROOT, Store

pytestmark = plain_build(NO_ENGINE)


@pytest.fixture
def agree(tmp_path, monkeypatch):
    """check() of two requests with one trace id each: all parts; with a collection, and a wait on a thread of a second
    host."""
    with Store(tmp_path / "db") as store:
        for path in OTEL:
            store.ask(path.read_text())
        ask = Answers(store)
        ask.apply()
        ask.agent(-120_000, 300)
        ask.known()
        for n, parts in (1, {"queue": 285, "cpu": 94.123456, "net": 0.5}), (2, {"accept_queue": None, "gil": None, "cpu": 40, "gc_sibling": 30}):
            at = 1000 * n
            ask.span(trace_id(n), f"c{n}", kind="Client", at=at, ms=400, resource={"host.name": "h2"})
            ask.span(trace_id(n), f"s{n}", f"c{n}", at=at + 300, ms=90)
            ask.handoff(at + 10, 285)
            ask.row("gc_pause", at + 310, 30, tid=9)
            ask.row("off_cpu", at + 350, 20.123, cause="net")
            ask.request(at + 10, parts, request_id=2**64 - n, trace_id=trace_id(n), parent_span_id=f"c{n}")
        monkeypatch.setenv("DEMO_UNDERSPAN", UNDERSPAN)
        monkeypatch.setenv("DEMO_CLICKHOUSE", store.url)
        monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
        yield store, runpy.run_path(os.path.join(ROOT, "deploy/demo/agree.py"))["check"]


def test_explain_and_the_views_agree(agree):
    store, check = agree
    wrong, figures = check([trace_id(1), trace_id(2)])
    assert not wrong and figures > 2 * 3 * 35, (figures, "\n".join(wrong))
    # explain asks the files in the program: a view of a different version gives a different answer
    text = store.ask("SHOW CREATE VIEW request_time FORMAT TSVRaw")
    assert text.count("handoff_us / 1000") == 1
    store.ask("DROP VIEW request_time")
    store.ask(text.replace("handoff_us / 1000", "handoff_us / 999"))
    wrong, _ = check([trace_id(1)])
    assert len(wrong) == 2 and all("handoff_ms: explain says" in line for line in wrong), wrong
    # as does a request known to only one side
    store.ask("ALTER TABLE ebpf_request DELETE WHERE trace_id != '' SETTINGS mutations_sync = 1")
    wrong, _ = check([trace_id(2)])
    assert any("0 requests of 1 traces" in line for line in wrong), wrong
