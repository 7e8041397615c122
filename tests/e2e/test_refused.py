# SPDX-License-Identifier: Apache-2.0
"""Rows refused by a table: bad rows are found and set aside; a wrong table makes all rows wait; and a batch that may have
arrived is never split into rows that arrive again."""
import gzip
import time

import pytest

import fault_proxy as fault
from delivery import Database, Sender, TABLES, database, proxy, sender, store  # noqa: F401: fixtures
from host import wait_until

pytestmark = pytest.mark.engine

T = TABLES[0]


KINDS = ["DateTime", "Array(UInt8)", "IPv4", "Enum8('a' = 1)", "FixedString(2)", "Bool", "Date", "Decimal(3, 1)", "Tuple(UInt8)",
         "Map(String, UInt8)", "IPv6", "Float64", "JSON"]
RATE = 200  # rows a second of each


class Refusing:
    """A database whose table has a column of another type, with its own proxy and its own rows."""

    def __init__(self, store, kind, cleanup):  # noqa: F811
        self.kind, self.database, self.proxy = kind, Database(store), fault.FaultProxy(store.address)
        cleanup += [self.proxy, self]

    def alter(self, kind):
        for what in "DROP COLUMN text", f"ADD COLUMN text {kind}":
            self.database.store.ask(f"ALTER TABLE {self.database.name}.{T} {what}")

    def start(self, directory, cleanup):
        directory.mkdir()
        options = "--rows=1000003", f"--rate={RATE}", f"--batch_rows={RATE}", "--flush_interval=1", "--hold"
        self.spool = directory / "spool"
        self.sender = Sender(self.proxy.url, self.database, *options, spool=self.spool, truth=directory / "truth")
        cleanup.append(self.sender)

    def deliver_rest(self):
        """The rows that were in the spool or on the way at the end of the sender."""
        return Sender(self.proxy.url, self.database, "--rows=0", "--wait=30", spool=self.spool).end(timeout=40)

    def rows(self):
        return self.database.numbers()[0]

    def kill(self):
        self.database.store.ask(f"DROP DATABASE {self.database.name}")


@pytest.mark.parametrize("kinds", [KINDS[::3], KINDS[1::3], KINDS[2::3]], ids=lambda kinds: kinds[0])
@pytest.mark.parametrize("when", ["from the start", "under load"])
def test_a_column_of_another_type(when, kinds, store, tmp_path, cleanup):  # noqa: F811
    """Every row is refused: all rows wait, few INSERTs are tried, and after the repair all arrive. Each kind has its own table."""
    all_kinds = [Refusing(store, kind, cleanup) for kind in kinds]
    for i, one in enumerate(all_kinds):
        if when == "from the start":
            one.alter(one.kind)
        one.start(tmp_path / str(i), cleanup)
    if when == "under load":
        for one in all_kinds:
            wait_until(lambda: one.rows() > RATE, 20, f"rows, {one.kind}")
            one.alter(one.kind)
    for one in all_kinds:
        wait_until(lambda: "will try again" in one.sender.stderr, 30, f"the word of {one.kind}")
    tried = [len(one.proxy.inserts()) for one in all_kinds]
    time.sleep(3)
    for one, before in zip(all_kinds, tried):
        assert len(one.proxy.inserts()) - before < 20 and "dropping" not in one.sender.stderr, one.kind
    for one in all_kinds:
        one.alter("String")
    repaired = [one.rows() for one in all_kinds]
    for one, rows in zip(all_kinds, repaired):
        wait_until(lambda: one.rows() > rows + 2 * RATE, 30, f"rows again, {one.kind}")
    for one in all_kinds:
        one.sender.terminate()
    for one in all_kinds:
        counts = one.sender.end()
        assert counts["dropped_refused"] == counts["dropped_spool"] == 0 and counts["rows"] == counts["inserted"] + counts["queued"], one.kind
        assert one.deliver_rest()["recovered"] == counts["queued"], one.kind
        one.database.check(counts["rows"])
        assert not one.proxy.failures, one.proxy.failures


@pytest.mark.parametrize("bad", [{0}, {1008}, {502, 503}, set(range(200, 260))], ids=["first", "last", "at a cut", "sixty in a row"])
def test_bad_rows_wherever(bad, proxy, sender, database, tmp_path):  # noqa: F811
    def plan(request):
        if not request.table:
            return None
        rows = gzip.decompress(request.read())
        return fault.exception(27, status=400) if any(b'{"n":%d,' % n in rows for n in bad) else None
    proxy.plan = plan
    s = sender("--rows=5003", "--rate=500", "--batch_rows=503", "--wait=40", spool=tmp_path / "spool")
    counts = s.end(code=1, timeout=60)
    rows, different, _ = database.numbers()
    assert rows == different == counts["inserted"] == 5003 - len(bad) and counts["dropped_refused"] == len(bad)


REFUSALS = {"27": fault.exception(27, status=400), "413": fault.answer(413, "too large"),
            "252": fault.exception(252, text="Too many partitions for single INSERT block (more than 100). The limit is")}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("lost", [fault.lose_reply, fault.half_a_reply, fault.never_answer], ids=["lost", "half", "none"])
def test_committed_and_refused_elsewhere(lost, refusal, store, proxy, sender, database, cleanup):  # noqa: F811
    """The first server has the batch, and the answer is lost; the second server refuses the batch: no split, as the halves
    would be new batches."""
    other = fault.FaultProxy(store.address)
    cleanup.append(other)
    proxy.plan = lambda request: lost if request.number < 1 else None
    other.plan = lambda request: refusal
    s = sender("--rows=1009", "--rate=100000", "--batch_rows=499", "--clickhouse_timeout=1", "--wait=30",
               url=f"{proxy.url},{other.url}")
    counts = s.end(timeout=40)
    database.check(1009)
    assert counts["inserted"] == 1009 and len(other.inserts()) >= 1 and not other.failures


@pytest.mark.parametrize("servers", [1, 2])
def test_committed_killed_and_refused(servers, store, proxy, sender, database, tmp_path, cleanup):  # noqa: F811
    """The sending run was killed before the answer: the next run cannot know, and does not split the batch either."""
    other = fault.FaultProxy(store.address)
    cleanup.append(other)
    proxy.plan = lambda request: fault.never_answer
    s = sender("--rows=1009", "--rate=100000", "--batch_rows=2000", "--hold", spool=tmp_path / "spool")
    wait_until(lambda: database.numbers()[0] == 1009, 10, "the rows")
    s.kill()
    actions = [REFUSALS["27"], REFUSALS["413"]] + ([REFUSALS["27"]] * 3 if servers == 2 else [])
    other.plan = lambda request: actions[request.number] if request.number < len(actions) else None
    proxy.plan = lambda request: fault.answer(503)
    s = sender("--rows=0", "--wait=30", url=other.url if servers == 1 else f"{other.url},{proxy.url}", spool=tmp_path / "spool")
    counts = s.end(timeout=40)
    database.check(1009)
    assert counts["recovered"] == counts["inserted"] == 1009 and len(other.inserts()) > len(actions)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_committed_and_sent_again_by_the_library(refusal, proxy, sender, database):  # noqa: F811
    """A kept connection breaks before the answer's first byte: libcurl sends the request once more, by default. The answer to
    the second request says nothing about the first."""
    actions = [fault.deliver, fault.lose_reply, refusal, fault.deliver]
    proxy.plan = lambda request: actions[request.number] if request.number < len(actions) else None
    s = sender("--rows=1009", "--rate=100000", "--batch_rows=200")
    s.end()
    tokens = [r.query["insert_deduplication_token"] for r in proxy.inserts()]
    assert tokens[1] == tokens[2] and len(set(tokens)) == 6
    database.check(1009)


def test_committed_and_refused_by_the_same(proxy, sender, database):  # noqa: F811
    """A proxy in front changes the answer."""
    actions = [fault.lose_reply, REFUSALS["27"], REFUSALS["413"]]
    proxy.plan = lambda request: actions[request.number] if request.number < 3 else None
    sender("--rows=1009", "--rate=100000", "--batch_rows=2000").end()
    database.check(1009)


def test_too_many_parts_in_total(proxy, sender, database):  # noqa: F811
    """252 with the word partitions in the text: merges are the cure, nothing is split, nothing is dropped."""
    text = ("Too many parts (100025) in all partitions in total in table 'otel.ebpf_handoff'. This indicates wrong choice of partition "
            "key. The threshold can be modified with 'max_parts_in_total' setting in <merge_tree> element in config.xml")
    proxy.plan = lambda request: fault.exception(252, text=text) if request.number < 4 else None
    counts = sender("--rows=300", "--rate=100000").end()
    database.check(300)
    assert counts["dropped_refused"] == 0 and len({r.query["insert_deduplication_token"] for r in proxy.inserts()}) <= 2
