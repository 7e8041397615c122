# SPDX-License-Identifier: Apache-2.0
"""A database of any older version, complete or partial, becomes a database of the current version; rows, TTLs and
operators' views stay. The old statements are in schemas/v1.sql, as created by the first released version."""
import os
import pathlib
import re
import threading

import pytest

import fault_proxy as fault
from agent import run_underspan
from delivery import store  # noqa: F401: fixture
from store_fixture import Store

pytestmark = pytest.mark.engine
V1 = (pathlib.Path(__file__).parent / "schemas" / "v1.sql").read_text()


def statements(text):
    return [s.strip() for s in text.split(";\n") if s.strip()]


class Database:
    count = 0

    def __init__(self, store, tmp_path):  # noqa: F811
        Database.count += 1
        self.store, self.name = store, f"upgrade_{os.getpid()}_{Database.count}"
        store.ask(f"CREATE DATABASE {self.name}")
        (tmp_path / "password").write_text(store.password)
        self.options = [f"--clickhouse={store.url}", f"--clickhouse_password_file={tmp_path}/password",
                        f"--clickhouse_database={self.name}"]

    def ask(self, sql):
        return self.store.ask(sql, database=self.name)

    def make(self, text):
        for statement in statements(text):
            self.ask(statement)

    def schema(self, *options):
        return run_underspan("schema", *options, *self.options, timeout=60)

    def apply(self):
        result = self.schema("--apply")
        assert result.returncode == 0, result.stderr
        return result.stderr

    def columns(self):
        """{table: [(name, type, default kind)]}, in order"""
        tables = {}
        for line in self.ask("SELECT table, name, type, default_kind FROM system.columns WHERE database = currentDatabase() "
                             "AND startsWith(table, 'ebpf_') ORDER BY table, position FORMAT TSV").splitlines():
            table, *column = line.split("\t")
            tables.setdefault(table, []).append(column)
        return tables

    def one(self, sql):
        return self.ask(sql).strip()


@pytest.fixture
def database(store, tmp_path):  # noqa: F811
    store.ask("CREATE DATABASE IF NOT EXISTS upgrade_traces")
    d = Database(store, tmp_path)
    yield d
    store.ask(f"DROP DATABASE {d.name}")


@pytest.fixture
def fresh(store, database, tmp_path):  # noqa: F811
    """The schema made by this version from nothing."""
    d = Database(store, tmp_path)
    traces(d)
    d.apply()
    yield d
    store.ask(f"DROP DATABASE {d.name}")


def traces(database):
    """Needed by the view: a table as made by the collector, from the program's text."""
    folder = pathlib.Path(__file__).resolve().parents[2] / "sql" / "otel"
    database.ask((folder / "otel_traces.sql").read_text())


def older(text, table, column):
    """The statements without a column, as in an imagined earlier version."""
    head, _, rest = text.partition(f"CREATE TABLE IF NOT EXISTS {table}\n")
    body, _, tail = rest.partition(";\n")
    without = re.sub(rf"\n    {column} [^\n]*", "", body)
    assert without != body, (table, column)
    return f"{head}CREATE TABLE IF NOT EXISTS {table}\n{without};\n{tail}"


def test_the_first_version(database, fresh):
    """The released DDL with rows, an operator's TTL and column: all columns get the right positions, and nothing is
    removed."""
    traces(database)
    database.make(V1)
    database.ask("INSERT INTO ebpf_handoff (host, pid, start_time, handoff_ns) SELECT 'h', number, now64(6), 7 FROM numbers(1000)")
    database.ask("ALTER TABLE ebpf_handoff MODIFY TTL toDateTime(start_time) + INTERVAL 90 DAY")
    database.ask("ALTER TABLE ebpf_handoff ADD COLUMN team String DEFAULT 'web'")
    check = database.schema("--check")
    assert check.returncode == 1 and "ebpf_agent has no column columns_left_out" in check.stdout, check.stdout
    log = database.apply()
    assert "ALTER TABLE ebpf_agent ADD COLUMN IF NOT EXISTS `columns_left_out`" in log
    assert "nothing to do" in database.apply()
    same = database.schema("--check")
    assert same.returncode == 0 and "no difference: version" in same.stderr, same
    now, wanted = database.columns(), fresh.columns()
    assert now.pop("ebpf_handoff") == wanted.pop("ebpf_handoff") + [["team", "String", "DEFAULT"]] and now == wanted
    assert database.one("SELECT count(), uniqExact(pid), sum(handoff_ns) FROM ebpf_handoff FORMAT CSV") == "1000,1000,7000"
    assert "toIntervalDay(90)" in database.one("SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND "
                                               "name = 'ebpf_handoff'")
    assert database.one("SELECT count(), max(version) FROM ebpf_schema FORMAT CSV") == "1,10"


@pytest.mark.parametrize("table, column", [
    ("ebpf_off_cpu", "waker_stack"), ("ebpf_gil_wait", "holders"), ("ebpf_handoff", "host"), ("ebpf_handoff", "weight"),
    ("ebpf_handoff", "handoff_ms"), ("ebpf_ena", "driver"), ("ebpf_tcp_loss", "kind")])
def test_a_column_that_is_not_there(table, column, database, fresh):
    """First, in the middle, last, computed, with a default, a nested type: added at the right position,
    with the right type."""
    database.make(older(V1, table, column))
    traces(database)
    database.apply()
    assert database.columns() == fresh.columns()
    assert database.schema("--check").returncode == 0


def test_types_and_windows(database, fresh):
    """Narrower numbers grow and keep the values; a short window grows, a long window stays; wider types belong to the
    operator."""
    traces(database)
    text = V1.replace("    fd UInt32 CODEC(ZSTD),", "    fd UInt16 CODEC(ZSTD),").replace(
        "    local_port UInt16 CODEC(ZSTD),\n    peer_ip IPv6 CODEC(ZSTD),\n    peer_port UInt16 CODEC(ZSTD),\n    py_stack",
        "    local_port UInt64 CODEC(ZSTD),\n    peer_ip IPv6 CODEC(ZSTD),\n    peer_port UInt16 CODEC(ZSTD),\n    py_stack")
    assert text.count("fd UInt16") and text.count("local_port UInt64") == 1
    database.make(text)
    database.ask("INSERT INTO ebpf_handoff (pid, start_time, fd) VALUES (1, now64(6), 65535)")
    database.ask("ALTER TABLE ebpf_handoff MODIFY SETTING non_replicated_deduplication_window = 100")
    database.ask("ALTER TABLE ebpf_ena MODIFY SETTING non_replicated_deduplication_window = 50000")
    log = database.apply()
    assert "ebpf_handoff: non_replicated_deduplication_window is 100, and 10000 is needed" in log
    columns = {name: kind for name, kind, _ in database.columns()["ebpf_handoff"]}
    assert columns["fd"] == "UInt32" and columns["local_port"] == "UInt64"
    assert database.one("SELECT fd FROM ebpf_handoff") == "65535"
    windows = dict(line.split("\t") for line in database.ask(
        "SELECT name, extract(engine_full, 'non_replicated_deduplication_window = (\\\\d+)') FROM system.tables "
        "WHERE database = currentDatabase() AND startsWith(name, 'ebpf_') AND name != 'ebpf_schema' FORMAT TSV").splitlines())
    assert set(windows.values()) == {"10000", "50000"} and windows["ebpf_ena"] == "50000"
    assert database.schema("--check").returncode == 0


def test_a_type_that_nothing_changes_for_sure(database):
    traces(database)
    database.make(V1.replace("    cause LowCardinality(String),", "    cause UInt8,"))
    log = database.apply()
    assert "ebpf_off_cpu: cause is UInt8 in the database and not LowCardinality(String)" in log and "RENAME TABLE" in log
    check = database.schema("--check")
    assert check.returncode == 1 and "ebpf_off_cpu: cause is UInt8 in the database" in check.stdout and "ALTER" not in check.stdout


def test_windows_for_many_agents(database):
    """A thousand agents, each with a batch every five seconds: ten minutes of batches are remembered."""
    traces(database)
    database.apply()
    assert database.schema("--check").returncode == 0
    check = database.schema("--check", "--agents=1000")
    assert check.returncode == 1
    assert "ALTER TABLE ebpf_off_cpu MODIFY SETTING non_replicated_deduplication_window = 120000;" in check.stdout
    # the default number of writers
    database.ask("INSERT INTO ebpf_agent (host, start_time) SELECT toString(number), now64(6) FROM numbers(500)")
    assert "non_replicated_deduplication_window = 60000;" in database.schema("--check").stdout
    database.apply()
    assert database.schema("--check").returncode == 0


def test_views(database):
    """An old view is replaced, with the old text in the log; an operator's view stays and is named; without spans, the view
    waits."""
    database.make(V1.split("CREATE VIEW")[0])
    assert "request_time is left out: there is no table otel_traces" in database.apply()
    assert database.schema("--check").returncode == 0, "what waits for the collector is no difference"
    traces(database)
    check = database.schema("--check")
    assert check.returncode == 1 and "there is no view request_time" in check.stdout
    database.apply()
    comment = "SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = 'request_time'"
    assert database.one(comment).startswith("underspan view ")
    database.ask("SELECT * FROM request_time(from = '2026-01-01 00:00:00', to = '2026-01-01 01:00:00')")
    database.ask("CREATE OR REPLACE VIEW request_time AS SELECT 1 AS mine")
    assert "request_time was not made by underspan and is kept" in database.apply()
    assert database.one("SELECT mine FROM request_time") == "1"
    database.ask("CREATE OR REPLACE VIEW request_time AS SELECT 2 AS old COMMENT 'underspan view 00000000'")
    assert "the view request_time is of another version" in database.apply()
    database.ask("SELECT * FROM request_time(from = '2026-01-01 00:00:00', to = '2026-01-01 01:00:00')")


def test_an_old_view_is_in_the_log(database):
    traces(database)
    database.make(V1.split("CREATE VIEW")[0])
    database.ask("CREATE VIEW request_time AS SELECT 4711 AS of_somebody")
    assert re.search("request_time is of an older version; the old text: .*4711 AS of_somebody", database.apply())


def test_a_newer_database_is_left_alone(database):
    traces(database)
    database.apply()
    database.ask("ALTER TABLE ebpf_handoff DROP COLUMN fd, ADD COLUMN of_tomorrow UInt8")
    database.ask("INSERT INTO ebpf_schema (version, applied_by) VALUES (1000, 'tomorrow')")
    before = database.columns()
    log = database.apply()
    assert "version 1000, of a newer underspan" in log and "nothing is changed" in log
    assert database.columns() == before
    assert "version 1000" in database.schema("--check").stdout and database.columns() == before


def test_nothing_is_changed_by_a_check(database):
    database.make(older(V1, "ebpf_handoff", "fd"))
    before = database.columns(), database.one("SELECT count() FROM system.tables WHERE database = currentDatabase()")
    assert database.schema("--check").returncode == 1
    assert before == (database.columns(), database.one("SELECT count() FROM system.tables WHERE database = currentDatabase()"))


def test_what_a_check_prints_is_what_apply_does(database, fresh):
    """The printed statements, given to the server by hand."""
    traces(database)
    database.make(older(older(V1, "ebpf_handoff", "fd"), "ebpf_off_cpu", "idle"))
    printed = database.schema("--check").stdout
    database.make("\n".join(line for line in printed.splitlines() if not line.startswith("--")) + "\n")
    assert database.columns() == fresh.columns() and database.schema("--check").returncode == 0


def test_many_at_once(database, fresh):
    """As the pods of a DaemonSet would: all report success, and the upgrade is done once."""
    traces(database)
    database.make(older(V1, "ebpf_handoff", "fd"))
    results = []
    threads = [threading.Thread(target=lambda: results.append(database.schema("--apply"))) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [r.returncode for r in results] == [0] * 6, [r.stderr for r in results]
    assert database.columns() == fresh.columns() and database.schema("--check").returncode == 0


def test_halfway(store, database, fresh, cleanup):  # noqa: F811
    """A failing statement ends the upgrade, with the reason; the next run continues from there."""
    traces(database)
    database.make(older(older(older(V1, "ebpf_agent", "seen"), "ebpf_gil_wait", "holders"), "ebpf_tcp_loss", "kind"))
    database.ask("ALTER TABLE ebpf_tcp_loss ADD CONSTRAINT of_somebody CHECK 1")
    # no right to change one table
    p = fault.FaultProxy(store.address, lambda request: fault.exception(497, status=403)
                         if b"ALTER TABLE ebpf_gil_wait ADD COLUMN IF NOT EXISTS `holders`" in request.read() else None)
    cleanup.append(p)
    result = run_underspan("schema", "--apply", f"--clickhouse={p.url}", *database.options[1:], timeout=60)
    assert result.returncode == 1 and "ebpf_gil_wait has no column holders" in result.stderr
    assert ["seen", "UInt64", ""] in database.columns()["ebpf_agent"], "what came before it is done"
    assert database.one("SELECT count() FROM ebpf_schema") == "0", "and it is not called done"
    database.apply()
    assert database.columns() == fresh.columns() and database.schema("--check").returncode == 0


MOVED = "RENAME TABLE ebpf_handoff TO behind"


@pytest.mark.parametrize("engine, statements", [
    ("Null", ["CREATE TABLE other AS ebpf_handoff ENGINE = Null", "DROP TABLE ebpf_handoff",
              "RENAME TABLE other TO ebpf_handoff"]),
    ("Memory", ["CREATE TABLE other AS ebpf_handoff ENGINE = Memory", "DROP TABLE ebpf_handoff",
                "RENAME TABLE other TO ebpf_handoff"]),
    ("Buffer", [MOVED, "CREATE TABLE ebpf_handoff AS behind "
                       "ENGINE = Buffer(currentDatabase(), 'behind', 1, 1, 10, 100, 1000, 10000, 100000)"]),
    ("View", [MOVED, "CREATE VIEW ebpf_handoff AS SELECT * FROM behind"]),
    ("MaterializedView", [MOVED, "CREATE MATERIALIZED VIEW ebpf_handoff ENGINE = MergeTree ORDER BY host AS SELECT * FROM behind"]),
], ids=lambda v: v if isinstance(v, str) else "")
def test_a_table_of_another_engine(engine, statements, database):
    """An operator's table stays; missing columns are named, and the remaining tables are upgraded all the same."""
    traces(database)
    database.make(older(older(V1, "ebpf_handoff", "fd"), "ebpf_tcp_loss", "kind"))
    for statement in statements:
        database.ask(statement)
    before = database.columns()["ebpf_handoff"]
    log = database.apply()
    assert f"ebpf_handoff has no column fd, and --apply leaves a table of engine {engine} unchanged" in log
    now = database.columns()
    assert now["ebpf_handoff"] == before and "kind" in [name for name, _, _ in now["ebpf_tcp_loss"]]
    assert database.one("SELECT max(version) FROM ebpf_schema") == "10" and "nothing to do" in database.apply()
    check = database.schema("--check")
    assert check.returncode == 1 and "ebpf_handoff has no column fd" in check.stdout and "ALTER" not in check.stdout


def test_a_view_in_a_table_s_place(database):
    """It has every column, but takes no row."""
    traces(database)
    database.apply()
    for statement in "RENAME TABLE ebpf_handoff TO behind", "CREATE VIEW ebpf_handoff AS SELECT * FROM behind":
        database.ask(statement)
    assert "ebpf_handoff is a view in the database, which takes no rows: rename the view" in database.apply()
    assert database.schema("--check").returncode == 1
    database.ask("RENAME TABLE ebpf_handoff TO operators_view")
    database.apply()
    assert database.schema("--check").returncode == 0
    assert database.one("SELECT engine FROM system.tables WHERE database = currentDatabase() AND name = 'ebpf_handoff'") == "MergeTree"


FOREIGN = ["CREATE TABLE ebpf_schema (name String) ENGINE = MergeTree ORDER BY name",
           "CREATE TABLE ebpf_schema (version String, applied_at String, applied_by String) ENGINE = MergeTree ORDER BY version",
           "CREATE VIEW ebpf_schema AS SELECT 1 AS version, now64(6) AS applied_at, '' AS applied_by"]


@pytest.mark.parametrize("statement", FOREIGN, ids=["other columns", "other type", "view"])
def test_a_foreign_table_of_versions(statement, database):
    """One sentence with the remedy, and nothing is changed; the remedy works."""
    database.ask(statement)
    for option in "--check", "--apply":
        result = database.schema(option)
        assert result.returncode == 1 and "Exception" not in result.stdout + result.stderr, result
        assert re.search("the (table|view) ebpf_schema in the database is not underspan's.*rename it", result.stderr), result.stderr
    assert list(database.columns()) == ["ebpf_schema"]
    database.ask("RENAME TABLE ebpf_schema TO theirs")
    database.apply()
    assert database.one("SELECT max(version) FROM ebpf_schema") == "10"


def test_a_foreign_table_of_versions_in_a_store(tmp_path):
    with Store(tmp_path / "store") as s:
        s.ask(FOREIGN[0])
        assert s.stop() == 0
    run = run_underspan("run", f"--store={tmp_path}/store", "--trackers=gc_pause", "--duration=1", timeout=60)
    assert run.returncode == 1 and "ebpf_schema in the database is not underspan's" in run.stderr and "Exception" not in run.stderr, run.stderr


@pytest.mark.parametrize("change, lacks", [
    (("    TraceId            String", "    trace_id           String"), "TraceId"), (("    Duration           UInt64 ", "    Took               UInt64 "), "Duration"),
    (("    SpanAttributes     Map(LowCardinality(String), String)", "    SpanAttributes     String"), "SpanAttributes of type Map or JSON")])
def test_a_table_that_is_none_of_spans(change, lacks, database):
    """Before and after the views are there: the column is named, everything else is made, and the version."""
    folder = pathlib.Path(__file__).resolve().parents[2] / "sql" / "otel"
    text = re.sub(r"\n    INDEX [^\n]*|,(?=\n\)\nENGINE)", "", (folder / "otel_traces.sql").read_text())
    text = re.sub(r"(\) CODEC\(ZSTD\(1\)\)),\n\)", r"\1\n)", text).replace("toDateTime(Timestamp), Timestamp)", "toDateTime(Timestamp))")
    other = text.replace(*change)
    assert other != text
    said = f"otel_span is left out: the table otel_traces has no column {lacks}, so it is not one of the OpenTelemetry collector's exporter"
    database.ask(other)
    assert said in database.apply()
    assert database.one("SELECT max(version) FROM ebpf_schema") == "10"
    check = database.schema("--check")
    assert check.returncode == 1 and said in check.stdout, check.stdout
    database.ask("DROP TABLE otel_traces")
    database.ask(text)
    database.apply()
    assert database.schema("--check").returncode == 0
    database.ask("DROP TABLE otel_traces")
    database.ask(other)
    check = database.schema("--check")
    assert check.returncode == 1 and said in check.stdout, check.stdout


@pytest.mark.parametrize("columns", ["maps", "JSON"])
def test_a_name_with_spaces_is_remembered(columns, database):
    """Without --traces the table of the apply before counts; doctor names the table that has gone."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "sql" / "otel" / "otel_traces.sql").read_text()
    if columns == "JSON":
        text = re.sub(r"(Resource|Span)Attributes( +)Map\(LowCardinality\(String\), String\)( +)CODEC\(ZSTD\(1\)\)", r"\1Attributes\2JSON", text)
        text = re.sub(r"\n *INDEX idx_(res|span)_attr[^\n]*", "", text)
    database.ask(text.replace("NOT EXISTS otel_traces", "NOT EXISTS `all spans of us`"))
    assert database.schema("--apply", f"--traces={database.name}.all spans of us").returncode == 0
    check = database.schema("--check")
    assert (check.returncode, check.stdout) == (0, ""), check
    assert "nothing to do" in database.apply()
    doctor = run_underspan("doctor", "--spans", *database.options, timeout=60)
    assert f"none in {database.name}.all spans of us:" in doctor.stdout, doctor.stdout
    database.ask("DROP TABLE `all spans of us`")
    doctor = run_underspan("doctor", "--spans", *database.options, timeout=60)
    assert f"the view otel_span reads {database.name}.all spans of us, which is missing here" in doctor.stdout, doctor.stdout


def test_doctor_before_an_older_database(database):
    """The database lacks some counts: a sentence with the remedy, and no value for missing counts."""
    database.make(V1.split("CREATE VIEW")[0])
    database.ask(f"INSERT INTO ebpf_agent (host, tracker, start_time, end_time, seen) VALUES ('{os.uname().nodename}', 'gc_pause', "
                 "now64(6), now64(6), 7)")
    doctor = run_underspan("doctor", *database.options, timeout=60)
    assert doctor.returncode == 1 and "ebpf_agent is of an older version" in doctor.stdout and "schema --apply" in doctor.stdout
    assert "DB::Exception" not in doctor.stdout + doctor.stderr
    database.apply()
    assert "ebpf_agent is of an older version" not in run_underspan("doctor", *database.options, timeout=60).stdout


def test_usage(database):
    both = database.schema("--check", "--apply")
    assert both.returncode == 2 and "not both" in both.stderr


def test_an_embedded_store_of_the_first_version(tmp_path):
    """`run --store` upgrades the store, and the contents stay."""
    with Store(tmp_path / "store") as s:
        for statement in statements(older(V1, "ebpf_handoff", "fd").split("CREATE VIEW")[0]):
            s.ask(statement)
        s.ask("INSERT INTO ebpf_handoff (host, pid, start_time) SELECT 'h', number, now64(6) FROM numbers(100)")
        assert s.stop() == 0
    run = run_underspan("run", f"--store={tmp_path}/store", "--trackers=gc_pause", "--duration=1", timeout=60)
    assert run.returncode == 0, run.stderr
    assert "ebpf_handoff has no column fd: ALTER TABLE ebpf_handoff ADD COLUMN IF NOT EXISTS `fd`" in run.stderr
    with Store(tmp_path / "store") as s:
        assert s.ask("SELECT count(), uniqExact(pid), sum(fd) FROM ebpf_handoff FORMAT CSV").strip() == "100,100,0"
        assert s.ask("SELECT max(version) FROM ebpf_schema").strip() == "10"
        assert int(s.ask("SELECT count() FROM ebpf_agent"))
