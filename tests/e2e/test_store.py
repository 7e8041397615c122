# SPDX-License-Identifier: Apache-2.0
"""The embedded store over HTTP, with a real engine: stock clients, authorization, questions and answers."""
import concurrent.futures
import gzip
import json
import os
import socket
import subprocess
import urllib.parse
import zlib

import pytest

from agent import NO_ENGINE, plain_build
from store_fixture import ROOT, TABLE, rows, store, table  # noqa: F401: fixtures

pytestmark = [pytest.mark.engine, plain_build(NO_ENGINE)]


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


# ---- authorization ----

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
    # nothing of a stranger's body is kept, whatever the claimed size
    answer = store.request(auth=False, query="INSERT INTO t FORMAT TSV", body=b"1\tx\n" * 1000)
    assert answer.code == 194
    assert store.request("GET", "/ping", auth=False).text == "Ok.\n"


# ---- questions and answers ----

def test_answer_headers(store):
    answer = store.request("GET", query="SELECT number FROM numbers(5)", query_id="my id")
    assert answer.headers["X-ClickHouse-Query-Id"] == "my id"
    assert answer.headers["X-ClickHouse-Format"] == "TabSeparated"
    assert answer.headers["Content-Type"] == "text/tab-separated-values; charset=UTF-8"
    assert answer.headers["X-ClickHouse-Timezone"] == store.ask("SELECT timezone()").strip()
    assert answer.headers["X-ClickHouse-Server-Display-Name"] == socket.gethostname()
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["read_rows"] == "5"
    # a header cannot contain a second header
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


@pytest.mark.parametrize("spelling", [
    "readonly=00", "readonly=%2B0", "readonly=-0", "readonly=0x0", "readonly=0%20", "readonly=%090", "readonly=0.0",
    "readonly=false", "readonly=", "readonly", "readonly=%00", "readonly=3", "readonly=1&readonly=0",
    "readonly=0&readonly=00", "readonly=00&readonly=0", "read%6fnly=0", "profile=default", "readonly=2&readonly=000"])
def test_get_changes_nothing_however_readonly_is_spelt(store, table, spelling, tmp_path):
    target = tmp_path / "written"
    tmp_path.chmod(0o777)
    for sql in (f"INSERT INTO {table} VALUES (1, 'x')", f"INSERT INTO {table} SETTINGS readonly = 0 VALUES (1, 'x')",
                f"INSERT INTO {table} SELECT 1, 'x' SETTINGS readonly = 0", f"WITH 1 AS a INSERT INTO {table} SELECT a, 'x'",
                f"DROP TABLE {table}", f"INSERT INTO FUNCTION file('{target}', 'TSV', 'a UInt8') VALUES (1)",
                f"WITH 1 AS a INSERT INTO FUNCTION file('{target}', 'TSV', 'a UInt8') SELECT a"):
        for method in ("GET", "HEAD"):
            answer = store.request(method, "/?" + spelling + "&" + urllib.parse.urlencode({"query": sql}))
            assert answer.status >= 400, (spelling, sql)
            assert answer.code in (36, 164), (spelling, sql, answer.text)
    assert store.ask(f"SELECT count() FROM {table}") == "0\n"
    assert not target.exists()


def test_get_only_reads(store):
    """Statements allowed by the engine's readonly are refused, too: writing files, stopping merges, ending
    foreign queries."""
    for sql in ("KILL QUERY WHERE 1", "SYSTEM STOP MERGES", "CREATE TEMPORARY TABLE q (a UInt8)", "SET max_threads = 1",
                "BACKUP TABLE t TO File('/tmp/x')", "PARALLEL WITH INSERT INTO t VALUES (1, 'x')", "OPTIMIZE TABLE t"):
        assert store.request("GET", query=sql).code == 164, sql
        assert store.request(query=sql, readonly=1).code == 164, sql
    for sql in ("SHOW TABLES", "DESCRIBE TABLE t", "EXISTS TABLE t", "EXPLAIN SELECT 1", "WITH 1 AS a SELECT a",
                "(SELECT 1)", "FROM t SELECT a", "CHECK TABLE t"):
        assert store.request("GET", query=sql).status == 200, sql


def test_nothing_leaks_between_requests(store):
    ask = "SELECT currentDatabase(), getSetting('max_threads'), getSetting('max_block_size')"
    plain = store.ask(ask)
    c = store.connect()

    def with_settings(i):
        got = store.request(query=ask, database="system", max_threads=1, max_block_size=1000 + i)
        assert got.text == f"system\t1\t{1000 + i}\n"
        assert store.ask(ask) == plain

    # the same connection, in sequence
    assert store.request(query=ask, database="system", max_threads=1, connection=c).text != plain
    assert store.request(query=ask, connection=c).text == plain
    store.request(body=b"SET max_threads = 1", connection=c)
    store.request(body=b"USE system", connection=c)
    # a query that fails after half an answer
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
    # parameters work in INSERTs, too
    store.ask(TABLE.format("p"))
    assert store.insert("INSERT INTO {x:Identifier} FORMAT TSV", "1\tx\n", param_x="p").status == 200
    assert store.ask("SELECT * FROM p") == "1\tx\n"
    store.ask("DROP TABLE p SYNC")


def test_a_question_is_compiled_only_where_its_client_asks_for_it(store, table):
    """ClickHouse compiles the expressions of a question that is asked again and again: the views cost seconds then."""
    def compiled(times, **settings):
        for _ in range(times):
            store.ask(f"SELECT sum(a * 3 + a % 7 - length(s)) FROM {table} WHERE a * 5 + 1 > a - 2 GROUP BY a % 3 ORDER BY a % 3", **settings)
        return int(store.ask("SELECT sum(value) FROM system.events WHERE event = 'CompileFunction'"))

    store.ask(f"INSERT INTO {table} (a, s) SELECT number, 'b' FROM numbers(100)")
    before = compiled(0)
    assert compiled(8) == before
    assert compiled(8, compile_expressions=1) > before


def test_deduplication_token(store, table):
    insert = f"INSERT INTO {table} (a, s) FORMAT JSONEachRow"
    for _ in range(3):
        answer = store.insert(insert, rows("once", 10), insert_deduplication_token="one",
                              async_insert=0)
        assert answer.status == 200
    assert store.ask(f"SELECT count() FROM {table}") == "10\n"
    store.insert(insert, rows("once", 10), insert_deduplication_token="two")
    assert store.ask(f"SELECT count() FROM {table}") == "20\n"
