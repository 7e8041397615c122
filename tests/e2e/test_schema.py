# SPDX-License-Identifier: Apache-2.0
"""Rows have exactly the columns of the DDL, in order, with the right types; what operators choose is in the DDL."""
import os
import re

import pytest

from agent import run_underspan
from conftest import GUNICORNS
from servers import Gunicorn, get
from store_fixture import Store, underspan

pytestmark = pytest.mark.light

INTEGERS = {f"{sign}Int{bits}": ((-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign == "" else (0, (1 << bits) - 1))
            for sign in ("", "U") for bits in (8, 16, 32, 64)}


def split_columns(body):
    """Splits at commas outside of parentheses and quotes."""
    parts, depth, quoted, current = [], 0, False, ""
    for c in body:
        quoted ^= c == "'"
        depth += (c == "(") - (c == ")") if not quoted else 0
        if c == "," and depth == 0 and not quoted:
            parts.append(current)
            current = ""
        else:
            current += c
    return [p.strip() for p in [*parts, current] if p.strip()]


def read_type(text):
    """The type at the beginning of the text behind a column's name."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c.isspace() and depth == 0:
            return text[:i]
    return text


def stored_columns(ddl):
    """{table: [(column, type)]} of the CREATE TABLE statements, without computed columns."""
    ddl = re.sub(r"--.*", "", ddl)
    tables = {}
    for match in re.finditer(r"CREATE TABLE (?:IF NOT EXISTS )?(?:\w+\.)?`?(\w+)`?\s*\(", ddl):
        depth, end = 1, match.end()
        while depth:
            depth += (ddl[end] == "(") - (ddl[end] == ")")
            end += 1
        columns = []
        for part in split_columns(ddl[match.end():end - 1]):
            name, _, rest = part.partition(" ")
            if name in ("INDEX", "CONSTRAINT", "PROJECTION") or re.search(r"\b(ALIAS|MATERIALIZED|EPHEMERAL)\b", rest):
                continue
            columns.append((name.strip("`"), read_type(rest.strip())))
        tables[match.group(1)] = columns
    return tables


def fits(value, type_name):
    members = re.match(r"Tuple\((.*)\)$", type_name)
    if members:  # of named members, as an object
        types = dict(part.split(" ", 1) for part in split_columns(members.group(1)))
        return list(value) == list(types) and all(fits(value[name], types[name]) for name in types)
    inner = re.match(r"(LowCardinality|Nullable|Array)\((.*)\)$", type_name)
    if inner and inner.group(1) == "Array":
        return isinstance(value, list) and all(fits(v, inner.group(2)) for v in value)
    if inner:
        return (value is None and inner.group(1) == "Nullable") or fits(value, inner.group(2))
    if type_name in INTEGERS:
        low, high = INTEGERS[type_name]
        return type(value) is int and low <= value <= high
    if type_name.startswith("DateTime64(6"):
        return type(value) is int and 1_600_000_000_000_000 < value < 4_000_000_000_000_000
    if type_name.startswith("Float"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, str)


def test_rows_have_the_columns_of_the_schema(start_agent, debian_python, tmp_path, cleanup):
    result = run_underspan("schema")
    assert result.returncode == 0 and result.stderr == ""
    tables = stored_columns(result.stdout)
    agent = start_agent()
    gunicorn = Gunicorn(debian_python, GUNICORNS[0], str(tmp_path))
    cleanup.append(gunicorn)
    gunicorn.wait_covered(agent)
    get(gunicorn.address, "/gc")
    agent.wait_rows("ebpf_gc_pause", lambda r: r["host_pid"] in gunicorn.worker_pids)
    gunicorn.stop()
    agent.stop()
    assert {"ebpf_handoff", "ebpf_gc_pause"} <= set(agent.rows) <= set(tables)
    for table, rows in agent.rows.items():
        names = [name for name, _ in tables[table]]
        for row in rows:
            assert list(row) == names, table
            for name, type_name in tables[table]:
                assert fits(row[name], type_name), (table, name, type_name, row[name])


def test_common_columns_come_first():
    common = """host container_id pod_uid pid tid host_pid host_tid comm thread_name start_time end_time duration_ns
                trace_id span_id weight""".split()
    tables = stored_columns(run_underspan("schema").stdout)
    for table in ("ebpf_handoff", "ebpf_gc_pause", "ebpf_tcp_accept", "ebpf_tcp_connect", "ebpf_tcp_connect_closed",
                  "ebpf_tcp_loss"):
        assert [name for name, _ in tables[table]][:len(common)] == common


def test_cluster_schema_has_the_same_columns():
    single = stored_columns(run_underspan("schema").stdout)
    cluster = run_underspan("schema", "--cluster=main")
    assert cluster.returncode == 0
    assert "ON CLUSTER" in cluster.stdout and "Replicated" in cluster.stdout and "Distributed" in cluster.stdout
    text = re.sub(r"ON CLUSTER '?\w+'?", "", cluster.stdout)
    clustered = stored_columns(text)
    for table, columns in single.items():
        assert columns in clustered.values(), table


# ---- what operators choose about new tables ----

def test_placeholders_of_a_cluster():
    """TTL, storage policy and path in Keeper are in the DDL of each table that has rows of hosts; nothing else differs."""
    plain = run_underspan("schema", "--cluster=main").stdout
    chosen = run_underspan("schema", "--cluster=main", "--keep=2d", "--storage_policy=cold", "--replica_path=/my/{cluster}/{shard}/{table}")
    assert (chosen.returncode, chosen.stderr) == (0, "")
    tables = plain.count("INTERVAL 7 DAY")
    assert tables == plain.count("SETTINGS ttl_only_drop_parts") >= 17
    assert chosen.stdout.count("INTERVAL 2 DAY") == chosen.stdout.count("SETTINGS storage_policy = 'cold', ttl_only_drop_parts") == tables
    assert chosen.stdout.count("'/my/{cluster}/{shard}/{table}', '{replica}'") == plain.count("'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'") == tables
    assert chosen.stdout.replace("INTERVAL 2 DAY", "INTERVAL 7 DAY").replace("storage_policy = 'cold', ", "") \
        .replace("/my/{cluster}/{shard}/{table}", "/clickhouse/tables/{shard}/{database}/{table}") \
        .replace("/my/{cluster}/all/{table}", "/clickhouse/tables/{database}/ebpf_schema") == plain


@pytest.mark.parametrize("engine, cluster, words, count", [
    ("MergeTree", [], "ENGINE = MergeTree\n", 19), ("MergeTree", ["--cluster=main"], "ENGINE = MergeTree\n", 19),
    ("ReplicatedMergeTree", [], "ENGINE = ReplicatedMergeTree\n", 19),
    ("ReplicatedMergeTree", ["--cluster=main"], "ENGINE = ReplicatedMergeTree('/clickhouse/tables/", 19),
    ("SharedMergeTree", [], "ENGINE = SharedMergeTree\n", 19), ("SharedMergeTree", ["--cluster=main"], "ENGINE = SharedMergeTree\n", 19)])
def test_engine(engine, cluster, words, count):
    """Each table but the version's has the engine, and the deduplication window that this engine uses."""
    text = run_underspan("schema", *cluster, f"--engine={engine}").stdout
    assert text.count(words) == count and text.count("MergeTree") >= count
    windows = len(re.findall(r"[ ,]replicated_deduplication_window = 10000, replicated_deduplication_window_seconds = 604800", text))
    plain = text.count("non_replicated_deduplication_window = 10000")
    assert (windows, plain) == ((0, 18) if engine == "MergeTree" else (18, 0))
    assert text.count("ENGINE = Distributed(") == (18 if cluster else 0)
    if cluster == [] and engine == "MergeTree":
        assert text == run_underspan("schema").stdout
    if cluster and engine == "ReplicatedMergeTree":
        assert text == run_underspan("schema", *cluster).stdout


def test_path_of_every_table():
    """Also of the version's table, whose replicas are the servers of all shards."""
    text = run_underspan("schema", "--cluster=main", "--replica_path=/my/{cluster}/{shard}/{table}").stdout
    assert "ReplicatedMergeTree('/my/{cluster}/all/{table}', '{shard}-{replica}')" in text and "/clickhouse/tables" not in text


@pytest.mark.parametrize("name", ["x", "otel-2", "a b", "it's", "q`t", "back\\slash", "\u00e9t\u00e9", "a;DROP DATABASE default"])
def test_names_of_databases(name, tmp_path):
    """The printed text, statement by statement, makes the tables in that database, as --apply does."""
    with Store(tmp_path / "db") as s:
        text = run_underspan("schema", f"--clickhouse_database={name}").stdout
        made, use, *rest = [part for part in re.split(r";\n\n", re.sub(r"(?m)^--.*\n", "", text)) if part.strip()]
        assert made.startswith("CREATE DATABASE IF NOT EXISTS `") and use.startswith("USE `"), (made, use)
        s.ask(made)
        assert name in [line.replace("\\'", "'").replace("\\\\", "\\") for line in s.ask("SELECT name FROM system.databases FORMAT TSV").splitlines()]
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": s.password}
        for change in ["--apply"], ["--check"]:
            done = underspan("schema", f"--clickhouse={s.url}", f"--clickhouse_database={name}", *change, env=env)
            assert done.returncode == 0, (done.stdout, done.stderr)
        assert int(s.ask("SELECT count() FROM system.tables WHERE startsWith(name, 'ebpf_') AND database = currentDatabase()")) == 0
        assert int(s.ask("SELECT count() FROM system.tables WHERE startsWith(name, 'ebpf_') AND database NOT IN ('default', 'system')")) >= 18
        assert len(rest) >= 18
    on_cluster = run_underspan("schema", "--cluster=main", f"--clickhouse_database={name}").stdout
    literal = name.replace("\\", "\\\\").replace("'", "\\'")
    assert on_cluster.count(f"ENGINE = Distributed('main', '{literal}', '") == 18 and "currentDatabase()" not in on_cluster


def test_table_of_spans_in_the_text():
    text = run_underspan("schema", "--traces=tele.spans").stdout
    assert "FROM `tele`.`spans`" in text and not re.search("(?m)^ *FROM otel_traces$", text)
    assert "FROM otel_traces" in run_underspan("schema").stdout


def test_placeholders_are_executed(tmp_path):
    """By the engine; a later --apply and --check without them change and find nothing."""
    with Store(tmp_path / "db") as s:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": s.password}
        for choices in ["--keep=36h", "--storage_policy=default"], []:
            done = underspan("schema", f"--clickhouse={s.url}", "--apply", *choices, env=env)
            assert done.returncode == 0, done.stderr
        made = s.ask("SELECT name, engine_full, storage_policy FROM system.tables WHERE startsWith(name, 'ebpf_') AND name != 'ebpf_schema' FORMAT TSV").splitlines()
        assert len(made) >= 17
        for line in made:
            assert "toIntervalSecond(129600)" in line and "storage_policy = \\'default\\'" in line, line
        done = underspan("schema", f"--clickhouse={s.url}", "--check", env=env)
        assert done.returncode == 0, done.stdout


def test_all_placeholders_together(tmp_path):
    """Engine, path, TTL, policy, database and prefix on a cluster, as text; those that need no Keeper, executed."""
    chosen = ["--keep=2d", "--storage_policy=default", "--clickhouse_database=otel-2", "--table_prefix=p_"]
    text = run_underspan("schema", *chosen, "--cluster=main", "--replica_path=/my/{cluster}/{shard}/{table}").stdout
    assert text.startswith("CREATE DATABASE IF NOT EXISTS `otel-2` ON CLUSTER 'main';\n\nUSE `otel-2`;\n")
    made = [part for part in text.split(";\n\n") if re.search(r"(?m)^CREATE TABLE", part)]
    replicated = [part for part in made if "ENGINE = ReplicatedMergeTree('/my/{cluster}/{shard}/{table}', '{replica}')" in part]
    distributed = [part for part in made if "ENGINE = Distributed('main', 'otel-2', 'p_ebpf_" in part]
    assert len(replicated) == len(distributed) == 18 and len(made) == 37
    for part in made:
        assert re.search(r"(?m)^CREATE TABLE IF NOT EXISTS p_ebpf_\w+ ON CLUSTER '?main'?", part), part
    for part in replicated:
        assert "INTERVAL 2 DAY" in part, part
        assert "SETTINGS storage_policy = 'default', ttl_only_drop_parts = 1, replicated_deduplication_window = 10000" in part, part
    with Store(tmp_path / "db") as s:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": s.password}
        done = underspan("schema", f"--clickhouse={s.url}", "--apply", "--engine=MergeTree", *chosen, env=env)
        assert done.returncode == 0, done.stderr
        there = s.ask("SELECT name, engine_full FROM system.tables WHERE database = 'otel-2' AND engine = 'MergeTree' AND name != 'p_ebpf_schema' "
                      "FORMAT TSVRaw").splitlines()
        assert len(there) == 18
        for line in there:
            assert line.startswith("p_ebpf_") and "toIntervalDay(2)" in line and "storage_policy = 'default'" in line, line
        done = underspan("schema", f"--clickhouse={s.url}", "--check", *chosen, env=env)
        assert done.returncode == 0 and "no difference" in done.stderr and "new tables" not in done.stderr, done
        assert all(re.match("-- p_\\w+ is left out: there is no table otel_traces; ", line) for line in done.stdout.splitlines()), done.stdout


def test_what_a_server_lacks(tmp_path):
    """Cluster, policy and engine: the sentence has the way to those that there are. Tables that are not there are named with the prefix."""
    with Store(tmp_path / "db") as s:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": s.password}
        for option, words in [("--cluster=nope", "SELECT DISTINCT cluster FROM system.clusters"), ("--storage_policy=nope", "FROM system.storage_policies"),
                              ("--engine=SharedMergeTree", "SELECT name FROM system.table_engines"),
                              ("--engine=ReplicatedMergeTree", "use --cluster=NAME, or a database of engine Replicated$")]:
            done = underspan("schema", f"--clickhouse={s.url}", "--apply", f"--clickhouse_database={option[2:9]}", option, env=env)
            assert done.returncode == 1 and re.search(words, done.stderr.splitlines()[-1]), done.stderr
        for command in "requests", "gil", "offcpu":
            done = underspan(command, f"--clickhouse={s.url}", "--since=1h", "--table_prefix=Prod1_", env=env)
            assert done.returncode == 1 and re.search(r"the table Prod1_ebpf_\w+ is missing here.*schema --apply", done.stderr), done.stderr


def test_choices_that_existing_tables_do_not_follow(tmp_path):
    """Told by --apply and --check, with the way to change one, and nothing where they follow or nothing was chosen."""
    with Store(tmp_path / "db") as s:
        env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": s.password}

        def said(*choices):
            done = underspan("schema", f"--clickhouse={s.url}", *choices, env=env)
            assert done.returncode == 0, done
            return [line for line in done.stderr.splitlines() if "new tables" in line]

        assert said("--apply", "--keep=36h") == said("--apply", "--keep=36h", "--engine=MergeTree") == said("--check") == []
        s.ask("DROP TABLE ebpf_ena")
        (line,) = said("--apply", "--keep=3d")
        n = int(s.ask("SELECT count() FROM system.tables WHERE startsWith(name, 'ebpf_') AND engine_full LIKE '%129600%'"))
        assert f"--keep is for new tables: {n} that exist keep their TTL" in line
        assert "toIntervalDay(3)" in s.ask("SELECT engine_full FROM system.tables WHERE name = 'ebpf_ena'")
        s.ask(line.split("to change one: ")[1])
        assert f"{n - 1} that exist keep their TTL" in said("--check", "--keep=3d")[0]
        (line,) = said("--check", "--storage_policy=default")
        assert f"{n + 1} that exist keep their own; to change one: ALTER TABLE ebpf_agent MODIFY SETTING storage_policy = 'default'" in line
        s.ask(line.split("to change one: ")[1])
        assert f"{n} that exist" in said("--check", "--storage_policy=default")[0]
        (line,) = said("--apply", "--engine=ReplicatedMergeTree")
        assert f"{n + 1} that exist keep their engine; another engine needs other tables" in line


@pytest.mark.parametrize("option, words", [
    ("--keep=5400", "INTERVAL 5400 SECOND"), ("--keep=1w", "INTERVAL 7 DAY"), ("--keep=30d", "INTERVAL 30 DAY")])
def test_keep(option, words):
    assert words in run_underspan("schema", option).stdout


@pytest.mark.parametrize("option, words", [
    ("--keep=3600.5", "whole seconds"), ("--keep=7", "use 1h"), ("--engine=Log", "is not among"), ("--keep=x", "not a duration"), ("--storage_policy=a'b", "no policy's name"),
    ("--replica_path=x/{table}", "such as /clickhouse"), ("--replica_path=/x/{shard}", "without {table}"), ("--replica_path=/x'/{table}", "no path in Keeper")])
def test_wrong_placeholders(option, words):
    result = run_underspan("schema", "--cluster=main", option)
    assert result.returncode == 2 and words in result.stderr and not result.stdout, result
