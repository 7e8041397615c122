# SPDX-License-Identifier: Apache-2.0
"""The embedded store with large answers, with many concurrent clients, and with hostile clients."""
import concurrent.futures
import gzip
import json
import pathlib
import random
import socket
import threading
import time

import pytest

from agent import NO_ENGINE, plain_build
from store_fixture import TABLE, Store, rows, store, table  # noqa: F401: fixtures

pytestmark = plain_build(NO_ENGINE)


# ---- large answers ----

@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("form", ["TSV", "JSONEachRow", "RowBinary", "JSON", "CSVWithNames", "Parquet"])
def test_large_answers_are_whole(store, form, gz):
    """In pieces or at once, compressed or not: equal to the engine's bytes."""
    sql = f"SELECT number, toString(number) AS s FROM numbers(300000) FORMAT {form}"
    params = {"enable_http_compression": 1} if gz else {}
    headers = {"Accept-Encoding": "gzip"} if gz else {}
    answer = store.request(query=sql, headers=headers, output_format_write_statistics=0, **params)
    assert answer.headers.get("Content-Encoding") == ("gzip" if gz else None)
    body = gzip.decompress(answer.body) if gz else answer.body
    whole = store.request(query=sql, wait_end_of_query=1, output_format_write_statistics=0)
    assert body == whole.body
    if form == "TSV":
        assert body == b"".join(b"%d\t%d\n" % (i, i) for i in range(300000))
    elif form == "JSON":
        assert len(json.loads(body)["data"]) == 300000
    elif form == "CSVWithNames":
        assert body.count(b"\n") == 300001 and body.count(b'"number"') == 1
    elif form == "Parquet":
        assert body[:4] == body[-4:] == b"PAR1" and body.count(b"PAR1") == 2
    elif form == "RowBinary":
        assert len(body) == sum(9 + len(str(i)) for i in range(300000))
    else:
        assert [json.loads(line)["s"] for line in body.splitlines()] == [str(i) for i in range(300000)]


def test_late_error(store):
    sql = "SELECT number, throwIf(number = 2000000) FROM system.numbers LIMIT 3000000"
    answer = store.request(query=sql)
    # the status was already sent; the text has the error, and the connection breaks
    assert answer.status == 200 and answer.broken
    tag = answer.headers["X-ClickHouse-Exception-Tag"]
    assert f"\r\n__exception__\r\n{tag}\r\nCode: 395. DB::Exception: " in answer.text
    assert answer.text.endswith(f" {tag}\r\n__exception__\r\n")
    # unless the client waits for the end
    answer = store.request(query=sql, wait_end_of_query=1)
    assert (answer.status, answer.code) == (500, 395)


def test_reader_that_goes_away(store):
    """The reader's query is cancelled: otherwise endless."""
    c = store.connect()
    c.request("POST", "/?query=SELECT+number+FROM+system.numbers", headers=store.basic())
    c.getresponse().read(1000)
    running = "SELECT count() FROM system.processes WHERE query LIKE 'SELECT number FROM system.numbers%'"
    assert store.ask(running) == "1\n"
    c.sock.close()
    c.close()
    deadline = time.monotonic() + 10
    while store.ask(running) != "0\n":
        assert time.monotonic() < deadline, "the query goes on without a reader"
        time.sleep(0.05)


# ---- many at a time ----

def test_slow_query_holds_up_nobody(store, table):
    order = []

    def slow():
        store.ask("SELECT sleep(2)")
        order.append("slow")

    thread = threading.Thread(target=slow)
    thread.start()
    while store.ask("SELECT count() FROM system.processes WHERE query = 'SELECT sleep(2)'") == "0\n":
        time.sleep(0.01)
    assert store.request("GET", "/ping", auth=False).text == "Ok.\n"
    assert store.insert(f"INSERT INTO {table} FORMAT JSONEachRow", rows("beside", 10)).status == 200
    assert store.ask(f"SELECT count() FROM {table}") == "10\n"
    order.append("others")
    thread.join()
    assert order == ["others", "slow"]


def test_readers_beside_inserts(store, table):
    """50 clients read during inserts: no failure, and no partial batch is visible."""
    done = threading.Event()
    seen = []

    def read(_):
        c, last = store.connect(60), 0
        while True:
            over = done.is_set()
            answer = store.request(query=f"SELECT count() FROM {table}", max_threads=1, connection=c)
            assert answer.status == 200, answer.text
            n = int(answer.text)
            assert n % 100 == 0 and n >= last
            last = n
            seen.append(n)
            if over:
                c.close()
                return n

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        readers = [pool.submit(read, i) for i in range(50)]
        try:
            for i in range(40):
                answer = store.insert(f"INSERT INTO {table} FORMAT JSONEachRow", rows("b", 100, i * 100))
                assert answer.status == 200, answer.text
        finally:
            done.set()
        assert [r.result() for r in readers] == [4000] * 50
    assert len(set(seen)) > 5, "the readers did not run beside the inserts"


def test_connection_limit(tmp_path):
    with Store(tmp_path / "db", "--max_connections=3") as s:
        held = [s.connect() for _ in range(3)]
        for c in held:
            assert s.request("GET", "/ping", connection=c).status == 200
        with pytest.raises(OSError):
            fourth = s.connect(5)
            fourth.request("GET", "/ping")
            fourth.getresponse()
            raise AssertionError("a fourth client was served")
        held.pop().close()
        deadline = time.monotonic() + 5
        while True:
            try:
                assert s.request("GET", "/ping", auth=False).status == 200
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


# ---- hostile clients ----

def raw(store, data, half_close=False):
    """Sends bytes, returns the received bytes until the end of the connection or 2 s of silence."""
    with socket.create_connection(store.address, timeout=2) as s:
        got = b""
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            while chunk := s.recv(65536):
                got += chunk
        except OSError:
            pass
        return got


def test_hostile_requests(store, table):
    noise = random.Random(20)
    key = f"X-ClickHouse-Key: {store.password}\r\n".encode()
    post = b"POST /?query=INSERT+INTO+" + table.encode() + b"+FORMAT+TSV HTTP/1.1\r\nHost: x\r\n" + key
    for data in (
            b"\0" * 1000, b"\r\n" * 1000, b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (2 << 20) + b"\r\n\r\n",
            b"GET /?query=" + b"a" * (2 << 20) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /?" + b"&".join(b"p%d=1" % i for i in range(50000)) + b" HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n",
            b"GET /?query=%00%ff%zz% HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n",
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
            b"DELETE /?query=SELECT+1 HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n",
            post + b"Content-Length: 1000\r\n\r\n1\tx\n",
            post + b"Content-Length: -1\r\n\r\n1\tx\n", post + b"Content-Length: 99999999999999999999\r\n\r\n1\tx\n",
            post + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n1\tx\n",
            post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n1\tx\n",
            post + b"Transfer-Encoding: chunked\r\n\r\n4\r\n1\tx\n\r\n"):
        raw(store, data, half_close=True)
    for _ in range(50):
        raw(store, noise.randbytes(noise.randrange(1, 2000)), half_close=True)
    for _ in range(100):
        body = noise.randbytes(noise.randrange(1, 200))
        assert store.request(body=body).status >= 400
        assert store.insert(f"INSERT INTO {table} FORMAT Native", body).status >= 400
    assert b" 404 " in raw(store, b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    # a truncated body inserts nothing
    assert store.ask(f"SELECT count() FROM {table}") == "0\n"


def test_body_limits(tmp_path):
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < 100 << 10
    with Store(tmp_path / "db", "--max_body_mb=4") as s:
        s.ask(TABLE.format("t"))
        before = rss(s.process.pid)
        for _ in range(8):
            answer = s.insert("INSERT INTO t FORMAT TSV", bomb, headers={"Content-Encoding": "gzip"})
            assert (answer.status, answer.code) == (413, 229), answer.text
        assert rss(s.process.pid) - before < 32 << 20
        # plain: refused by Content-Length, or during the transfer
        answer = s.insert("INSERT INTO t FORMAT TSV", b"1\tx\n" * (1 << 20) + b"1")
        assert (answer.status, answer.code) == (413, 229)
        data = b"1\tx\n" * (1 << 20)
        assert s.insert("INSERT INTO t FORMAT TSV", data).status == 200
        assert s.ask("SELECT count() FROM t") == f"{1 << 20}\n"


def rss(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no Anonymous: line")


def test_clients_that_stall(tmp_path):
    with Store(tmp_path / "db", "--client_timeout=1") as s:
        # an endless header, a missing body: closed
        for data in (b"GET /ping HTTP/1.1\r\nX: ", b"POST /?query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\n"
                     b"Host: x\r\nContent-Length: 100\r\n\r\n1"):
            with socket.create_connection(s.address, timeout=10) as c:
                c.sendall(data)
                while c.recv(4096):
                    pass
        # but the engine may take longer, before and within answers
        assert s.ask("SELECT sleep(2.5)") == "0\n"
        slow = s.ask("SELECT number, sleepEachRow(0.8), repeat('x', 700000) FROM numbers(4) FORMAT TSV",
                     max_block_size=1)
        assert slow.count("\n") == 4
