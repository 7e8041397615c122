# SPDX-License-Identifier: Apache-2.0
"""Two installations in one database, one with a prefix before its tables: each sees its own only, and both give the same answers."""
import json
import os
import re
import runpy
import subprocess
import time
import urllib.request

import pytest

from agent import NO_ENGINE, PATIENCE, plain_build
from delivery import store  # noqa: F401: fixture
from store_fixture import ROOT, UNDERSPAN, sql_text, underspan
from test_schema_upgrade import Database
from test_store_program import SERVER

pytestmark = [pytest.mark.engine, plain_build(NO_ENGINE)]

PREFIX = "--table_prefix=p_"
OWN = sorted(path.stem for folder in ("tables", "views", "schema") for path in (ROOT / "sql" / folder).glob("*.sql"))
BAD = ["1a", "a-b", "a b", "a`b", "a'; DROP TABLE ebpf_agent; --", "é", "p.", "p" * 65]


@pytest.fixture(scope="module")
def both(store, tmp_path_factory):  # noqa: F811
    """The schema without and with a prefix, beside one table of spans."""
    made = Database(store, tmp_path_factory.mktemp("prefix"))
    for name in "otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv":
        made.make(sql_text(f"sql/otel/{name}.sql"))
    made.apply()
    assert made.schema("--apply", PREFIX).returncode == 0
    return made


def tables(made):
    return made.ask("SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name FORMAT TSV").split()


def test_each_has_its_own(both):
    spans = ["otel_traces", "otel_traces_trace_id_ts", "otel_traces_trace_id_ts_mv"]
    assert tables(both) == sorted([*OWN, *(f"p_{name}" for name in OWN), *spans])
    for options in [], [PREFIX]:
        assert "nothing to do" in both.schema("--apply", *options).stderr
        assert both.schema("--check", *options).returncode == 0


@pytest.mark.parametrize("altered, options, other", [("ebpf_ena", [], [PREFIX]), ("p_ebpf_ena", [PREFIX], [])])
def test_an_upgrade_is_of_its_own(both, altered, options, other):
    both.ask(f"ALTER TABLE {altered} DROP COLUMN source")
    both.ask(f"DROP VIEW {altered.replace('ebpf_ena', 'request_time')}")
    assert both.schema("--check", *other).returncode == 0
    check = both.schema("--check", *options)
    assert check.returncode == 1 and f"ALTER TABLE {altered} ADD COLUMN" in check.stdout, check.stdout
    assert f"CREATE OR REPLACE VIEW {altered.replace('ebpf_ena', 'request_time')} " in check.stdout
    view = altered.replace("ebpf_ena", "request_time")
    assert f"-- {altered} has no column source" in check.stdout and f"-- there is no view {view}\n" in check.stdout, check.stdout
    applied = both.schema("--apply", "--keep=3d", "--storage_policy=none", *options)
    assert applied.returncode == 0
    for words in f"schema: {altered} has no column source", f": ALTER TABLE {altered} ADD COLUMN", f"there is no view {view}: CREATE OR REPLACE VIEW {view} ":
        assert words in applied.stderr, applied.stderr
    assert len(re.findall(rf"to change one: ALTER TABLE {altered.replace('ena', '')}\w+ MODIFY (TTL|SETTING)", applied.stderr)) == 2, applied.stderr
    for both_options in options, other:
        assert both.schema("--check", *both_options).returncode == 0


def test_rows_and_answers(both):
    """The agent with the prefix writes there only; the same rows without a prefix give the same answers."""
    server = subprocess.Popen(["/usr/bin/python3", "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(server.stdout.readline())
    agent = subprocess.Popen([UNDERSPAN, "run", *both.options, PREFIX, f"--pid={server.pid}", "--trackers=off_cpu,request,gil_wait", "--duration=6"],
                             stderr=subprocess.PIPE, text=True)
    try:
        while ": ready: " not in (line := agent.stderr.readline()):
            assert line
        for _ in range(5):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read()
        log = agent.communicate(timeout=60 * PATIENCE)[1]
    finally:
        server.kill()
        server.communicate()
    names = [name for name in OWN if name.startswith("ebpf_") and name != "ebpf_schema"]
    written = {name: int(both.one(f"SELECT count() FROM p_{name}")) for name in names}
    assert written["ebpf_request"] == 5 and written["ebpf_agent"] and written["ebpf_off_cpu"] and written["ebpf_probe_health"], log
    assert {int(both.one(f"SELECT count() FROM {name}")) for name in names} == {0}
    with_prefix = settled(both, PREFIX)
    assert "sleep" in with_prefix["explain"] and "sleep" in with_prefix["offcpu"] and with_prefix["requests"]["listeners"] and with_prefix["top"]
    for name in names:
        both.ask(f"INSERT INTO {name} SELECT * FROM p_{name}")
        both.ask(f"TRUNCATE TABLE p_{name}")
    assert answers(both) == with_prefix


def of_any_time(value):
    """Without what depends on the moment of the question: the window ends there, and an agent that is gone is counted for a while."""
    of_moment = "from_us", "to_us", "duration_s", "window_s", "measured_s", "rest"
    if isinstance(value, list):
        return [of_any_time(v) for v in value]
    return {k: of_any_time(v) for k, v in value.items() if k not in of_moment} if isinstance(value, dict) else value


def settled(both, *options):
    """An agent that is gone is counted as measuring for 60 s beyond its next report (sql/window/coverage.sql): this one for 66 s."""
    end, before = time.monotonic() + 66 + 30 * PATIENCE, None
    while before != (before := answers(both, *options)):
        assert time.monotonic() < end
        time.sleep(3)
    return before


def answers(both, *options):
    request_id = underspan("sql", *both.options, *options, "SELECT min(request_id) FROM ebpf_request FORMAT TSV").stdout.strip()
    asked = {"explain": [request_id], "requests": ["--since=1h", "--json"], "gil": ["--since=1h", "--json"], "offcpu": ["--since=1h", "--folded"],
             "top": ["--since=1h", "--once", "--json"], "sql": [sql_text("sql/queries/slowest_requests.sql")]}
    found = {}
    for command, arguments in asked.items():
        done = underspan(command, *both.options, *options, *arguments)
        assert done.returncode == 0, (command, done.stderr)
        found[command] = of_any_time(json.loads(done.stdout)) if "--json" in arguments else done.stdout
    return found


def test_printed_statements():
    """Also those for a cluster: every name, the tables behind Distributed ones, and the one path in Keeper that holds a name."""
    for options in [], ["--cluster=c"]:
        plain, prefixed = (underspan("schema", *options, *more).stdout for more in ([], [PREFIX]))
        assert "p_ebpf_" not in plain and prefixed.replace("p_ebpf_", "ebpf_").replace("p_request", "request").replace(
            "p_otel_span", "otel_span").replace("p_hidden_span", "hidden_span") == plain
        created = re.findall(r"(?m)^CREATE (?:TABLE|VIEW) IF NOT EXISTS (\w+)", prefixed)
        assert len(created) >= len(OWN) and all(name.startswith("p_") for name in created)
        assert not re.search(r"(?m)^[^-\n]*(FROM|JOIN) (ebpf_\w+|request|request_time\w*|otel_span)\b", prefixed)
    assert "'p_ebpf_agent_local'" in prefixed and "'/clickhouse/tables/{database}/p_ebpf_schema'" in prefixed


@pytest.mark.parametrize("prefix", BAD)
def test_what_is_no_prefix(both, prefix):
    for command in ["schema"], ["schema", "--apply"], ["run", "--check"], ["explain", "1" * 32], ["sql", "SELECT 1"], ["requests", "--since=1h"]:
        done = underspan(*command, *both.options, f"--table_prefix={prefix}")
        assert done.returncode == 2 and "table_prefix: '" in done.stderr and "letters, digits and underscores" in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1


def test_rows_in_a_statement_stay(both):
    both.ask("CREATE TABLE words (w String) ENGINE = Memory")
    done = underspan("sql", *both.options, PREFIX, "INSERT INTO words FORMAT TSV\nebpf_agent\nFROM request\n")
    assert done.returncode == 0, done.stderr
    assert both.ask("SELECT w FROM words FORMAT TSV") == "ebpf_agent\nFROM request\n"


def test_dashboards():
    build = runpy.run_path(str(ROOT / "deploy/grafana/build.py"))
    plain, prefixed = build["files"]("/x"), build["files"]("/x", "p_")

    def questions(boards):
        return [target["rawSql"] for text in boards.values() for panel in json.loads(text)["panels"] for target in panel.get("targets", [])]
    names = "|".join(OWN)
    assert len(questions(plain)) == len(questions(prefixed)) > 20
    for old, new in zip(questions(plain), questions(prefixed)):
        assert new.replace("p_ebpf_", "ebpf_").replace("p_request", "request").replace("p_hidden_span", "hidden_span").replace(
            "p_otel_span", "otel_span") == old
        assert not re.search(rf"(FROM|JOIN)\s+({names})\b", new) and not re.search(r"(?<!p_)\bebpf_", new)
    done = subprocess.run([ROOT / "deploy/grafana/build.py", "--prefix=a'b", f"--out={os.devnull}"], capture_output=True, text=True)
    assert done.returncode == 2 and "letters, digits and underscores" in done.stderr
