# SPDX-License-Identifier: Apache-2.0
"""Every file under sql/ is executed on known rows, and the whole result equals Python's computation from the same
rows."""
import json
import pathlib
import re
import time

import pytest

import sql_answers
import sql_truth
import sql_windows
from agent import run_underspan
from sql_known import SECOND, Maker, float32
from store_fixture import ROOT, Store, sql_text

pytestmark = pytest.mark.engine
SQL = pathlib.Path(ROOT) / "sql"
OF_WINDOWS = ["doctor", "gil", "offcpu", "requests", "timeline", "top", "window"]
TABLES_ALONE = {"otel/otel_traces.sql", "otel/otel_traces_trace_id_ts.sql", "otel/otel_traces_trace_id_ts_mv.sql", "schema/ebpf_schema.sql"}
FOLDERS = ["doctor", "explain", "gil", "offcpu", "otel", "queries", "requests", "schema", "tables", "timeline", "top", "views", "window"]


def files(folder):
    return sorted((SQL / folder).glob("*.sql"))


def name_of(path):
    return path.name


class Known:
    """A store with the schema and the known rows."""

    def __init__(self, store):
        self.store = store
        self.now = time.time_ns() // 1000
        for folder in "otel", "schema", "tables", "views":
            # a materialized view needs the source table: files come in the order of names
            for path in files(folder):
                store.ask(sql_text(path))
        self.rows = Maker(self.now).all()
        for table, rows in self.rows.items():
            answer = store.insert(f"INSERT INTO {table} FORMAT JSONEachRow", "\n".join(map(json.dumps, rows)), async_insert=0)
            assert answer.status == 200, (table, answer.text)

    def ask(self, sql, **parameters):
        """(columns, rows) of a question."""
        text = self.store.ask(sql, connection=self.store.connect(120), default_format="JSONCompact", output_format_json_quote_64bit_integers=0,
                              **{f"param_{name}": value for name, value in parameters.items()})
        answer = json.loads(text)
        return [column["name"] for column in answer["meta"]], answer["data"]


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("sql") / "db") as store:
        yield Known(store)


def at(sql, now):
    """The question as asked at the given moment."""
    moment = f"fromUnixTimestamp64Micro({now}, 'UTC')"
    return sql.replace("now64(6, 'UTC')", moment).replace("now()", moment)


def same(got, expected):
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return abs(got - expected) <= 1e-9 * max(1, abs(expected))
    return got == expected


def check(got, expected, what):
    assert len(expected) > 0, f"{what}: a result without rows proves nothing"
    for i, (a, b) in enumerate(zip(got, expected)):
        assert same(a, b), f"{what}, row {i}:\n{a}\nexpected:\n{b}"
    assert len(got) == len(expected), f"{what}: {len(got)} rows, expected {len(expected)}"


def test_a_statement_ends_at_its_end():
    """A pasted view may be split by a client at each ; at the end of a line: no comment inside a statement has such a ;."""
    for path in [*files("views"), *files("queries")]:
        assert not re.search(r"^ +--.*;$", path.read_text(), re.M), path


def test_no_file_is_left_out():
    """A new file under sql/ needs an expected result; a new folder a test."""
    assert sorted(p.name for p in SQL.iterdir() if p.is_dir()) == FOLDERS
    assert sorted(p.name for p in SQL.rglob("*.sql")) == sorted(p.name for folder in FOLDERS for p in files(folder))
    for path in files("queries"):
        assert path.name in sql_truth.QUERIES, f"{path} has no expected result"
    for folder, expected in ("views", sql_answers.VIEWS), ("explain", sql_answers.EXPLAIN):
        assert {path.name for path in files(folder)} == set(expected), f"sql/{folder}: each file has an expected result in sql_answers.py"
    of_windows = {f"{path.parent.name}/{path.name}" for folder in OF_WINDOWS for path in files(folder)}
    assert of_windows == set(sql_windows.FILES), "each file has an expected result in sql_windows.py"
    assert {f"{path.parent.name}/{path.name}" for folder in ("otel", "schema") for path in files(folder)} == TABLES_ALONE, "each has a test of its own below"
    for path in files("tables"):
        assert path.stem in vars(Maker), f"{path} has no known rows in sql_known.py"


@pytest.mark.parametrize("path", files("queries"), ids=name_of)
def test_query(known, path):
    text = path.read_text()
    assert text.startswith("-- ") and "?" in re.sub(r"\n-- ", " ", text).split("\nSELECT")[0].split("\nWITH")[0], "begins with its question"
    truth = sql_truth.QUERIES[path.name]
    # at the known moment: rows lie on the window's edges to the microsecond
    _, rows = known.ask(at(text, known.now))
    check(rows, truth(known.rows, known.now), path.name)
    # and as pasted by a user, with the engine's clock; now() has whole seconds
    for _ in range(3):
        before = time.time_ns() // 1000
        _, rows = known.ask(text)
        moments = [before, time.time_ns() // 1000]
        if any(same(rows, truth(known.rows, now)) for now in [*moments, *(m // SECOND * SECOND for m in moments)]):
            return
    check(rows, truth(known.rows, before // SECOND * SECOND), f"{path.name} as it stands")


@pytest.mark.parametrize("path", files("tables"), ids=name_of)
def test_table(known, path):
    """Every column returns the inserted value, and computed columns match the names."""
    table, inserted = path.stem, known.rows[path.stem]
    columns, rows = known.ask(f"SELECT * FROM {table} SETTINGS asterisk_include_alias_columns = 1")
    computed = {name: sql_truth.COMPUTED.get(name, lambda row, of={"off_cpu_ms": "duration_ns"}.get(name, name.removesuffix("_ms") + "_ns"): row[of])
                for name in columns if name.endswith("_ms")}
    assert set(columns) == set(inserted[0]) | set(computed), "sql_known.py has a value for each column"
    expected = [[computed[name](row) / 1e6 if name in computed else row[name] for name in columns] for row in inserted]
    for row in expected:
        row[:] = [sql_truth.timestamp(v) if name in ("start_time", "end_time", "time") else v for name, v in zip(columns, row)]
    for row in rows + expected:
        row[:] = [sql_truth.address(v) if name.endswith("_ip") else float32(v) if name == "weight" else float(v) if name.endswith("_ms") else v
                  for name, v in zip(columns, row)]
    check(sorted(rows, key=repr), sorted(expected, key=repr), table)


@pytest.mark.parametrize("path", files("views") + files("explain"), ids=name_of)
def test_answer(known, path):
    """The views, and the questions of `underspan explain`."""
    question, parameters, truth = (sql_answers.VIEWS if path.parent.name == "views" else sql_answers.EXPLAIN)[path.name]
    parameters = {name: value(known.now) if callable(value) else value for name, value in parameters.items()}
    columns, rows = known.ask(at(question or sql_text(path), known.now), **parameters)
    assert columns
    check(rows, truth(known.rows, known.now), path.name)


def test_the_library_that_waited(known):
    for name, stack in sql_answers.LIBRARIES.items():
        _, rows = known.ask(f"SELECT {sql_text('sql/explain/library.inc')} 0 FROM (SELECT CAST({stack!r} AS Array(LowCardinality(String))) AS py_stack)")
        assert rows == [[name.strip(), 0]], stack


@pytest.mark.parametrize("name", sorted(sql_windows.FILES))
def test_question_of_a_window(known, name):
    """What the commands ask about a window: of everything, and of one host's processes."""
    truth, rank, by = sql_windows.FILES[name]
    for window in sql_windows.windows(known.now):
        columns, rows = known.ask(at(sql_text(f"sql/{name}"), known.now), **window.parameters(by))
        sql_windows.check_whole([dict(zip(columns, row)) for row in rows], truth(known.rows, window), rank, f"{name}, {window.host}")


def test_otel_tables(known):
    """Spans return unchanged, and otel_traces_trace_id_ts has each trace's time."""
    spans = sorted(known.rows["otel_traces"], key=lambda s: (s["TraceId"], s["SpanId"], s["Timestamp"]))
    columns, rows = known.ask("SELECT * FROM otel_traces ORDER BY TraceId, SpanId, Timestamp")
    nanoseconds = [f"{sql_truth.timestamp(s['Timestamp'] // 1000)}{s['Timestamp'] % 1000:03d}" for s in spans]
    expected = [[time if name == "Timestamp" else span.get(name, []) for name in columns] for span, time in zip(spans, nanoseconds)]
    check(rows, expected, "otel_traces")
    _, rows = known.ask("SELECT TraceId, min(Start), max(End) FROM otel_traces_trace_id_ts GROUP BY TraceId ORDER BY TraceId")
    traces = {}
    for span in spans:
        traces.setdefault(span["TraceId"], []).append(sql_truth.timestamp(span["Timestamp"] // 1000)[:19])
    check(rows, [[trace, min(times), max(times)] for trace, times in sorted(traces.items())], "otel_traces_trace_id_ts")


def test_a_trace_viewer_sees_hidden_time(known):
    """The view over both tables named in deploy/README.md: every column of each, of any type, and the sum of both."""
    text = (ROOT / "deploy/README.md").read_text()
    [statement] = [line.strip() for line in text.splitlines() if line.strip().startswith("CREATE VIEW otel_traces_hidden")]
    known.store.ask(statement)
    columns, _ = known.ask("SELECT * FROM otel_traces LIMIT 0")
    assert known.ask("SELECT * FROM otel_traces_hidden LIMIT 0")[0] == columns
    traced = [r for r in known.rows["ebpf_request"] if r["trace_id"]]
    hidden = len(list(sql_answers.hidden_spans(known.rows, known.now)))
    _, rows = known.ask("SELECT count(), countIf(ScopeName = 'underspan'), countIf(SpanAttributes['underspan.part'] = '' AND ScopeName = 'underspan') FROM otel_traces_hidden")
    assert rows == [[len(known.rows["otel_traces"]) + hidden, hidden, len(traced)]] and traced
    _, rows = known.ask("SELECT count() FROM otel_traces_hidden WHERE TraceId = {id:String}", id=traced[0]["trace_id"])
    assert rows[0][0] >= 1


def test_a_trace_viewer_on_json_columns(known):
    """hidden_span has the types of the spans' table, so that a view over both has one type for each column."""
    store = known.store
    types = dict(known.ask("SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = 'otel_traces' ORDER BY position")[1])
    types.update({name: "Array(JSON)" if name.startswith(("Events", "Links")) else "JSON" for name in types if name.endswith("Attributes")})
    store.ask("CREATE DATABASE tel")
    store.ask(f"CREATE TABLE tel.spans ({', '.join(f'`{name}` {type}' for name, type in types.items())}) ENGINE = MergeTree ORDER BY Timestamp")
    hidden = known.ask("SELECT SpanId, Duration, SpanAttributes['underspan.part'], ResourceAttributes['process.pid'] FROM hidden_span ORDER BY ALL")[1]
    applied = run_underspan("schema", "--apply", f"--store={store.path}", "--traces=tel.spans")
    assert applied.returncode == 0, applied
    try:
        store.ask("CREATE VIEW tel.hidden AS SELECT * FROM tel.spans UNION ALL SELECT * FROM hidden_span")
        assert known.ask("SELECT toString(SpanId), Duration, toString(SpanAttributes.`underspan.part`), toString(ResourceAttributes.`process.pid`) FROM tel.hidden "
                         "ORDER BY ALL")[1] == hidden != []
        assert not known.ask("SELECT name, type FROM system.columns WHERE database = 'tel' AND table = 'hidden' AND type LIKE '%Variant%'")[1]
    finally:
        assert run_underspan("schema", "--apply", f"--store={store.path}", "--traces=otel_traces").returncode == 0
        store.ask("TRUNCATE TABLE ebpf_schema")  # as before


def test_schema_version(known):
    known.store.ask("INSERT INTO ebpf_schema (version, applied_by) VALUES (1, 'a'), (3, 'b'), (2, 'c')")
    columns, rows = known.ask("SELECT *, applied_at > now() - INTERVAL 1 MINUTE AS lately FROM ebpf_schema ORDER BY version")
    assert columns == ["version", "applied_at", "applied_by", "lately"]
    check([[row[0], *row[2:]] for row in rows], [[1, "a", 1], [2, "c", 1], [3, "b", 1]], "ebpf_schema")
