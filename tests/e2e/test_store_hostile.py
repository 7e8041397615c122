# SPDX-License-Identifier: Apache-2.0
"""Hundreds of clients without the password do not lock out agent or users. And clients that disconnect."""
import concurrent.futures
import os
import selectors
import signal
import socket
import subprocess
import threading
import time

import pytest

from agent import NO_ENGINE, PATIENCE, plain_build
from store_fixture import TABLE, UNDERSPAN, Store, rows, store, table, underspan  # noqa: F401: fixtures

pytestmark = plain_build(NO_ENGINE)

PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
LONG_HEAD = b"GET /?query=SELECT+1 HTTP/1.1\r\nHost: x\r\nX-Filler: "


class Crowd:
    """So many connections that send `first` and then `then` each second; a closed connection is opened
    again."""

    def __init__(self, address, n, first, then):
        self.address, self.n, self.first, self.then = address, n, first, then
        self.opened, self.ending = 0, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def open(self, selector):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(self.address)
        selector.register(s, selectors.EVENT_READ | selectors.EVENT_WRITE, False)
        self.opened += 1

    def run(self):
        selector, last = selectors.DefaultSelector(), time.monotonic()
        while not self.ending:
            while len(selector.get_map()) < self.n:
                self.open(selector)
            again = time.monotonic() - last > 1
            last = time.monotonic() if again else last
            for key, events in selector.select(0.1):
                try:
                    if events & selectors.EVENT_WRITE and not key.data:
                        key.fileobj.send(self.first)
                        selector.modify(key.fileobj, selectors.EVENT_READ, True)
                    elif events & selectors.EVENT_READ and not key.fileobj.recv(65536):
                        raise OSError
                except OSError:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
            if again and self.then:
                for key in list(selector.get_map().values()):
                    try:
                        key.fileobj.send(self.then)
                    except OSError:
                        pass
        for key in list(selector.get_map().values()):
            key.fileobj.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()


@pytest.mark.parametrize("first, then", [
    (b"P", b"O"), (LONG_HEAD, b"x"), (b"", b""), (PING, b""),
    (b"POST /?query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"1"),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-ClickHouse-Key: wrong\r\n\r\n", b"1\r\nx\r\n"),
    (PING, PING), (b"POST /?user=default HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", b""),
    (PING * 4000, PING), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), bytes(1)),
], ids=["one byte", "a head without end", "nothing", "ping and wait", "a body without password", "a wrong password", "a ping each second",
        "leave to send", "pings without end", "a TLS hello"])
def test_crowds_keep_nobody_out(tmp_path, first, then):
    with Store(tmp_path / "db") as s:
        s.ask(TABLE.format("t"))
        with Crowd(s.address, 500, first, then) as crowd:
            deadline = time.monotonic() + 5 * PATIENCE
            while crowd.opened < 500:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for i in range(5):
                # over TCP, on a new connection each time; through the directory; and an INSERT
                start = time.monotonic()
                assert s.request("GET", query="SELECT 1", connection=None).text == "1\n"
                assert time.monotonic() - start < 2 * PATIENCE
                start = time.monotonic()
                done = underspan("sql", f"--store={tmp_path}/db", "SELECT 1 AS a")
                assert done.stdout == "a\n1\n", done.stderr
                assert time.monotonic() - start < 2 * PATIENCE
                start = time.monotonic()
                assert s.insert("INSERT INTO t FORMAT JSONEachRow", rows("x", 100, i * 100)).status == 200
                assert time.monotonic() - start < 2 * PATIENCE
                time.sleep(0.2)
        assert s.ask("SELECT count() FROM t") == "500\n"


@pytest.mark.parametrize("first, then, seconds", [
    (b"G", b"E", 10), (LONG_HEAD, b"x", 10),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", b"x", 10),
    (b"POST / HTTP/1.1\r\nHost: x\r\nX-ClickHouse-Key: %s\r\nContent-Length: 100000\r\n\r\n", b"x", 4),
], ids=["line", "head", "body without password", "body"])
def test_a_byte_now_and_then(tmp_path, first, then, seconds):
    """An incomplete request is closed in time, in spite of continuous bytes."""
    arguments = [] if seconds == 10 else ["--client_timeout=3"]
    with Store(tmp_path / "db", *arguments) as s, socket.create_connection(s.address, timeout=0.3) as c:
        c.sendall(first.replace(b"%s", s.password.encode()))
        start = time.monotonic()
        while True:
            assert time.monotonic() - start < seconds + 3
            try:
                c.sendall(then)
                if not c.recv(1 << 16):
                    break
            except TimeoutError:
                pass
            except OSError:
                break


# ---- disconnects while a query runs ----

ENDLESS = ["SELECT count() FROM system.numbers", "SELECT count() FROM system.numbers FORMAT JSON",
           "SELECT sum(cityHash64(number)) FROM system.numbers GROUP BY number % 10 FORMAT TSV"]


def running(s):
    return int(s.ask("SELECT count() FROM system.processes")) - 1


def wait_for(what, seconds):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("sql", ENDLESS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, "pipe"])
@pytest.mark.parametrize("way", ["store", "clickhouse"])
def test_asker_that_goes(store, tmp_path, sql, how, way):
    where = [f"--store={store.path}"] if way == "store" else \
        [f"--clickhouse={store.url}", f"--clickhouse_password_file={store.path}/password"]
    p = subprocess.Popen([UNDERSPAN, "sql", *where, sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: running(store) == 1, 10)
    if how == "pipe":
        p.stdout.close()
    else:
        p.send_signal(how)
    wait_for(lambda: running(store) == 0, 2.5)
    if how == "pipe":
        assert p.wait(5) != 0
    else:
        assert p.wait(5) == -how
    p.stderr.close()
    before = cpu_seconds(store.process.pid)
    time.sleep(1)
    assert cpu_seconds(store.process.pid) - before < 0.3


def test_connection_that_breaks(store):
    for sql in ENDLESS:
        body = sql.encode()
        with socket.create_connection(store.address) as c:
            c.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nX-ClickHouse-Key: %s\r\nContent-Length: %d\r\n\r\n%s" % (
                store.password.encode(), len(body), body))
            wait_for(lambda: running(store) == 1, 10)
        wait_for(lambda: running(store) == 0, 2)


def test_only_the_query_of_the_one_that_went(store, table):
    """The remaining queries continue: with distinct ids, with equal ids, and beside an INSERT with a
    disconnected client."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = pool.submit(store.ask, "SELECT count() FROM numbers(6000000000)", query_id="kept")
        with socket.create_connection(store.address) as c:
            body = b"SELECT count() FROM system.numbers"
            c.sendall(b"POST /?query_id=it%%27s%%20mine HTTP/1.1\r\nHost: x\r\nX-ClickHouse-Key: %s\r\nContent-Length: %d\r\n\r\n%s" %
                      (store.password.encode(), len(body), body))
            wait_for(lambda: running(store) == 2, 10)
        wait_for(lambda: running(store) <= 1, 3)
        assert slow.result(60) == "6000000000\n"
