# SPDX-License-Identifier: Apache-2.0
"""A table of a different version than the agent: older, newer, or changed while rows are sent. Every row arrives once,
with all columns of the table; omitted columns are logged once."""
import json
import pathlib
import re
import shutil
import struct
import time
import zlib

import pytest

import fault_proxy as fault
from delivery import TABLES, Database, Sender, agent_target, database, proxy, sender, store  # noqa: F401: fixtures
from host import wait_until

pytestmark = pytest.mark.light

T = TABLES[0]
LACKS = f"{T}: the database's table lacks"


def alter(database, what, table=T):  # noqa: F811
    database.store.ask(f"ALTER TABLE {database.name}.{table} {what}")


def count(database, where, table=T):  # noqa: F811
    return int(database.store.ask(f"SELECT count() FROM {database.name}.{table} WHERE {where}"))


def asks(proxy):  # noqa: F811
    return [r for r in proxy.requests if b"system.columns" in r.body]


def silent(request):
    """A server that hides system.columns."""
    if request.table:
        return None
    return fault.exception(497, status=403) if b"system.columns" in request.read() else None


@pytest.mark.parametrize("tells", [True, False], ids=["system.columns", "exceptions alone"])
@pytest.mark.parametrize("columns", [["text"], ["note"], ["note", "text"]], ids="+".join)
def test_older_table(tells, columns, proxy, sender, database):  # noqa: F811
    alter(database, ", ".join(f"DROP COLUMN {c}" for c in columns))
    proxy.plan = (lambda request: None) if tells else silent
    s = sender("--rows=2003", "--batch_rows=200")
    counts = s.end()
    database.check(2003)
    assert counts["inserted"] == 2003 and counts["dropped_refused"] == counts["dropped_spool"] == 0
    assert s.stderr.count(LACKS) == (1 if tells else len(columns)) and "schema --apply" in s.stderr
    assert f"lacks {len(columns)} column{'s' * (len(columns) > 1)}, rows" in s.stderr and ", ".join(columns) in s.stderr
    # columns are learned once, not with each batch
    assert len(proxy.inserts()) <= 11 + len(columns) + 1 and len(asks(proxy)) <= 2
    if columns == ["note"]:
        assert count(database, "length(text) = 32") == 2003


def test_newer_table(sender, database):  # noqa: F811
    """Columns unknown to the agent get the default."""
    alter(database, "ADD COLUMN of_tomorrow UInt8 DEFAULT 3 AFTER n, ADD COLUMN other String FIRST")
    s = sender("--rows=2003", "--batch_rows=200")
    s.end()
    database.check(2003)
    assert count(database, "of_tomorrow = 3 AND length(text) = 32") == 2003 and "lacks" not in s.stderr


@pytest.mark.parametrize("kind", ["MATERIALIZED '-'", "ALIAS '-'"])
def test_column_that_the_table_computes(kind, sender, database):  # noqa: F811
    alter(database, "DROP COLUMN text")
    alter(database, f"ADD COLUMN text String {kind}")
    sender("--rows=1009", "--batch_rows=200").end()
    database.check(1009)
    assert count(database, "text = '-'") == 1009


@pytest.mark.parametrize("action", [fault.lose_reply, fault.half_a_reply, fault.exception(241), fault.cut_off_at(-1)],
                         ids=["reply lost", "half a reply", "241", "cut off"])
def test_nothing_is_doubled(action, proxy, sender, database):  # noqa: F811
    """Faults on INSERTs with the shorter list, and between one list and the next: one token, one batch."""
    alter(database, "DROP COLUMN note")
    proxy.plan = lambda request: action if request.table and request.number % 3 == 2 else None
    sender("--rows=2003", "--batch_rows=200", "--wait=40").end(timeout=50)
    database.check(2003)


def test_committed_with_all_columns_and_sent_again_without(proxy, sender, database):  # noqa: F811
    """The answer is lost, then the column goes: the same token, fewer columns, no second row."""
    def act(p, request):
        p.ask_store(request)
        alter(database, "DROP COLUMN note")
        fault.hang_up(request.connection)
        return False
    proxy.plan = lambda request: act if request.number == 0 else None
    sender("--rows=1009", "--batch_rows=500").end()
    database.check(1009)


def test_upgrade_and_downgrade_under_load(proxy, sender, database):  # noqa: F811
    """A column comes, goes and comes back while rows are sent; whenever present for some time, the rows have
    values."""
    alter(database, "DROP COLUMN text")
    s = sender("--rows=1000003", "--rate=1000", "--batch_rows=100", "--hold")
    wait_until(lambda: database.numbers()[0] > 500, 10, "rows without the column")
    alter(database, "ADD COLUMN text String")
    wait_until(lambda: count(database, "length(text) = 32"), 30, "rows with it")
    assert "all columns are sent again" in s.stderr
    alter(database, "DROP COLUMN text")
    rows = database.numbers()[0]
    wait_until(lambda: database.numbers()[0] > rows + 500, 10, "rows without it again")
    s.terminate()
    counts = s.end()
    database.check(counts["inserted"])
    assert s.stderr.count(LACKS) == 2 and counts["rows"] == counts["inserted"]


def test_a_server_that_goes_away_says_nothing_of_columns(proxy, sender, database):  # noqa: F811
    """Down for longer than the cache of columns lives: omitted before and after the outage, logged once."""
    alter(database, "DROP COLUMN text, DROP COLUMN note")
    s = sender("--rows=1000003", "--rate=100", "--batch_rows=100", "--hold")
    wait_until(lambda: database.numbers()[0] > 200, 10, "rows without the column")
    proxy.plan = lambda request: fault.answer(503)
    time.sleep(20)
    proxy.plan = lambda request: None
    rows = database.numbers()[0]
    wait_until(lambda: database.numbers()[0] > rows + 2000, 40, "what has waited")
    s.terminate()
    s.end()
    assert s.stderr.count(LACKS) == 1 and "sent again" not in s.stderr, s.stderr


def test_a_table_that_tells_of_columns_that_another_behind_it_lacks(proxy, sender, database):  # noqa: F811
    """As a Distributed table does before old shards: asked every quarter of a minute, said once."""
    lacks = fault.exception(16, text="No such column text in table shard.ebpf_handoff")
    proxy.plan = lambda request: lacks if request.table and "text" in request.query["query"] else None
    s = sender("--rows=1000003", "--rate=500", "--batch_rows=100", "--hold")
    wait_until(lambda: len(asks(proxy)) >= 3, 60, "the agent asks again")
    time.sleep(1)
    s.terminate()
    counts = s.end()
    database.check(counts["inserted"])
    assert s.stderr.count(LACKS) == 1 and "sent again" not in s.stderr, s.stderr


def test_spool_of_the_first_version(proxy, sender, database, tmp_path):  # noqa: F811
    """Batches left by the released agent, in the old format: into the old table, an older and a newer
    table."""
    files = sorted((pathlib.Path(__file__).parent / "spools" / "v1").glob("*.ebpf_*"))
    assert len(files) == 4
    for i, change in enumerate(["ADD COLUMN more UInt8 FIRST", "DROP COLUMN note"]):
        alter(database, change)
        shutil.copytree(files[0].parent, tmp_path / f"spool{i}", copy_function=shutil.copy)  # as old as the test
        counts = sender("--rows=0", spool=tmp_path / f"spool{i}").end()
        assert counts["recovered"] == counts["inserted"] == 1003
        database.check(1003)  # the second time, deduplicated by token
        assert count(database, "length(text) = 32") == 1003
    database.store.ask(f"TRUNCATE TABLE {database.name}.{T}")


class FirstVersion:
    """How the released agent (e17fb16) reads a spool: its rules, written down. It inflates a body up to the end of the first member
    of gzip, and only to split a refused batch: what follows would be lost without a word."""
    NAME = re.compile(r"([0-9a-f]{16})(-[01]{1,64})?\.(\d+)\.([A-Za-z0-9_]{1,63})$")
    HEADER = struct.Struct("=8s2I5Q4I")

    def __init__(self, path):
        order, _, rows, table = self.NAME.match(path.name).groups()
        data = path.read_bytes()
        magic, header_crc, body_crc, body_len, self.order, self.rows, begin, end, *lengths, zero = self.HEADER.unpack_from(data)
        body = data[self.HEADER.size + sum(lengths):]
        assert magic == b"uspan 1\n" and zlib.crc32(data[12:-body_len]) == header_crc and zlib.crc32(body) == body_crc
        assert len(body) == body_len <= 256 << 20 and (self.order, self.rows, zero) == (int(order, 16), int(rows), 0) and begin <= end
        names, at = [], self.HEADER.size
        for n in lengths:
            names.append(data[at:at + n].decode())
            at += n
        assert names[0] == table and sum(lengths) <= 64 << 10 and 0 < lengths[1] < 512
        self.token, self.insert = names[1:]
        member = zlib.decompressobj(15 + 16)
        text = member.decompress(body)
        assert member.eof and not member.unused_data, "more than one member"
        self.lines = text.splitlines()
        assert len(self.lines) == self.rows and text.endswith(b"\n")


def test_the_first_version_s_own_files_obey_its_rules():
    files = sorted((pathlib.Path(__file__).parent / "spools" / "v1").glob("*.ebpf_*"))
    assert [FirstVersion(f).rows for f in files] == [300, 300, 300, 103]


@pytest.mark.parametrize("rows, batch_rows, pieces", [(1003, 300, 1), (60000, 100000, 2)])
def test_a_spool_that_the_first_version_reads(rows, batch_rows, pieces, proxy, sender, database, tmp_path):  # noqa: F811
    """Downgrade: the released agent's rules hold for each file, also of a batch that was compressed in pieces of 512 KiB; the
    statement lists all columns."""
    alter(database, "DROP COLUMN note")
    spool = tmp_path / "spool"
    proxy.plan = lambda request: fault.answer(503) if request.table else None
    s = sender(f"--rows={rows}", f"--batch_rows={batch_rows}", "--hold", spool=spool).wait_added()

    def finished():  # not what is being written, or what the kill leaves unfinished
        return [f for f in spool.glob("*.ebpf_*") if FirstVersion.NAME.match(f.name)]
    wait_until(lambda: sum(int(f.name.split(".")[1]) for f in finished()) >= rows, 20, "the spool's files")
    s.kill()
    files = [FirstVersion(f) for f in finished()]
    assert files and all(f.insert == "INSERT INTO ebpf_handoff (n, start_time, note, text) FORMAT JSONEachRow" for f in files)
    assert pieces == 1 or max(sum(map(len, f.lines)) for f in files) > 512 << 10
    numbers = [json.loads(line)["n"] for f in files for line in f.lines]
    assert sorted(numbers) == [*range(rows)] and all(b'"note":"7"' in line for f in files for line in f.lines)
    assert len({f.token for f in files}) == len(files)


def test_the_real_agent_before_an_older_table(agent_target, start_agent, start_workload, debian_python, database):  # noqa: F811
    """The agent's rows arrive without the column, and ebpf_agent reports the number of omitted values."""
    for table, column in (("ebpf_gc_pause", "frozen_threads"), ("ebpf_gc_pause", "method"), ("ebpf_agent", "seen")):
        alter(database, f"DROP COLUMN {column}", table)
    agent = start_agent(*agent_target, trackers=["gc_pause"], stdout=False)
    workload = start_workload(debian_python, "gc_truth.py", 2, 211, 1)
    workload.hello = workload.read()
    workload.say()
    truth = workload.read()
    workload.finish()
    wait_until(lambda: count(database, f"host_pid = {workload.hello['pid']}", "ebpf_gc_pause") >= len(truth["collections"]), 20,
               "all rows")
    wait_until(lambda: count(database, "tracker = 'gc_pause' AND columns_left_out = 2", "ebpf_agent"), 20, "the agent's word")
    agent.stop()
