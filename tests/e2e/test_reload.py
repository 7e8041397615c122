# SPDX-License-Identifier: Apache-2.0
"""SIGHUP while rows are delivered: a new password, new servers, new limits, and mistakes in each. The store is the
real engine behind a proxy that checks the password; each row arrives once."""
import gc
import json
import os
import signal
import time

import pytest

import fault_proxy as fault
from agent import run_underspan
from delivery import TABLES, database, proxy, store  # noqa: F401: fixtures
from host import wait_until

FAST = ["--flush_interval=0.2", "--report_interval=1", "--spool.min_free=0", "--gc_pause.min_duration_us=0"]


class Door:
    """In front of the store: admits the current password, as a server would while an administrator changes
    the password."""

    def __init__(self, store, proxy, password):
        self.store, self.password, self.came_with = store, password, []
        proxy.plan = self.plan

    def plan(self, request):
        self.came_with.append(request.headers.get("x-clickhouse-key"))
        if self.came_with[-1] != self.password:
            return fault.exception(516, status=403, text="Authentication failed")
        request.headers["x-clickhouse-key"] = self.store.password
        return None


@pytest.fixture
def collections():
    """collections(n): n collections of this process, and no further collections; .n is the total."""
    class Collections:
        n = 0

        def __call__(self, n):
            for _ in range(n):
                gc.collect(0)
                time.sleep(0.0001)  # no two begin in the same microsecond
            self.n += n

    gc.disable()
    yield Collections()
    gc.enable()


@pytest.fixture
def rows(store, database):
    """Number of rows of the collections, without duplicates, and without rows from before `.begin`."""
    class Rows:
        begin = 0

        def __call__(self):
            n, different = store.ask(
                f"SELECT count(), uniqExact(start_time) FROM {database.name}.ebpf_gc_pause WHERE host_pid = {os.getpid()} "
                f"AND toUnixTimestamp64Micro(start_time) > {self.begin} FORMAT TSV").split()
            assert n == different, "a row is there twice"
            return int(n)

        def wait(self, n):
            wait_until(lambda: self() >= n, 20, f"{n} rows, not {self()}")

    for table in TABLES:
        store.ask(f"DROP TABLE {database.name}.{table}")
    made = run_underspan("schema", "--apply", f"--clickhouse={store.url}", f"--clickhouse_database={database.name}",
                         timeout=60, prefix=["env", f"UNDERSPAN_CLICKHOUSE_PASSWORD={store.password}"])
    assert made.returncode == 0, made.stderr
    return Rows()


def wait_covered(rows):
    """Waits until this process is watched; later rows are counted."""
    def is_seen():
        gc.collect(0)
        time.sleep(0.3)
        return rows() > 0
    wait_until(is_seen, 20, "this process is watched")
    time.sleep(1)
    rows.begin = time.time_ns() // 1000


def hang_up(agent, word):
    n = len(agent.log)
    agent.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any(word in line for line in agent.log[n:]), 10, f"{word!r} in {agent.log[n:]}")


@pytest.mark.parametrize("how", ["file", "credential", "memory"])
def test_a_password_is_changed(how, tmp_path, store, proxy, database, rows, collections, start_agent, monkeypatch):
    """At the server first: rows in between wait, in the spool or in memory. A wrong or unreadable password loses nothing,
    and the old password is used until the new password is read."""
    door = Door(store, proxy, "old")
    password = tmp_path / "clickhouse-password"
    password.write_text("old\n")
    options = [f"--clickhouse={proxy.url}", f"--clickhouse_database={database.name}", f"--pid={os.getpid()}", *FAST]
    if how == "credential":
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    else:
        options.append(f"--clickhouse_password_file={password}")
    if how != "memory":
        options.append(f"--spool.directory={tmp_path}/spool")
    agent = start_agent(*options, trackers=["gc_pause"], stdout=False)
    wait_covered(rows)
    collections(199)
    rows.wait(199)
    # the file changes without a signal: the agent continues with the old password
    password.write_text("new\n")
    collections(199)
    rows.wait(398)
    assert set(door.came_with) == {"old"}
    door.password = "new"
    collections(199)
    wait_until(lambda: "Authentication failed" in agent.stderr, 20, "a complaint")
    password.write_text("wrong\n")
    hang_up(agent, "reloaded: new password")
    wait_until(lambda: "wrong" in door.came_with, 20, "the wrong one is tried")
    collections(199)
    password.unlink()
    if how != "credential":  # without the credential there is just no password
        hang_up(agent, "nothing has changed: clickhouse_password_file: cannot read")
    password.write_text("new\n")
    assert rows() == 398 and "new" not in door.came_with
    hang_up(agent, "reloaded: new password")
    collections(201)
    rows.wait(997)
    agent.stop()
    assert rows() == collections.n == 997
    assert list(dict.fromkeys(door.came_with)) == ["old", "wrong", "new"]
    assert "old" not in agent.stderr.split() and "wrong" not in agent.stderr.split()
    lost = store.ask(f"SELECT sum(dropped_memory + dropped_spool + dropped_corrupt + dropped_refused) "
                     f"FROM {database.name}.ebpf_agent")
    assert int(lost) == 0


def test_another_server(tmp_path, store, proxy, database, rows, collections, start_agent, cleanup, monkeypatch):
    """The first server has carried out an insert, and the reply is lost when the configuration names a second
    server."""
    other = fault.FaultProxy(store.address)
    cleanup.append(other)
    monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
    config = tmp_path / "underspan.json"
    config.write_text(json.dumps({"clickhouse": proxy.url}))
    agent = start_agent("-c", str(config), f"--clickhouse_database={database.name}", f"--pid={os.getpid()}", *FAST,
                        trackers=["gc_pause"], stdout=False)
    wait_covered(rows)
    collections(101)
    rows.wait(101)
    assert not other.requests
    # of another table, the agent would wait with these rows
    proxy.plan = lambda request: fault.lose_reply if request.table == "ebpf_gc_pause" else None
    collections(101)
    rows.wait(102)  # the first batch of the rows
    config.write_text(json.dumps({"clickhouse": "http://user:secret@127.0.0.1:1"}))
    hang_up(agent, "nothing has changed: clickhouse: the URL must not hold a user or password")
    config.write_text("{}")
    hang_up(agent, "nothing has changed: a reload changes clickhouse to other servers only: restart the agent")
    config.write_text(json.dumps({"clickhouse": other.url, "batch_rows": 7, "clickhouse_database": "the flag wins",
                                  "async_insert": True}))
    hang_up(agent, "restart the agent to change: async_insert")
    assert "reloaded: batch_rows, clickhouse\n" in agent.stderr
    n = len(proxy.requests)
    collections(31)
    rows.wait(233)
    agent.stop()
    assert rows() == collections.n == 233
    assert len(proxy.requests) <= n + 1  # a request may have been under way
    assert not other.failures


def test_limits_that_change(tmp_path, store, proxy, database, rows, collections, start_agent, monkeypatch):
    """Batches become smaller with the option in the file, and return to the default without the option."""
    monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
    config = tmp_path / "underspan.json"
    config.write_text("{}")
    agent = start_agent("-c", str(config), f"--clickhouse={proxy.url}", f"--clickhouse_database={database.name}",
                        f"--pid={os.getpid()}", "--gc_pause.min_duration_us=0", "--flush_interval=1", trackers=["gc_pause"],
                        stdout=False)
    wait_covered(rows)

    def inserts_for(n):
        before, total = len([r for r in proxy.inserts() if r.table == "ebpf_gc_pause"]), collections.n
        collections(n)
        rows.wait(total + n)
        return len([r for r in proxy.inserts() if r.table == "ebpf_gc_pause"]) - before

    assert inserts_for(53) < 10
    config.write_text(json.dumps({"batch_rows": 2, "spool": {"max_bytes": 1 << 20}, "memory_bytes": 2 << 20}))
    hang_up(agent, "reloaded: batch_rows, memory_bytes, spool.max_bytes")
    assert inserts_for(53) >= 26
    config.write_text("{}")
    hang_up(agent, "reloaded: batch_rows, memory_bytes, spool.max_bytes")
    assert inserts_for(53) < 10
    agent.stop()
    assert rows() == collections.n == 159
