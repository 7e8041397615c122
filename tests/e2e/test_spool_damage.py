# SPDX-License-Identifier: Apache-2.0
"""Damage to a spool's directory, files and disk, and to all users of the spool: intact batches arrive once, damaged batches
are counted."""
import os
import random
import re
import resource
import shutil
import subprocess
import threading
import time

import pytest

import fault_proxy as fault
from delivery import Database, Sender, Store, TABLES, database, proxy, sender, store  # noqa: F401: fixtures
from host import wait_until
from test_delivery import small_disk, told_lost  # noqa: F401: a fixture
from test_service import step_clock  # noqa: F401: a fixture

pytestmark = pytest.mark.light


def down(proxy):  # noqa: F811
    proxy.plan = lambda request: fault.answer(503)


def up(proxy):  # noqa: F811
    proxy.plan = lambda request: None


def batches(directory):
    """Complete files: one that is being written ends in .tmp."""
    return sorted(file for file in directory.glob("*.ebpf_*") if file.suffix != ".tmp")


@pytest.mark.parametrize("how", ["cut off", "changed"])
def test_at_every_byte(how, tmp_path, proxy, sender, database):  # noqa: F811
    """The first file ends behind the first byte, the second behind the second, and so on; or has one flipped bit."""
    down(proxy)
    sender("--rows=401", "--batch_rows=1", "--wait=1", spool=tmp_path / "spool").end()
    files = batches(tmp_path / "spool")
    assert len(files) == 401
    hurt = 0
    for i, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if i < len(data):
            data[i] ^= 1 << i % 8
            file.write_bytes(data[:i] if how == "cut off" else data)
            hurt += 1
    assert 200 < hurt < 400
    up(proxy)
    counts = sender("--rows=7", "--first=401", spool=tmp_path / "spool").end(code=1)
    rows, different, _ = database.numbers()
    assert rows == different == 408 - hurt
    assert counts["dropped_corrupt"] == hurt and counts["recovered"] == 401


def test_what_others_put_there(tmp_path, proxy, sender, database):  # noqa: F811
    """Foreign and future files, links, FIFOs and directories under the spool's names: none is followed, waited for or
    removed, except batches."""
    spool, victim = tmp_path / "spool", tmp_path / "victim"
    spool.mkdir()
    victim.write_text("precious")
    for name in "notes.txt", "notes.tmp":
        (spool / name).write_text("x")
    for name in "refused.ndjson", "0000000000000003.7.ebpf_handoff":
        os.mkfifo(spool / name)
    os.mkdir(spool / "0000000000000004.100.ebpf_handoff")
    for name in "0000000000000002.100.ebpf_handoff", "0000000000000005.100.ebpf_handoff.tmp", "ledger":
        os.symlink(victim, spool / name)
    os.symlink(tmp_path, spool / "corrupt")
    (spool / "0000000000000001.5.ebpf_handoff").write_bytes(b"uspan 9\n" + b"x" * 500)
    counts = sender("--rows=2003", "--batch_rows=100", "--bad_every=997", spool=spool).end(code=1)
    database.check(2001, gaps=2)
    assert counts["dropped_corrupt"] == 5 and counts["dropped_refused"] == 2
    assert victim.read_text() == "precious" and (spool / "notes.tmp").exists() and (spool / "notes.txt").exists()


@pytest.mark.parametrize("end", ["SIGTERM", "kill -9"])
def test_directory_that_is_removed(end, tmp_path, proxy, sender, database):  # noqa: F811
    """Removed batches are counted; the directory is made again for new batches, and survives a kill as
    before."""
    spool = tmp_path / "spool"
    s = sender("--rows=4001", "--batch_rows=100", "--hold", spool=spool)
    s.wait_added()
    wait_until(lambda: database.numbers()[0] == 4001, 20, "all rows")
    s.terminate().end()
    down(proxy)
    s = sender("--rows=1000003", "--first=4001", "--rate=1000", "--batch_rows=100", "--hold", spool=spool, truth=tmp_path / "truth")
    wait_until(lambda: len(batches(spool)) > 7, 20, "some batches")
    os.rename(spool, tmp_path / "gone")  # at once, as a rename is
    shutil.rmtree(tmp_path / "gone")
    wait_until(lambda: spool.exists() and len(batches(spool)) > 7, 20, "it is there again")
    wait_until(lambda: (spool / "ledger").exists(), 5, "the ledger")
    assert "had been removed and is made" in s.stderr
    if end == "SIGTERM":
        s.terminate().wait_ended()
    else:
        s.kill()
    handed = s.truth()[0]
    up(proxy)
    last = sender("--rows=0", spool=spool)
    counts = last.end()
    rows, different, _ = database.numbers()
    assert rows == different == 4001 + counts["recovered"]
    removed = s.counts[TABLES[0]]["dropped_corrupt"] if end == "SIGTERM" else 0
    missing = handed - counts["recovered"] - removed - told_lost(last)
    # a killed agent cannot report the removed batches, except for batches sent before
    assert missing == 0 if end == "SIGTERM" else 700 < missing < 5000, (handed, counts, removed)


@pytest.mark.parametrize("how", ["renamed", "replaced"])
def test_directory_that_is_moved(how, tmp_path, proxy, sender, database):  # noqa: F811
    """The agent goes on in the directory that it has locked, says so once, and names at the end where the rows are."""
    spool, moved = tmp_path / "spool", tmp_path / "moved"
    down(proxy)
    s = sender("--rows=1000003", "--rate=1000", "--batch_rows=100", "--hold", spool=spool, truth=tmp_path / "truth")
    wait_until(lambda: len(batches(spool)) > 3, 20, "some batches")
    os.rename(spool, moved)
    if how == "replaced":
        (tmp_path / "other").mkdir()
        spool.symlink_to("other")
    n = len(batches(moved))
    wait_until(lambda: len(batches(moved)) > n + 5, 20, "more batches")
    s.terminate().wait_ended()
    assert len(re.findall(f"spool.directory: {spool} is no longer the directory that was opened.* now {moved}, ", s.stderr)) == 1
    assert re.search(rf"\d rows wait in {moved} for the next start", s.stderr), s.stderr
    if how == "replaced":
        assert not list((tmp_path / "other").iterdir())
        spool.unlink()
    os.rename(moved, spool)
    up(proxy)
    counts = sender("--rows=0", spool=spool).end()
    rows, different, _ = database.numbers()
    assert rows == different == counts["recovered"] == s.truth()[0]


@pytest.mark.parametrize("why", ["read-only", "full"])
def test_no_disk_at_the_start(why, small_disk, proxy, sender, database):  # noqa: F811
    """Rows are in memory until the disk takes the directory; from then on the rows survive a kill, and losses are counted."""
    down(proxy)
    if why == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    else:
        subprocess.run(f"dd if=/dev/zero of={small_disk}/fill bs=4k 2>/dev/null || true", shell=True, check=True)
    spool = small_disk / "a" / "spool"
    s = sender("--rows=2003", "--batch_rows=100", "--hold", spool=spool).wait_added()
    wait_until(lambda: "rows are kept in memory" in s.stderr, 10, "the warning")
    assert not batches(spool) and spool.exists() == (why == "full")  # a tmpfs always takes empty files
    if why == "read-only":
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    else:
        os.unlink(small_disk / "fill")
    wait_until(lambda: spool.exists() and len(batches(spool)) == 21 and (spool / "ledger").exists(), 10, "the spool's files")
    s.kill()
    up(proxy)
    counts = sender("--rows=0", spool=spool).end()
    assert counts["recovered"] == 2003 and counts["lost_crash"] == 0
    database.check(2003)


def test_limit_on_the_size_of_files(tmp_path, proxy, sender, database):  # noqa: F811
    """Equivalent to a full disk; the signal does not end the program."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    s = sender("--rows=2003", "--batch_rows=500", "--hold", spool=tmp_path / "spool", prefix=["prlimit", "--fsize=10000"])
    s.wait_added()
    wait_until(lambda: "File too large; rows are kept in memory" in s.stderr, 10, "the warning")
    wait_until(lambda: database.numbers()[0] == 2003, 10, "all rows")
    s.terminate().end()
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == limit


def test_both_killed_at_random(tmp_path, cleanup):
    """31 kills of the agent, some together with the database, while replies are lost and inserts cut off: every row handed
    over is in the table once, set aside, or reported as lost, to the row."""
    rng, lost, handed = random.Random(31), 0, 0
    stores = [Store(tmp_path / "store")]
    address = stores[0].address
    p = fault.FaultProxy(address)
    cleanup += [stores[0], p]
    database = Database(stores[0])  # noqa: F811
    faults = [fault.lose_reply, fault.half_a_reply, fault.exception(241), fault.cut_off_at(5000)] + [None] * 16
    p.plan = lambda request: rng.choice(faults)
    for i in range(31):
        s = Sender(p.url, database, "--rows=1000003", f"--first={handed}", "--rate=20000", "--batch_rows=331", "--hold",
                   *["--bad_every=7919"] * (i % 5 == 4), spool=tmp_path / "spool", truth=tmp_path / f"truth{i}")
        cleanup.append(s)
        wait_until(lambda: (tmp_path / f"truth{i}").exists() and s.truth()[0], 10, "the first row")
        if i % 7 == 3:
            threading.Timer(rng.uniform(0, 0.3), stores[-1].kill).start()
        time.sleep(rng.uniform(0, 0.4))
        s.kill()
        handed += s.truth()[0]
        lost += told_lost(s)
        if i % 7 == 3:
            stores[-1].process.wait(10)
            stores.append(Store(tmp_path / "store", listen="%s:%d" % address))
            cleanup.append(stores[-1])
            database.store = stores[-1]
    p.plan = lambda request: None
    s = Sender(p.url, database, "--rows=0", "--wait=60", spool=tmp_path / "spool")
    cleanup.append(s)
    s.process.wait(70)
    s.kill()
    lost += told_lost(s)
    rows, different, _ = database.numbers()
    parked = tmp_path / "spool" / "refused.ndjson"
    bad = len(re.findall('"note":"bad"', parked.read_text())) if parked.exists() else 0
    assert rows == different and s.counts[TABLES[0]]["queued"] == 0
    # a kill may come between the test's own count and the pipeline's
    assert handed - 31 <= rows + lost + bad <= handed, (rows, lost, bad, handed)
    assert not p.failures, p.failures
    stores[-1].stop()


def test_a_clock_that_is_stepped(step_clock, proxy, sender, database, tmp_path):  # noqa: F811
    """Two hours forth and back while rows wait, with a limit of one hour: the age of the rows stays right."""
    down(proxy)
    s = sender("--rows=2003", "--batch_rows=100", "--hold", "--spool.max_age=3600", spool=tmp_path / "spool").wait_added()
    wait_until(lambda: len(batches(tmp_path / "spool")) == 21, 10, "the spool's files")
    for seconds in 7200, -7200, 0:
        step_clock(seconds)
        time.sleep(1.5)  # the agent checks every second
    up(proxy)
    wait_until(lambda: database.numbers()[0] == 2003, 30, "all rows")
    assert s.terminate().end()["dropped_spool"] == 0
    database.check(2003)


@pytest.mark.parametrize("before, after", [(0, 10 * 86400), (-1_700_000_000, 0), (0, -86400), (86400 * 4000, 0)],
                         ids=["ten days on", "started in 1970", "a day back", "years back"])
def test_a_clock_that_is_stepped_between_runs(before, after, step_clock, proxy, sender, database, tmp_path):  # noqa: F811
    """The age of a previous run's batches is right in the next run, whatever the clocks; batches over the limit are
    dropped."""
    down(proxy)
    step_clock(before)
    s = sender("--rows=2003", "--batch_rows=100", "--hold", spool=tmp_path / "spool").wait_added()
    wait_until(lambda: len(batches(tmp_path / "spool")) == 21, 10, "the spool's files")
    s.kill()
    step_clock(after)
    s = sender("--rows=0", "--hold", spool=tmp_path / "spool").wait_added()
    time.sleep(1.5)  # the agent checks every second
    up(proxy)
    deadline = time.monotonic() + 30
    while database.numbers()[0] < 2003 and time.monotonic() < deadline:
        time.sleep(0.1)
    told = s.terminate().stderr
    counts = s.end()
    assert (database.numbers()[0], counts["dropped_spool"], counts["recovered"]) == (2003, 0, 2003), (counts, told)
    database.check(2003)


def test_what_is_too_old_goes_whatever_the_clock_says(step_clock, proxy, sender, database, tmp_path):  # noqa: F811
    down(proxy)
    s = sender("--rows=2003", "--batch_rows=100", "--hold", spool=tmp_path / "spool").wait_added()
    wait_until(lambda: len(batches(tmp_path / "spool")) == 21, 10, "the spool's files")
    s.kill()
    step_clock(-3600)
    time.sleep(2)
    s = sender("--rows=0", "--hold", "--spool.max_age=2", spool=tmp_path / "spool").wait_added()
    wait_until(lambda: not batches(tmp_path / "spool"), 10, "they are dropped")
    assert s.terminate().end(code=1)["dropped_spool"] == 2003
