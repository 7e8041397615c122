# SPDX-License-Identifier: Apache-2.0
"""The embedded store over HTTP: real engine, stock clients, hostile ones, and its own end."""
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import socket
import subprocess
import threading
import time
import zlib

import pytest

from agent import NO_ENGINE, plain_build
from store_fixture import ROOT, Store

pytestmark = plain_build(NO_ENGINE)

T = ("CREATE TABLE {} (a UInt64, s String) ENGINE = MergeTree ORDER BY a "
     "SETTINGS non_replicated_deduplication_window = 100")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("store") / "db") as s:
        s.ask(T.format("t"))
        yield s
        assert s.process.poll() is None, s.log.read_text()
        assert s.stop() == 0


@pytest.fixture
def table(store):
    """A fresh table of the shared store."""
    name = f"t{random.getrandbits(40)}"
    store.ask(T.format(name))
    yield name
    store.ask(f"DROP TABLE {name} SYNC")


def rows(name, n, first=0):
    return "".join(f'{{"a":{i},"s":"{name} {i}"}}\n' for i in range(first, first + n))


# ---- stock clients ----

def test_clickhouse_client_for_node(store):
    subprocess.run([ROOT / "tests/e2e/clickhouse_client.sh"], check=True)
    modules = ROOT / "build/cache/node_clickhouse/node_modules"
    done = subprocess.run(["node", ROOT / "tests/e2e/clickhouse_client.cjs", store.url, store.password],
                          env={**os.environ, "NODE_PATH": str(modules)}, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_curl(store, table):
    def curl(*arguments, data=None):
        return subprocess.run(["curl", "-sS", "-u", f"default:{store.password}", *arguments],
                              input=data, capture_output=True, check=True, timeout=30).stdout

    assert curl(f"{store.url}/ping") == b"Ok.\n"
    assert curl(store.url) == b"Ok.\n"
    assert curl(f"{store.url}/replicas_status") == b"Ok.\n"
    assert b"200 OK" in curl("-I", f"{store.url}/ping").splitlines()[0]
    assert curl(f"{store.url}/?query=SELECT+1") == b"1\n"
    assert curl(store.url, "--data-binary", "SELECT 1 AS x FORMAT JSONEachRow") == b'{"x":1}\n'
    # a body larger than curl sends without asking: Expect: 100-continue
    big = rows("curl", 60000).encode()
    assert curl(f"{store.url}/?query=INSERT+INTO+{table}+FORMAT+JSONEachRow",
                "--data-binary", "@-", data=big) == b""
    assert curl("-H", "Transfer-Encoding: chunked",
                f"{store.url}/?query=INSERT+INTO+{table}+FORMAT+JSONEachRow",
                "--data-binary", "@-", data=rows("chunked", 10).encode()) == b""
    assert store.ask(f"SELECT count() FROM {table}") == "60010\n"
    plain = curl(f"{store.url}/?query=SELECT+*+FROM+{table}+ORDER+BY+a,s")
    packed = curl("--compressed", f"{store.url}/?query=SELECT+*+FROM+{table}+ORDER+BY+a,s"
                                  "&enable_http_compression=1")
    assert plain == packed and plain.count(b"\n") == 60010


# ---- who asks ----

def test_authentication(store):
    ok = dict(auth=False, query="SELECT currentUser()")
    key = {"X-ClickHouse-User": "default", "X-ClickHouse-Key": store.password}
    for headers, params in (
            (key, {}), (store.basic(), {}), ({}, {"user": "default", "password": store.password}),
            ({"X-ClickHouse-Key": store.password}, {})):
        assert store.request(headers=headers, **ok, **params).text == "default\n"
    for headers, params in (
            ({**key, "X-ClickHouse-Key": "wrong"}, {}), ({**key, "X-ClickHouse-User": "root"}, {}),
            ({**key, "X-ClickHouse-Key": store.password + "x"}, {}),
            ({**key, "X-ClickHouse-Key": ""}, {}), (store.basic(password="wrong"), {}),
            ({"Authorization": "Basic !!"}, {}), ({"Authorization": "Bearer x"}, {}),
            ({}, {"user": "default"}), ({}, {"password": "wrong"}), ({**key, **store.basic()}, {})):
        answer = store.request(headers=headers, **ok, **params)
        assert (answer.status, answer.code) == (403, 516), (headers, params, answer.text)
        assert answer.text.startswith("Code: 516. DB::Exception: ")
        assert store.password not in answer.text
    nobody = store.request(**ok)
    assert (nobody.status, nobody.code) == (401, 194)
    assert nobody.headers["WWW-Authenticate"].startswith("Basic")
    # nothing of a stranger's body is kept, however large it says it is
    answer = store.request(auth=False, query="INSERT INTO t FORMAT TSV", body=b"1\tx\n" * 1000)
    assert answer.code == 194
    assert store.request("GET", "/ping", auth=False).text == "Ok.\n"


# ---- what is asked and answered ----

def test_answer_headers(store):
    answer = store.request("GET", query="SELECT number FROM numbers(5)", query_id="my id")
    assert answer.headers["X-ClickHouse-Query-Id"] == "my id"
    assert answer.headers["X-ClickHouse-Format"] == "TabSeparated"
    assert answer.headers["Content-Type"] == "text/tab-separated-values; charset=UTF-8"
    assert answer.headers["X-ClickHouse-Timezone"] == store.ask("SELECT timezone()").strip()
    assert answer.headers["X-ClickHouse-Server-Display-Name"] == socket.gethostname()
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["read_rows"] == "5"
    # a header is no place for another header
    evil = store.request("GET", query="SELECT 1", query_id="a\r\nX-Evil: 1")
    assert evil.status == 200 and "X-Evil" not in evil.headers
    for clause, default, name, content in (
            (" FORMAT JSON", "CSV", "JSON", "application/json"),
            ("", "JSONEachRow", "JSONEachRow", "application/x-ndjson"),
            (" FORMAT Native", "CSV", "Native", "application/octet-stream"),
            (" FORMAT CSVWithNames", "", "CSVWithNames", "text/csv"),
            (" FORMAT PrettyCompact", "", "PrettyCompact", "text/plain")):
        answer = store.request(query="SELECT 1" + clause, default_format=default)
        assert answer.headers["X-ClickHouse-Format"] == name
        assert answer.headers["Content-Type"].startswith(content)
    head = store.request("HEAD", query="SELECT 1")
    assert head.status == 200 and head.body == b""


@pytest.mark.parametrize("query, body", [
    ("INSERT INTO {} FORMAT JSONEachRow", '{{"a":1,"s":"x"}}\n{{"a":2,"s":"y"}}'),
    ("INSERT INTO {} (s, a) FORMAT CSV", 'x,1\n"y",2\n'),
    ("INSERT INTO {} FORMAT TSV", "1\tx\n2\ty\n"),
    ("INSERT INTO {} VALUES", "(1, 'x'), (1 + 1, concat('y', ''))"),
    ("INSERT INTO {} VALUES (1, 'x'),", "(2, 'y')"),
    ("INSERT INTO {} FORMAT TSV 1\tx", "2\ty\n"),
    ("", "INSERT INTO {} VALUES (1, 'x'), (2, 'y');"),
    ("", 'INSERT INTO {} FORMAT JSONEachRow {{"a":1,"s":"x"}}\n\n{{"a":2,"s":"y"}}'),
    ("INSERT INTO {}", "FORMAT TSV\n1\tx\n2\ty\n"),
    ("INSERT INTO {}", "SELECT number + 1, ['x', 'y'][number + 1] FROM numbers(2)"),
    ("", "INSERT INTO {} SELECT number + 1, ['x', 'y'][number + 1] FROM numbers(2)"),
    ("INSERT INTO {} VALUES (1, 'x'), (2, 'y')", ""),
    ("INSERT INTO {} SETTINGS max_threads = 1 FORMAT RowBinary",
     b"\1\0\0\0\0\0\0\0\1x\2\0\0\0\0\0\0\0\1y"),
])
def test_ways_to_insert(store, table, query, body):
    body = body if isinstance(body, bytes) else body.format(table).encode()
    params = {"query": query.format(table)} if query else {}
    answer = store.request(body=body, **params)
    assert answer.status == 200, answer.text
    assert answer.body == b""
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "2"
    assert store.ask(f"SELECT a, s FROM {table} ORDER BY a") == "1\tx\n2\ty\n"


def test_request_compression(store, table):
    insert = f"INSERT INTO {table} FORMAT JSONEachRow"
    for encoding, pack in (("gzip", gzip.compress), ("x-gzip", gzip.compress),
                           ("deflate", zlib.compress), ("identity", bytes)):
        data = rows(encoding, 1000).encode()
        answer = store.insert(insert, pack(data), headers={"Content-Encoding": encoding})
        assert answer.status == 200, answer.text
    whole = gzip.compress(data)
    # also a query may be packed
    packed = store.request(body=gzip.compress(b"SELECT 7"), headers={"Content-Encoding": "gzip"})
    assert packed.text == "7\n"
    for body in (whole[:-9], whole[:20], b"not gzip", whole + b"rubbish"):
        answer = store.insert(insert, body, headers={"Content-Encoding": "gzip"})
        assert (answer.status, answer.code) == (500, 354), answer.text
    for encoding in ("zstd", "br", "lz4", "nonsense"):
        answer = store.insert(insert, data, headers={"Content-Encoding": encoding})
        assert (answer.status, answer.code) == (501, 48)
        assert encoding in answer.text and "gzip" in answer.text
    assert store.insert(insert, data, decompress=1).code == 48
    assert store.ask(f"SELECT count() FROM {table}") == "4000\n"


@pytest.mark.parametrize("code, status, sql, params", [
    (62, 400, "SELECT FROM WHERE", {}),
    (62, 400, "", {}),
    (62, 400, "SELECT 1; SELECT 2", {}),
    (60, 404, "SELECT * FROM no_such_table", {}),
    (81, 404, "SELECT 1", {"database": "no_such"}),
    (115, 404, "SELECT 1", {"no_such_setting": "1"}),
    (115, 404, "SELECT 1", {"bad`name; --": "1"}),
    (73, 404, "SELECT 1 FORMAT NoSuch", {}),
    (46, 404, "SELECT no_such_function(1)", {}),
    (47, 404, "SELECT no_such_column", {}),
    (27, 400, "INSERT INTO t FORMAT JSONEachRow {\"a\":\"x\"}", {}),
    (395, 500, "SELECT throwIf(1)", {}),
    (358, 500, "SELECT 1 INTO OUTFILE '/tmp/underspan_must_not_exist'", {}),
    (456, 500, "SELECT {x:UInt8}", {}),
    (48, 501, "INSERT INTO t SELECT * FROM input('a UInt8') FORMAT CSV 1", {}),
    (48, 501, "SELECT 1", {"compress": "1"}),
    (512, 403, "SELECT 1", {"role": "admin"}),
    (497, 403, "SYSTEM SHUTDOWN", {}),
    (497, 403, "system /* */ kill", {}),
])
def test_errors(store, code, status, sql, params):
    answer = store.request(body=sql.encode(), **params)
    assert (answer.code, answer.status) == (code, status), answer.text
    assert answer.text.startswith(f"Code: {code}. DB::Exception: ")
    assert answer.text.rstrip().endswith("(version " + store.ask("SELECT version()").strip() + ")")
    assert not os.path.exists("/tmp/underspan_must_not_exist")


def test_get_changes_nothing(store, table):
    for sql in (f"INSERT INTO {table} VALUES (1, 'x')", f"INSERT INTO {table} SELECT 1, 'x'",
                f"DROP TABLE {table}", "CREATE TABLE x (a UInt8) ENGINE = Memory",
                f"TRUNCATE TABLE {table}"):
        for params in ({}, {"readonly": "0"}):
            answer = store.request("GET", query=sql, **params)
            assert (answer.status, answer.code) == (500, 164), answer.text
            assert "method GET implies readonly" in answer.text
    assert store.request("GET", query="SELECT 1 INTO OUTFILE '/tmp/underspan_must_not_exist'").code == 358
    # settings may still be chosen, as with ClickHouse
    assert store.request("GET", query="SELECT getSetting('max_threads')", max_threads=1).text == "1\n"
    assert store.request(query=f"INSERT INTO {table} VALUES (1, 'x')", readonly=1).code == 164
    assert store.ask(f"SELECT count() FROM {table}") == "0\n"


def test_nothing_leaks_between_requests(store):
    ask = "SELECT currentDatabase(), getSetting('max_threads'), getSetting('max_block_size')"
    plain = store.ask(ask)
    c = store.connect()

    def with_settings(i):
        got = store.request(query=ask, database="system", max_threads=1, max_block_size=1000 + i)
        assert got.text == f"system\t1\t{1000 + i}\n"
        assert store.ask(ask) == plain

    # the same connection, one after the other
    assert store.request(query=ask, database="system", max_threads=1, connection=c).text != plain
    assert store.request(query=ask, connection=c).text == plain
    store.request(body=b"SET max_threads = 1", connection=c)
    store.request(body=b"USE system", connection=c)
    # a query that fails with half an answer behind it
    assert store.request(query="SELECT throwIf(number = 900) FROM numbers(1000) FORMAT JSON",
                         max_block_size=100, connection=c).code == 395
    assert store.request(query=ask, connection=c).text == plain
    c.close()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(with_settings, range(60)))


def test_query_parameters(store):
    evil = "it's \\ `x` {y:String} \u2603"
    answer = store.request(query="SELECT {n:UInt32} + 1, {s:String}, {l:Array(String)}, {t:Identifier}.name "
                                 "FROM system.one AS one CROSS JOIN (SELECT name FROM system.databases "
                                 "WHERE name = 'default') AS d FORMAT JSONCompactEachRow",
                           param_n="41", param_s=evil.replace("\\", "\\\\"), param_l="['a','b']", param_t="d")
    assert json.loads(answer.text) == [42, evil, ["a", "b"], "default"]
    assert store.request(query="SELECT {n:UInt8}", param_n="1; DROP TABLE t").code == 457
    # they work in INSERTs, too
    store.ask(T.format("p"))
    assert store.insert("INSERT INTO {x:Identifier} FORMAT TSV", "1\tx\n", param_x="p").status == 200
    assert store.ask("SELECT * FROM p") == "1\tx\n"
    store.ask("DROP TABLE p SYNC")


def test_deduplication_token(store, table):
    insert = f"INSERT INTO {table} (a, s) FORMAT JSONEachRow"
    for _ in range(3):
        answer = store.insert(insert, rows("once", 10), insert_deduplication_token="one",
                              async_insert=0)
        assert answer.status == 200
    assert store.ask(f"SELECT count() FROM {table}") == "10\n"
    store.insert(insert, rows("once", 10), insert_deduplication_token="two")
    assert store.ask(f"SELECT count() FROM {table}") == "20\n"


# ---- large answers ----

@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("form", ["TSV", "JSONEachRow", "RowBinary", "JSON", "CSVWithNames", "Parquet"])
def test_large_answers_are_whole(store, form, gz):
    """In pieces or at once, packed or not: the bytes that the engine makes in one go."""
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
    # the status was out before; the text says it, and the connection breaks
    assert answer.status == 200 and answer.broken
    tag = answer.headers["X-ClickHouse-Exception-Tag"]
    assert f"\r\n__exception__\r\n{tag}\r\nCode: 395. DB::Exception: " in answer.text
    assert answer.text.endswith(f" {tag}\r\n__exception__\r\n")
    # unless the client waits for the end
    answer = store.request(query=sql, wait_end_of_query=1)
    assert (answer.status, answer.code) == (500, 395)


def test_reader_that_goes_away(store):
    """Its query is cancelled: it would run for ever."""
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
    """50 clients read while another inserts: nobody fails, nobody sees half a batch."""
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
    """Sends bytes, returns what comes back until the end of the connection or 2 s of silence."""
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
    # a body that was cut is no insert
    assert store.ask(f"SELECT count() FROM {table}") == "0\n"


def test_body_limits(tmp_path):
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < 100 << 10
    with Store(tmp_path / "db", "--max_body_mb=4") as s:
        s.ask(T.format("t"))
        before = rss(s.process.pid)
        for _ in range(8):
            answer = s.insert("INSERT INTO t FORMAT TSV", bomb, headers={"Content-Encoding": "gzip"})
            assert (answer.status, answer.code) == (413, 229), answer.text
        assert rss(s.process.pid) - before < 32 << 20
        # plain: refused by its Content-Length, or while it comes
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
        # a header that does not end, a body that does not come: closed
        for data in (b"GET /ping HTTP/1.1\r\nX: ", b"POST /?query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\n"
                     b"Host: x\r\nContent-Length: 100\r\n\r\n1"):
            with socket.create_connection(s.address, timeout=10) as c:
                c.sendall(data)
                while c.recv(4096):
                    pass
        # but the engine may take longer than that, before and between its answers
        assert s.ask("SELECT sleep(2.5)") == "0\n"
        slow = s.ask("SELECT number, sleepEachRow(0.8), repeat('x', 700000) FROM numbers(4) FORMAT TSV",
                     max_block_size=1)
        assert slow.count("\n") == 4


# ---- its life ----

def test_restart_keeps_the_data(tmp_path):
    with Store(tmp_path / "db") as s:
        first = s.password
        assert (tmp_path / "db").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "db/password").stat().st_mode & 0o777 == 0o600
        assert len(first) == 32 and first.isalnum()
        url, pid = (tmp_path / "db/endpoint").read_text().split()
        assert (url, int(pid)) == (s.url, s.process.pid)
        s.ask(T.format("t"))
        s.insert("INSERT INTO t FORMAT JSONEachRow", rows("kept", 1000), insert_deduplication_token="k")
        assert s.stop() == 0
        assert not (tmp_path / "db/endpoint").exists()
    with Store(tmp_path / "db") as s:
        assert s.password == first
        # the window is remembered, too
        s.insert("INSERT INTO t FORMAT JSONEachRow", rows("kept", 1000), insert_deduplication_token="k")
        assert s.ask("SELECT count(), uniqExact(s) FROM t") == "1000\t1000\n"
        assert s.stop() == 0


def test_kill_and_restart(tmp_path):
    """SIGKILL amid inserts: what was acknowledged is there, what was not is there whole or not at all."""
    acknowledged = []
    with Store(tmp_path / "db") as s:
        s.ask(T.format("t"))

        def insert():
            try:
                for i in range(10000):
                    if s.insert("INSERT INTO t FORMAT JSONEachRow", rows("k", 100, i * 100)).status != 200:
                        return
                    acknowledged.append(i)
            except OSError:
                pass

        thread = threading.Thread(target=insert)
        thread.start()
        while len(acknowledged) < 20:
            time.sleep(0.01)
        s.kill()
        thread.join()
    assert (tmp_path / "db/endpoint").exists()
    with Store(tmp_path / "db") as s:
        counts = dict(map(int, line.split("\t")) for line in s.ask(
            "SELECT intDiv(a, 100), count() FROM t GROUP BY 1").splitlines())
        assert set(counts.values()) == {100}
        assert set(acknowledged) <= set(counts) and len(counts) - len(acknowledged) <= 1
        assert (tmp_path / "db/endpoint").read_text().split()[0] == s.url


def test_stop_with_queries_running(tmp_path):
    """One that can finish does; one that would not is cancelled; the exit is clean and in time."""
    with Store(tmp_path / "db") as s, concurrent.futures.ThreadPoolExecutor(3) as pool:
        short = pool.submit(s.request, body=b"SELECT sleep(1)")
        endless = pool.submit(s.request, body=b"SELECT count() FROM system.numbers")
        idle = s.connect()
        assert s.request("GET", "/ping", connection=idle).status == 200
        while s.ask("SELECT count() FROM system.processes") != "3\n":
            time.sleep(0.01)
        start = time.monotonic()
        assert s.stop() == 0
        assert time.monotonic() - start < 8
        assert short.result().text == "0\n"
        assert endless.result().code == 394
        idle.close()


def test_one_store_a_directory(tmp_path):
    with Store(tmp_path / "db") as s:
        with pytest.raises(RuntimeError) as e:
            Store(tmp_path / "db")
        assert "exit 1:" in str(e.value) and f"pid {s.process.pid}" in str(e.value)
        assert s.ask("SELECT 1") == "1\n"
        assert (tmp_path / "db/endpoint").read_text().split()[0] == s.url


@pytest.mark.parametrize("arguments, status, words", [
    (["--listen=0.0.0.0:0"], 2, ["loopback", "--listen_anywhere"]),
    (["--listen=8123"], 2, ["HOST:PORT"]),
    (["--listen=127.0.0.1:99999"], 2, ["HOST:PORT"]),
    (["--listen=192.0.2.1:0", "--listen_anywhere"], 1, ["cannot listen on 192.0.2.1:0"]),
    (["--libchdb=/nonexistent/libchdb.so"], 1, ["/nonexistent/libchdb.so"]),
    (["--libchdb=/bin/true"], 1, ["/bin/true"]),
    (["--max_body_mb=0"], 2, ["max_body_mb"]),
])
def test_refusals(tmp_path, arguments, status, words):
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "db", *arguments)
    assert f"exit {status}:" in str(e.value)
    for word in words:
        assert word in str(e.value)
    assert not (tmp_path / "db/endpoint").exists()


def test_more_refusals(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        with pytest.raises(RuntimeError) as e:
            Store(tmp_path / "db", listen=address)
        assert f"exit 1: {address} is in use" in str(e.value)
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "no/parent/db")
    assert "exit 1: cannot make the store's directory" in str(e.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError) as e:
        Store(tmp_path / "file")
    assert "exit 1:" in str(e.value) and "is a file" in str(e.value)


def test_without_the_engine(tmp_path):
    """A program that stands alone, with no libchdb in any usual place: one sentence, how to get it."""
    from store_fixture import UNDERSPAN
    alone = tmp_path / "underspan"
    alone.write_bytes(pathlib.Path(UNDERSPAN).read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "store", f"--path={tmp_path}/db"], capture_output=True, text=True,
                          env={**os.environ, "UNDERSPAN_LIBCHDB": ""})
    assert done.returncode == 1
    assert "deploy/libchdb.sh" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "db").exists()


def test_full_disk(tmp_path):
    """On a file system of its own that fills up: an exception a client can read, and life goes on."""
    (tmp_path / "small").mkdir()
    mount = f"mount -t tmpfs -o size=24m tmpfs {tmp_path}/small && exec \"$@\""
    with Store(tmp_path / "small/db", prefix=["unshare", "-m", "sh", "-c", mount, "sh"]) as s:
        s.ask(T.format("t"))
        insert = "INSERT INTO t SELECT number, randomPrintableASCII(2000) FROM numbers(2000)"
        for i in range(20):
            answer = s.request(body=insert.encode())
            if answer.status != 200:
                break
        assert i > 0 and answer.status == 500 and answer.code in (74, 75, 76, 243, 1001), answer.text
        assert "space" in answer.text.lower()
        # what was acknowledged is there, and it goes on once there is room
        assert s.ask("SELECT count() FROM t") == f"{2000 * i}\n"
        s.ask("DROP TABLE t SYNC")
        s.ask(T.format("t"))
        assert s.request(body=insert.encode()).status == 200
        assert s.stop() == 0
