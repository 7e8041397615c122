# SPDX-License-Identifier: Apache-2.0
"""Failures between the agent and the database: every row arrives once, or is counted. The store is the real engine; a
proxy in front breaks as told. Numbered rows come through the agent's pipeline."""
import gzip
import re
import subprocess
import threading
import time

import pytest

import fault_proxy as fault
import host
from delivery import (Database, Sender, Store, TABLES, agent_target, collections_of, database, proxy,  # noqa: F401
                      sender, store)  # noqa: F401: fixtures
from host import wait_until

pytestmark = pytest.mark.light


def first(n, action):
    """`action` for the first n inserts, success for the rest."""
    return lambda request: action if request.number < n else None


ONCE = {
    "500": fault.answer(500, "Internal error"),
    "502": fault.answer(502, "<html>bad gateway</html>"),
    "503": fault.answer(503, "unavailable"),
    "429": fault.answer(429, "slow down", Retry_After="1"),
    "403": fault.answer(403, "who are you?"),
    "200 of something else": fault.answer(200, "<html>log in to the WiFi</html>"),
    "200, then an exception": fault.exception(241, status=200, header=False),
    "200, then an exception, late": fault.exception(241, status=200, header=False, text="x", before="\n" * 9001),
    "200, then an exception, in chunks": fault.in_chunks([b" " * 9001, fault.EXCEPTION]),
    "200, then an exception, and more": fault.in_chunks([b" " * 101, fault.EXCEPTION, b" " * 9001]),
    "200, an exception in the midst": fault.in_chunks([b" " * 30_001, fault.EXCEPTION, b" " * 30_001]),
    "200, an exception in the midst, in two packets": fault.in_chunks([b" " * 30_001 + fault.EXCEPTION[:20], fault.EXCEPTION[20:] + b" " * 30_001]),
    "200, a length that is too large": fault.raw(b"Content-Length: 500\r\n\r\n" + b" " * 99),
    "200, two lengths": fault.raw(b"Content-Length: 0\r\nContent-Length: 500\r\n\r\n"),
    "200, a length below zero": fault.raw(b"Content-Length: -1\r\n\r\n"),
    "200, and a reset": fault.raw(b"Transfer-Encoding: chunked\r\n\r\n", fault.hang_up),
    "200, a chunk without end": fault.raw(b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n "),
    "200, then a marked exception": fault.in_chunks([b" " * 9001, fault.MARKED], "X-ClickHouse-Exception-Tag: " + fault.TAG),
    "200, an exception in the trailer": fault.in_chunks([b" " * 101], trailer="X-ClickHouse-Exception-Code: 241\r\n"),
    "an error that is gzip": fault.gzipped_exception,
    "chunks that end": fault.in_chunks([b" " * 101], end=False),
    "never more than 100": fault.only_continue,
    "a redirect": fault.answer(307, "", Location="http://127.0.0.1:1/"),
    "a reply without end": fault.endless_reply,
    "a header without end": fault.endless_header,
    "241 memory": fault.exception(241),
    "252 parts": fault.exception(252, text="Too many parts (3001). Merges are processing significantly slower than inserts"),
    "202 queries": fault.exception(202),
    "242 read-only": fault.exception(242),
    "60 no table": fault.exception(60, status=404),
    "999 keeper": fault.exception(999),
    "a code of tomorrow": fault.exception(98765),
    "reply lost": fault.lose_reply,
    "half a reply": fault.half_a_reply,
    "slowloris": fault.trickle,
    "no answer": fault.never_answer,
    "half-open": fault.never_read,
    "cut off in the header": fault.cut_off_at(0),
    "cut off in the body": fault.cut_off_at(5000),
    "cut off before the last byte": fault.cut_off_at(-1),
}


@pytest.mark.parametrize("action", ONCE.values(), ids=ONCE.keys())
def test_fault(action, proxy, sender, database):
    proxy.plan = first(1, action)
    s = sender("--rows=1009", "--batch_rows=499", "--clickhouse_timeout=1")
    counts = s.end()
    database.check(1009)
    assert counts["inserted"] == 1009 and counts["retries"] >= 1
    assert "will try again" in s.stderr and "accepted again" in s.stderr


def test_reset_at_every_kilobyte(proxy, sender, database):
    """Each batch's first attempt breaks a kilobyte further on."""
    seen, limits = {}, []

    def plan(request):
        token = request.query["insert_deduplication_token"]
        if token in seen:
            return None
        seen[token] = len(limits) * 1024
        limits.append(request.length)
        return fault.reset_at(seen[token])
    proxy.plan = plan
    sender("--rows=10007", "--batch_rows=500").end()
    database.check(10007)
    assert len(seen) == 21 and max(seen.values()) > min(limits[:-1]), "the whole of a body was gone through"


def test_retry_after_is_heeded(proxy, sender, database):
    at = []

    def plan(request):
        at.append(time.monotonic())
        return fault.answer(503, "", Retry_After="2") if len(at) == 1 else None
    proxy.plan = plan
    sender("--rows=101").end()
    assert at[1] - at[0] >= 2
    database.check(101)


def test_server_down_for_long(proxy, sender, database, tmp_path):
    """Ten minutes, compressed: down at the start, rows pile up in the spool, in order, and nothing in memory."""
    target, proxy.target = proxy.target, ("127.0.0.1", 1)
    s = sender("--rows=30011", "--rate=10000", "--batch_rows=500", "--tables=3", "--wait=40", spool=tmp_path / "spool").wait_added()
    wait_until(lambda: len(list((tmp_path / "spool").glob("*.ebpf_*"))) > 50, 10, "the spool's files")
    order = []
    proxy.plan = lambda request: order.append((request.table, request.query["insert_deduplication_token"]))
    proxy.target = target
    s.end()
    for i, table in enumerate(TABLES):
        database.check(10004 - (i > 1), table)
        sequence = [int(token.split("-")[-2]) for name, token in order if name == table]
        assert sequence == sorted(sequence)
    assert s.counts[TABLES[0]]["memory_max"] < 3 << 20
    assert not list((tmp_path / "spool").glob("*.ebpf_*"))


def test_a_batch_larger_than_the_spool(proxy, sender, database, tmp_path):
    """The batch never fits: it waits in memory, the spool keeps the batches of a run before, and all rows arrive when the server is back."""
    def options(rows, batch, **more):
        return sender(f"--rows={rows}", f"--first={more.pop('first', 0)}", f"--batch_rows={batch}", "--spool.max_bytes=65536", "--wait=40",
                      spool=tmp_path / "spool", **more)
    target, proxy.target = proxy.target, ("127.0.0.1", 1)
    s = options(1009, 100).wait_added()
    s.terminate()
    assert s.end()["queued"] == 1009
    s = options(20011, 50000, first=1009).wait_added()
    time.sleep(3)  # some attempts to make room
    spooled = len(list((tmp_path / "spool").glob("*.ebpf_*")))
    proxy.target = target
    counts = s.end(timeout=50)
    assert spooled >= 10 and counts["recovered"] == 1009 and counts["dropped_spool"] == 0, (spooled, counts)
    database.check(21020)


@pytest.mark.parametrize("when", ["in the middle of an insert", "after it"])
def test_store_killed(when, tmp_path, cleanup):
    """kill -9 of the database during, or just after, an insert; and a new start."""
    stores = [Store(tmp_path / "store")]
    proxy = fault.FaultProxy(stores[0].address)
    cleanup += [stores[0], proxy]
    database = Database(stores[0])

    def kill_it(p, request):
        if when == "after it":
            p.ask_store(request)
            stores[0].kill()
        else:
            threading.Timer(0.004, stores[0].kill).start()
            try:
                p.ask_store(request)
            except OSError:
                pass
            stores[0].process.wait()
        fault.hang_up(request.connection)
        return False
    proxy.plan = lambda request: kill_it if len(proxy.inserts()) == 3 else None
    s = Sender(proxy.url, database, "--rows=20011", "--batch_rows=5000", "--wait=40", spool=tmp_path / "spool")
    cleanup.append(s)
    stores[0].process.wait(20)
    stores.append(Store(tmp_path / "store", listen="%s:%d" % stores[0].address))
    cleanup.append(stores[1])
    database.store = stores[1]
    s.end()
    database.check(20011)
    assert not proxy.failures, proxy.failures
    stores[1].stop()


def kill_before(process, proxy, request):
    process.kill()


def kill_in_body(process, proxy, request):
    request.read(request.length // 2)
    process.kill()


def kill_before_store(process, proxy, request):
    request.read()
    process.kill()
    process.wait()
    proxy.ask_store(request)


def kill_before_reply(process, proxy, request):
    status, headers, body = proxy.ask_store(request)
    process.kill()


def kill_after_reply(process, proxy, request):
    status, headers, body = proxy.ask_store(request)
    fault.reply(request, status, headers, body)
    process.kill()


@pytest.mark.parametrize("phase", [kill_before, kill_in_body, kill_before_store, kill_before_reply, kill_after_reply])
def test_agent_killed(phase, proxy, sender, database, tmp_path):
    """kill -9 in every phase of a batch; the next run delivers the spool, and counts rows that were only in
    memory."""
    killed = []

    def act(p, request):
        phase(s.process, p, request)
        s.process.wait()
        killed.append(True)
        fault.hang_up(request.connection)
        return False
    proxy.plan = lambda request: act if request.number == 2 else None
    s = sender("--rows=1000003", "--rate=20000", "--batch_rows=1000", "--hold", spool=tmp_path / "spool", truth=tmp_path / "truth")
    wait_until(lambda: killed, 20, "the kill")
    proxy.plan = lambda request: None
    handed = s.truth()[0]
    counts = sender("--rows=0", spool=tmp_path / "spool").end()
    rows, different, _ = database.numbers()
    assert rows == different, "rows are there twice"
    # the kill may come between the test's own count and the pipeline's
    assert rows + counts["lost_crash"] in (handed, handed - 1), counts
    # a batch, and rows not reached by the writer: some, on a busy machine
    assert counts["recovered"] == counts["inserted"] and counts["lost_crash"] <= 4000


def told_lost(s):
    return sum(map(int, re.findall(r"ended without saving the last (\d+) rows?", s.stderr)))


def test_agent_killed_at_random(proxy, sender, database, tmp_path):
    """Ten times, at random; each run goes on with new numbers, and reports the loss of the previous run."""
    lost = handed = 0
    for i in range(10):
        s = sender("--rows=1000003", f"--first={handed}", "--rate=20000", "--batch_rows=331", "--hold",
                   spool=tmp_path / "spool", truth=tmp_path / f"truth{i}")
        wait_until(lambda: (tmp_path / f"truth{i}").exists() and s.truth()[0], 10, "the first row")
        time.sleep(0.037 * i)
        s.kill()
        handed += s.truth()[0]
        lost += told_lost(s)
    s = sender("--rows=0", spool=tmp_path / "spool")
    counts = s.end()
    lost += told_lost(s)
    rows, different, _ = database.numbers()
    assert rows == different and counts["queued"] == 0
    # a kill may come between the test's own count and the pipeline's
    assert handed - 10 <= rows + lost <= handed, (rows, lost, handed)


def test_sigterm_with_100000_rows_pending(proxy, sender, database, tmp_path):
    proxy.plan = lambda request: fault.answer(503)
    s = sender("--rows=100003", "--hold", "--flush_interval=60", spool=tmp_path / "spool").wait_added()
    begin = time.monotonic()
    counts = s.terminate().end()
    assert time.monotonic() - begin < 5
    assert counts["spooled"] == counts["queued"] == 100003
    assert "rows wait in" in s.stderr
    proxy.plan = lambda request: None
    sender("--rows=0", spool=tmp_path / "spool").end()
    database.check(100003)


def test_sigterm_delivers_what_it_can(sender, database):
    s = sender("--rows=100003", "--hold", "--flush_interval=60").wait_added()
    s.terminate().end()
    database.check(100003)


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_disk_full(small_disk, proxy, sender, database):
    """The spool fills the disk, memory takes the rest; as rows leave the disk, rows from memory follow."""
    proxy.plan = lambda request: fault.answer(503)
    s = sender("--rows=20011", "--batch_rows=500", "--hold", spool=small_disk / "spool").wait_added()
    wait_until(lambda: "kept in memory" in s.stderr, 10, "the warning")
    proxy.plan = lambda request: None
    wait_until(lambda: database.numbers()[0] == 20011, 20, "all rows")
    assert "go to the spool again" in s.stderr
    s.terminate().end()
    database.check(20011)


def test_read_only_disk(small_disk, proxy, sender, database):
    """Rows stay in memory; as soon as the disk is writable the rows are on the disk, and survive a kill
    -9."""
    spool = small_disk / "spool"
    spool.mkdir()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    proxy.plan = lambda request: fault.answer(503)
    s = sender("--rows=2003", "--batch_rows=100", "--hold", spool=spool).wait_added()
    wait_until(lambda: "Read-only file system; rows are kept in memory" in s.stderr, 10, "the warning")
    assert not list(spool.glob("*.ebpf_*"))
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    wait_until(lambda: len(list(spool.glob("*.ebpf_*"))) == 21, 10, "the spool's files")
    wait_until(lambda: "go to the spool again" in s.stderr, 10, "the word of it")
    s.kill()
    proxy.plan = lambda request: None
    assert sender("--rows=0", spool=spool).end()["recovered"] == 2003
    database.check(2003)


def test_two_agents_do_not_share_a_spool(proxy, sender, tmp_path):
    s = sender("--rows=10", "--hold", spool=tmp_path / "spool").wait_added()
    second = sender("--rows=10", spool=tmp_path / "spool")
    assert second.process.wait(10) == 1
    second.kill()
    assert "in use by another" in second.stderr
    s.terminate().end()


def test_rows_that_are_refused(sender, database, tmp_path):
    """27: each bad row is found and set aside, with the reason; all good rows arrive."""
    s = sender("--rows=5003", "--batch_rows=1000", "--bad_every=997", spool=tmp_path / "spool")
    counts = s.end(code=1)
    database.check(4998, gaps=5)
    assert counts["dropped_refused"] == 5 and counts["inserted"] == 4998
    parked = (tmp_path / "spool" / "refused.ndjson").read_text()
    assert parked.count('"note":"bad"') == 5 and parked.count("# ebpf_handoff: Code: ") == 5


@pytest.mark.parametrize("code", [6, 25, 26, 27, 117, 130, 131, 407, 676])
def test_codes_of_single_rows(code, proxy, sender, database, tmp_path):
    """A server's error about one row neither delays nor removes good rows."""
    def plan(request):
        return fault.exception(code, status=400) if b'{"n":499,' in gzip.decompress(request.read()) else None
    proxy.plan = plan
    counts = sender("--rows=1009", "--batch_rows=503", spool=tmp_path / "spool").end(code=1)
    rows, different, largest = database.numbers()
    assert rows == different == counts["inserted"] == 1008 and largest == 1008 and counts["dropped_refused"] == 1
    assert (tmp_path / "spool" / "refused.ndjson").read_text().count('"n":499,') == 1


def test_killed_while_a_bad_row_is_looked_for(proxy, sender, database, tmp_path):
    """A batch being split is split again; rows that had arrived are not doubled."""
    for number in 3, 9:
        killed = []

        def act(p, request):
            kill_after_reply(s.process, p, request)
            s.process.wait()
            killed.append(True)
            return False
        start = len(proxy.requests)
        proxy.plan = lambda request: act if request.number == start + number else None
        s = sender("--rows=1000", f"--first={1000 * (number == 9)}", "--batch_rows=1000", "--bad_every=331", spool=tmp_path / "spool")
        wait_until(lambda: killed, 20, "the kill")
    proxy.plan = lambda request: None
    counts = sender("--rows=0", spool=tmp_path / "spool").end(code=1)
    rows, different, _ = database.numbers()
    assert rows == different
    assert 2000 - 6 <= rows + counts["lost_crash"] <= 2000


def test_too_many_days_for_one_insert(sender, database):
    """252 because of the partitions: split by days, within the limit of one INSERT."""
    s = sender("--rows=1009", "--days=250")
    counts = s.end()
    database.check(1009)
    assert counts["dropped_refused"] == 0
    assert int(database.store.ask(f"SELECT uniqExact(toDate(start_time)) FROM {database.name}.{TABLES[0]}")) == 250


def test_table_that_comes_later(store, proxy, cleanup):
    database = Database(store, tables=TABLES[1:])
    s = Sender(proxy.url, database, "--rows=2003", "--tables=2", "--wait=20")
    cleanup.append(s)
    wait_until(lambda: "schema --apply" in s.stderr, 10, "the hint")
    wait_until(lambda: database.numbers(TABLES[1])[0] == 1001, 10, "the other table's rows")
    database.create(TABLES[0])
    s.end()
    database.check(1002)


def test_wrong_password(sender, database, tmp_path):
    s = sender("--rows=1009", "--wait=1", spool=tmp_path / "spool", password="s3cret-of-nobody")
    assert s.end()["spooled"] == 1009
    assert "s3cret" not in s.stderr and "will try again" in s.stderr
    sender("--rows=0", spool=tmp_path / "spool").end()
    database.check(1009)


def test_what_is_shed_first(proxy, sender, database):
    """Memory is full and there is no spool: off_cpu's rows go first, then gil_wait's, and each is counted."""
    proxy.plan = lambda request: fault.answer(503)
    # 30,000 rows of each, some 20 bytes each when compressed and 120 before
    s = sender("--rows=90000", "--rate=100000", "--tables=3", "--batch_rows=1000", "--memory_bytes=1500000", "--hold").wait_added()
    proxy.plan = lambda request: None
    wait_until(lambda: "accepted again" in s.stderr, 30, "the end of the outage")
    wait_until(database.stands_still, 30, "the last batch")
    s.terminate()
    handoff = s.end(code=1)
    off_cpu, gil_wait = s.counts["ebpf_off_cpu"], s.counts["ebpf_gil_wait"]
    assert off_cpu["dropped_memory"] > 1000
    assert handoff["dropped_memory"] <= gil_wait["dropped_memory"] <= off_cpu["dropped_memory"]
    assert handoff["memory_max"] <= 1500000
    for table, c in s.counts.items():
        rows, different, _ = database.numbers(table)
        assert rows == different == c["inserted"] == 30000 - c["dropped_memory"]


def test_async_insert(proxy, sender, database):
    proxy.plan = first(1, fault.lose_reply)
    sender("--rows=1009", "--async_insert").end()
    database.check(1009)
    assert all(r.query["async_insert"] == "1" and r.query["wait_for_async_insert"] == "1" for r in proxy.inserts())


def foreign(engine=None, version="25.3.2.39"):
    """The store posing as a server that gathers INSERTs; with `engine`, posing as an engine unavailable in the store."""
    def act(p, request):
        status, headers, body = p.ask_store(request)
        if engine is not None and b"system.tables" in request.body:
            body = f"{version}\t{engine}\n".encode()
        fault.reply(request, status, [h for h in headers if h[0] != "X-Underspan-Store"], body)
        return True
    return act


@pytest.mark.parametrize("engine", [None, "Distributed", "ReplacingMergeTree", "\\N"])
def test_async_insert_into_what_would_double(engine, proxy, sender, database):
    """The rows arrive, one by one INSERT, and the reason is logged."""
    def plan(request):
        lost = len(proxy.inserts()) == 1 and request.table
        return fault.lose_reply if lost else foreign(engine)
    proxy.plan = plan
    s = sender("--rows=1009", "--batch_rows=200", "--async_insert")
    s.end()
    database.check(1009)
    assert {r.query["async_insert"] for r in proxy.inserts()} == {"0"}
    named = {None: "MergeTree", "\\N": "not known"}.get(engine, engine)
    assert s.stderr.count(f"async_insert is not used, the engine is {named}: ") == 1
    assert len([r for r in proxy.requests if b"system.tables" in r.body]) == 1


@pytest.mark.parametrize("engine, version, on", [("ReplicatedMergeTree", "23.7.1.2470", "1"), ("SharedMergeTree", "26.2.1.1", "1"),
                                                 ("ReplicatedMergeTree", "23.6.1.1", "0")])
def test_async_insert_where_tokens_are_known(engine, version, on, proxy, sender, database):
    proxy.plan = lambda request: foreign(engine, version)
    sender("--rows=1009", "--batch_rows=200", "--async_insert").end()
    database.check(1009)
    assert {r.query["async_insert"] for r in proxy.inserts()} == {on}


def test_async_insert_of_whom_system_tables_is_hidden(proxy, sender, database):
    proxy.plan = lambda request: None if request.table else fault.exception(497, status=403)
    s = sender("--rows=1009", "--batch_rows=200", "--async_insert")
    s.end()
    database.check(1009)
    assert {r.query["async_insert"] for r in proxy.inserts()} == {"0"} and "does not show the table's engine" in s.stderr


def test_busy_table_does_not_hurry_the_others(proxy, sender, database):
    """handoff fills batches of 100; the remaining two tables wait for rows or age."""
    s = sender("--rows=3000", "--batch_rows=100", "--flush_interval=30", "--hold").wait_added()
    wait_until(lambda: database.numbers()[0] == 3000, 10, "the full batches")
    assert {r.table for r in proxy.inserts()} == {TABLES[0]} and len(proxy.inserts()) == 30
    s.terminate().end()


@pytest.mark.parametrize("end", ["SIGTERM", "kill -9"])
def test_real_agent_while_the_server_is_down(end, agent_target, start_agent, proxy, database, start_workload, debian_python):
    """Collections of a real program during an outage and beyond the agent's end, each in the table once."""
    agent = start_agent(*agent_target, trackers=["gc_pause"], stdout=False)
    workload = start_workload(debian_python, "gc_truth.py", 2, 211, 1)
    workload.hello = workload.read()
    wait_until(lambda: int(database.store.ask(f"SELECT count() FROM {database.name}.ebpf_gc_pause")), 10, "a first row")
    proxy.plan = lambda request: fault.answer(503)
    workload.say()
    truth = workload.read()
    workload.finish()
    time.sleep(1)  # the last batch is closed and written
    if end == "SIGTERM":
        agent.stop()
    else:
        agent.kill()
    assert collections_of(database, workload.hello, truth) < len(truth["collections"])
    proxy.plan = lambda request: None
    agent = start_agent(*agent_target, trackers=["gc_pause"], stdout=False)
    wait_until(lambda: collections_of(database, workload.hello, truth) >= len(truth["collections"]), 20, "all rows")
    agent.stop()
    assert len(truth["collections"]) <= collections_of(database, workload.hello, truth) <= len(truth["collections"]) + 2
    # the fate of the rows is in the agent's table
    sums = database.store.ask(f"SELECT sum(recovered) > 0, sum(lost_crash) FROM {database.name}.ebpf_agent FORMAT TSV")
    assert sums.split()[0] == "1" and (end == "kill -9" or sums.split()[1] == "0")
