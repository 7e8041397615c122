# SPDX-License-Identifier: Apache-2.0
"""Numbered rows through the agent's pipeline into a real store: the input is known, the arrivals are counted in the
store."""
import json
import os
import signal
import struct
import subprocess
import threading
import time

import pytest

import fault_proxy as fault
import host
from agent import PATIENCE, ROOT, promise, run_underspan
from store_fixture import Store

PROGRAM = os.path.join(os.environ.get("UNDERSPAN_E2E_PROGRAMS", os.path.join(ROOT, "build", "tests", "e2e")), "deliver_rows")
TABLES = ("ebpf_handoff", "ebpf_off_cpu", "ebpf_gil_wait")
DDL = ("CREATE TABLE {}.{} (n UInt64, start_time DateTime64(6, 'UTC'), note UInt8, text String) ENGINE = MergeTree "
       "PARTITION BY toDate(start_time) ORDER BY n SETTINGS non_replicated_deduplication_window = 10000")


class Database:
    """A database of a store, new for each test."""
    count = 0

    def __init__(self, store, tables=TABLES):
        Database.count += 1
        self.tables = tables
        self.store, self.name = store, f"delivery_{os.getpid()}_{Database.count}"
        store.ask(f"CREATE DATABASE {self.name}")
        for table in tables:
            self.create(table)

    def create(self, table):
        self.store.ask(DDL.format(self.name, table))

    def numbers(self, table=TABLES[0]):
        """(rows, different rows, the largest number)"""
        text = self.store.ask(f"SELECT count(), uniqExact(n), max(n) FROM {self.name}.{table} FORMAT TSV")
        return tuple(map(int, text.split()))

    def stands_still(self):
        """No row came for a second."""
        before = self.rows()
        time.sleep(1)
        return before == self.rows()

    def rows(self):
        return [self.numbers(table)[0] for table in self.tables]

    def check(self, expected, table=TABLES[0], gaps=0):
        """All rows from 0 on are there, but for `gaps`, and none twice."""
        rows, different, largest = self.numbers(table)
        promise(rows == different, f"{table}: {rows - different} rows are there twice")
        promise(rows == expected, f"{table}: {rows} of {expected} rows are there")
        assert largest == expected + gaps - 1


class Sender:
    """deliver_rows, running."""

    def __init__(self, url, database, *options, spool=None, truth=None, prefix=(), password=None):
        self.truth_path = truth
        self.argv = [*prefix, PROGRAM, f"--clickhouse={url}", f"--clickhouse_database={database.name}",
                     "--flush_interval=0.2", "--spool.min_free=0", *options]
        if spool:
            self.argv.append(f"--spool.directory={spool}")
        if truth:
            self.argv.append(f"--truth={truth}")
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": password or database.store.password})
        self.counts, self.lines, self.log = {}, [], []
        self.added = threading.Event()
        self.readers = [threading.Thread(target=self._read, daemon=True),
                        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                row = json.loads(line)
                self.counts[row.pop("table")] = row
            else:
                self.added.set()
        self.added.set()

    @property
    def stderr(self):
        return "".join(self.log)

    def wait_added(self, timeout=20):
        assert self.added.wait(timeout * PATIENCE) and self.process.poll() is None, self.stderr
        return self

    def end(self, code=0, timeout=30):
        """Waits for the end; the counters must add up. Returns the counters of the first table."""
        try:
            assert self.process.wait(timeout * PATIENCE) == code, self.stderr
        finally:
            self.kill()
        for name, c in self.counts.items():
            settled = sum(v for k, v in c.items() if k.startswith("dropped_")) + c["inserted"] + c["queued"]
            promise(c["rows"] + c["recovered"] == settled, f"{name}: {c}")
        return self.counts[TABLES[0]]

    def wait_ended(self, timeout=10):
        """Ignores the exit status."""
        self.process.wait(timeout * PATIENCE)
        self.kill()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        return self

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join(5)

    def truth(self):
        """Number of rows handed to the pipeline, by the program's own count, also after a kill."""
        with open(self.truth_path, "rb") as f:
            return struct.unpack("3Q", f.read(24).ljust(24, b"\0"))


# ---- fixtures ----

@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("delivery") / "store") as s:
        yield s


@pytest.fixture
def database(store):
    d = Database(store)
    yield d
    store.ask(f"DROP DATABASE {d.name}")


@pytest.fixture
def proxy(store, cleanup):
    p = fault.FaultProxy(store.address)
    cleanup.append(p)
    yield p
    assert not p.failures, p.failures


@pytest.fixture
def agent_target(store, proxy, database, tmp_path):
    """Options of the real agent for the database, through the proxy; the database has the tables of sql/."""
    options = [f"--clickhouse={proxy.url}", "--clickhouse_password_file=" + str(tmp_path / "password"),
               f"--clickhouse_database={database.name}"]
    (tmp_path / "password").write_text(store.password)
    for table in TABLES:
        store.ask(f"DROP TABLE {database.name}.{table}")
    assert run_underspan("schema", "--apply", *options, timeout=30).returncode == 0
    return [*options, f"--spool.directory={tmp_path}/spool", "--flush_interval=0.2", "--spool.min_free=0"]


def collections_of(database, hello, truth):
    """Rows of a program's collections between two stamps, and a few from just before; no duplicates."""
    begin, end = ((t + host.realtime_offset_ns()) // 1000 for t in (truth["begin"], truth["end"]))
    rows, different = map(int, database.store.ask(
        f"SELECT count(), uniqExact(tid, start_time) FROM {database.name}.ebpf_gc_pause WHERE host_pid = {hello['pid']} "
        f"AND toUnixTimestamp64Micro(start_time) BETWEEN {begin - 2000} AND {end + 2000} FORMAT TSV").split())
    assert rows == different, f"{rows - different} rows are there twice"
    return rows


@pytest.fixture
def sender(database, proxy, cleanup):
    """sender(*options, spool=...): deliver_rows, through the proxy unless told otherwise."""
    def start(*options, url=None, **more):
        s = Sender(url or proxy.url, database, *options, **more)
        cleanup.append(s)
        return s
    return start
