# SPDX-License-Identifier: Apache-2.0
"""Options are the same everywhere: as flags, in the environment and in one file for all commands; a typo is
answered with the nearest name, and help fits a terminal."""
import json
import os
import re
import subprocess
import sys

import pytest

from agent import PATIENCE, ROOT, UNDERSPAN, run_underspan
from test_errors import FAILED, USAGE, check_sentence

pytestmark = pytest.mark.light

COMMANDS = ["run", "store", "sql", "schema", "explain", "requests", "gil", "offcpu", "timeline", "top", "doctor"]
NO_SERVER = "--clickhouse=http://127.0.0.1:1"  # no listener
# arguments of each command that lead to FAILED as soon as the options are read
ARGUMENTS = {"run": ["--stdout", "--pid=2147483647", "--duration=1"], "sql": [NO_SERVER, "SELECT 1"],
             "schema": [NO_SERVER, "--apply"], "explain": [NO_SERVER, "0" * 32], "requests": [NO_SERVER], "gil": ["-p", "2147483647"],
             "offcpu": ["-p", "2147483647"], "timeline": ["-p", "2147483647", "-o", "/dev/null/x.html"], "top": ["--once", "-p", "2147483647"], "store": ["--path=/dev/null/store"], "doctor": ["-p", "2147483647"]}


def with_environment(*arguments, prefix=(), **variables):
    return subprocess.run([*prefix, UNDERSPAN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60, env={**os.environ, **variables})


# ---- one file for all commands ----

@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_service_s_file(command, tmp_path):
    with open(f"{ROOT}/deploy/underspan.json") as f:
        config = json.load(f)
    path = tmp_path / "underspan.json"
    path.write_text(json.dumps(config))
    result = run_underspan(command, "-c", str(path), *ARGUMENTS[command], timeout=60)
    assert result.returncode == FAILED and "key" not in result.stderr, result
    config["spool"]["max_byts"] = config["spool"].pop("max_bytes")
    path.write_text(json.dumps(config))
    check_sentence(run_underspan(command, f"--config={path}", *ARGUMENTS[command]), USAGE, str(path), "spool.max_byts",
                   "did you mean spool.max_bytes?")


def test_a_flag_replaces_the_file_s_place_for_rows(tmp_path):
    """Where the file names a server, --stdout and --store are not a second place."""
    path = tmp_path / "underspan.json"
    path.write_text(json.dumps({"clickhouse": "http://127.0.0.1:1", "trackers": ["gc_pause"]}))
    result = run_underspan("run", "-c", str(path), "--stdout", "--duration=1s", timeout=30)
    assert result.returncode == 0, result
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert {r["tracker"] for r in rows if r["table"] == "ebpf_agent"} >= {"gc_pause"}
    assert not {r["tracker"] for r in rows if r["table"] == "ebpf_agent"} & {"off_cpu", "handoff"}
    check_sentence(run_underspan("run", "--stdout", NO_SERVER, "--duration=1"), USAGE, "several places")


def in_a_host_with(file_text, tmp_path):
    """A prefix for commands: replaces /etc/underspan/underspan.json."""
    etc = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", str(etc)], check=True)
    (etc / "underspan").mkdir(exist_ok=True)
    (etc / "underspan" / "underspan.json").write_text(file_text)
    return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc)]


def test_the_host_s_file_says_where_the_database_is(tmp_path):
    prefix = in_a_host_with(json.dumps({"clickhouse": "http://127.0.0.1:1/", "trackers": ["gc_pause"], "duration": 1}), tmp_path)
    for command, arguments in ("sql", ["SELECT 1"]), ("explain", ["0" * 32]), ("requests", []), ("schema", ["--apply"]):
        check_sentence(run_underspan(command, *arguments, prefix=prefix), FAILED, "http://127.0.0.1:1")
        check_sentence(run_underspan(command, *arguments, "--no-config", prefix=prefix), USAGE, "--clickhouse=URL")
        check_sentence(run_underspan(command, *arguments, "-c", "none", prefix=prefix), USAGE, "--clickhouse=URL")
    for command in ["gil"], ["offcpu"], ["top"], ["timeline", "-o", str(tmp_path / "x.html")]:
        check_sentence(run_underspan(*command, "--since=1m", prefix=prefix), FAILED, "http://127.0.0.1:1")
    # a flag takes precedence
    check_sentence(run_underspan("sql", "--clickhouse=http://127.0.0.1:2", "SELECT 1", prefix=prefix), FAILED, "127.0.0.1:2")
    # the password in the same folder is for the file's server only
    (tmp_path / "etc" / "underspan" / "clickhouse-password").mkdir()
    check_sentence(run_underspan("sql", "SELECT 1", prefix=prefix), FAILED, "clickhouse-password", "directory")
    check_sentence(run_underspan("sql", "--clickhouse=http://127.0.0.1:2", "SELECT 1", prefix=prefix), FAILED, "127.0.0.1:2")
    # a measurement ignores the service's options: this duration would end the measurement at once
    said = run_underspan("gil", "-p", "2147483647", prefix=prefix)
    assert said.returncode == FAILED and "underspan.json" not in said.stderr


def test_run_and_store_take_the_host_s_file(tmp_path):
    """All keys of the file, also lists."""
    config = {"stdout": True, "trackers": ["gc_pause"], "duration": 1, "host": "of-the-file", "path": "/dev/null/store"}
    prefix = in_a_host_with(json.dumps(config), tmp_path)
    result = run_underspan("run", prefix=prefix, timeout=30)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0 and {r["host"] for r in rows} == {"of-the-file"}, result
    assert {r["tracker"] for r in rows if r["table"] == "ebpf_agent"} == {"gc_pause", "processes", "agent"}
    check_sentence(run_underspan("run", "--no-config", prefix=prefix), USAGE, "no place for the rows")
    check_sentence(run_underspan("store", prefix=prefix), FAILED, "/dev/null/store")
    check_sentence(run_underspan("store", "-c", "none", prefix=prefix), USAGE, "path")
    (tmp_path / "etc" / "underspan" / "underspan.json").write_text('{"stdot": true}')
    for command in "run", "store":
        check_sentence(run_underspan(command, prefix=prefix), USAGE, "/etc/underspan/underspan.json", "did you mean stdout?")


# ---- run --check ----

def test_check_says_what_would_run_and_touches_nothing(tmp_path):
    spool = tmp_path / "spool"
    config = {"clickhouse": "https://ch.example:8443", "clickhouse_user": "u", "trackers": ["gc_pause", "off_cpu"],
              "spool": {"directory": str(spool)}, "flush_interval": "10s", "memory_bytes": "8MiB"}
    prefix = in_a_host_with(json.dumps(config), tmp_path)
    (tmp_path / "etc" / "underspan" / "clickhouse-password").write_text("secret\n")
    result = with_environment("run", "--check", "--host=h", UNDERSPAN_OFF_CPU_MIN_DURATION_US="5ms", prefix=prefix)
    assert (result.returncode, result.stderr) == (0, ""), result
    said = {" ".join(line.removeprefix("given").split()) for line in result.stdout.splitlines()}
    host_file = "(/etc/underspan/underspan.json)"
    assert said >= {"rows to https://ch.example:8443, database default, user u, with a password", f"spool {spool}",
                    "trackers gc_pause off_cpu", f"flush_interval = 10s {host_file}", f"memory_bytes = 8MiB {host_file}",
                    "off_cpu.min_duration_us = 5ms (environment)", "host = h (flag)", f"trackers = gc_pause,off_cpu {host_file}"}
    assert "secret" not in result.stdout and not spool.exists()
    subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", UNDERSPAN, "run", "--check",
                    "--stdout"], check=True, stdout=subprocess.DEVNULL)  # needs no right


@pytest.mark.parametrize("arguments, named", [
    (["--stdout", "--trackers=gc_puase"], "gc_pause"), (["--clickhouse=ftp://x"], "ftp://x"), ([], "no place"),
    (["--stdout", "--metrics.listen=0.0.0.0:9"], "loopback"), (["--clickhouse=http://x", "--clickhouse_password_file=/no"], "/no"),
    (["--stdout", "--shed_first=x"], "shed_first"), (["--stdout", "--degrade=x"], "degrade")])
def test_check_refuses_what_a_start_would_refuse(arguments, named):
    check_sentence(run_underspan("run", "--check", *arguments), USAGE, named)


def test_output_that_is_lost_is_a_failure():
    for words in ["version"], ["help"], ["help", "config"], ["run", "--help"], ["run", "--check", "--stdout"], ["schema"]:
        with open("/dev/full", "w") as full:
            result = subprocess.run([UNDERSPAN, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert result.returncode == FAILED and result.stderr.count("\n") == 1 and "No space left on device" in result.stderr, (words, result)


# ---- the environment ----

def test_the_environment_goes_before_the_file_and_after_flags(tmp_path):
    path = tmp_path / "underspan.json"
    path.write_text(json.dumps({"host": "of-the-file", "trackers": ["off_cpu"], "duration": "1h"}))
    result = with_environment("run", "-c", str(path), "--stdout", "--trackers=ena", UNDERSPAN_HOST="of-the-environment",
                              UNDERSPAN_TRACKERS="gc_pause", UNDERSPAN_DURATION="1500ms")
    assert result.returncode == 0, result
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    counted = [r for r in rows if r["table"] == "ebpf_agent"]
    assert {r["host"] for r in counted} == {"of-the-environment"}
    assert {r["tracker"] for r in counted} == {"ena", "processes", "agent"}
    result = with_environment("sql", "SELECT 1", UNDERSPAN_CLICKHOUSE="http://127.0.0.1:1", UNDERSPAN_CLICKHOUSE_TIMEOUT="2s")
    check_sentence(result, FAILED, "127.0.0.1:1")
    check_sentence(with_environment("run", "--stdout", UNDERSPAN_FLUSH_INTERVAL="soon"), USAGE, "UNDERSPAN_FLUSH_INTERVAL",
                   "'soon'", "250ms")


def test_a_variable_that_is_no_option_is_told():
    result = with_environment("sql", NO_SERVER, "SELECT 1", UNDERSPAN_CLICKHUOSE="x", UNDERSPAN_CLICKHOUSE_PASSWORD="secret")
    first, second = result.stderr.splitlines()
    assert re.search(r"warning: .*UNDERSPAN_CLICKHUOSE.* did you mean UNDERSPAN_CLICKHOUSE\?", first)
    assert "127.0.0.1:1" in second and "secret" not in result.stderr
    # variables set by Kubernetes for a Service of the name underspan are ignored
    result = with_environment("sql", NO_SERVER, "SELECT 1", UNDERSPAN_SERVICE_HOST="10.0.0.1", UNDERSPAN_PORT="tcp://10.0.0.1:80",
                              UNDERSPAN_PORT_80_TCP_ADDR="10.0.0.1", UNDERSPAN_METRICS_SERVICE_PORT="80")
    assert len(result.stderr.splitlines()) == 1, result


# ---- typos ----

@pytest.mark.parametrize("arguments, meant", [
    (["offcp"], "offcpu"), (["shcema"], "schema"), (["versoin"], "version"), (["help", "configs"], "config"),
    (["run", "--stdot"], "--stdout"), (["run", "--stdout", "--off-cpu.min-duratoin-us=3"], "--off_cpu.min_duration_us"),
    (["sql", "--clickhose=http://127.0.0.1:1", "SELECT 1"], "--clickhouse"), (["gil", "-pid=3"], "--pid"),
    (["run", "--stdout", "--trackers=gc_puase"], "gc_pause"), (["run", "--stdout", "--trackers=offcpu"], "off_cpu"),
    (["run", "--stdout", "--shed_first=of_cpu"], "off_cpu"), (["run", "--stdout", "--degrade=uprobe_mutli"], "uprobe_multi"),
    (["run", "--stdout", "--log_level=warning"], "warn"), (["store", "--path=/x", "--log_level=Debug"], "debug"),
    (["run", "--stdout", "--gil_wait.method=calsite"], "callsite")])
def test_what_was_meant_is_named(arguments, meant):
    check_sentence(run_underspan(*arguments), USAGE, f"did you mean {meant}?")


@pytest.mark.parametrize("arguments", [["frobnicate"], ["help", "frobnicate"], ["run", "--frobnicate"], ["--pid=3"]])
def test_what_was_not_meant_is_not_guessed(arguments):
    result = run_underspan(*arguments)
    check_sentence(result, USAGE, arguments[-1].split("=")[0])
    assert "did you mean" not in result.stderr


# ---- help ----

def test_help_of_a_topic_is_that_topic_s():
    for command in COMMANDS:
        assert run_underspan("help", command).stdout == run_underspan(command, "--help").stdout != ""
    for topic in "config", "units":
        result = run_underspan("help", topic)
        assert result.returncode == 0 and topic in run_underspan("help").stdout and len(result.stdout.splitlines()) > 5
    assert run_underspan("version").stdout == run_underspan("--version").stdout


@pytest.mark.parametrize("arguments", [[c, "--help"] for c in COMMANDS] + [["help"], ["help", "config"], ["help", "units"]],
                         ids=" ".join)
def test_help_fits_a_terminal(arguments):
    result = run_underspan(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_help_shows_the_defaults_that_hold():
    """A command's default of a tracker's option is shown."""
    def default_of(command, key):
        text = " ".join(run_underspan(command, "--help").stdout.split())
        return re.search(rf"--{re.escape(key)}=.*?\(default: (.*?)\)", text)[1]

    assert [default_of(c, "off_cpu.min_duration_us") for c in ("run", "offcpu")] == ["10ms", "1ms"]
    assert [default_of(c, "gil_wait.min_duration_us") for c in ("run", "gil")] == ["1ms", "0"]
    assert default_of("run", "spool.max_age") == "3d" and default_of("run", "memory_bytes") == "64MiB"
    assert default_of("run", "log_level") == "info" and default_of("store", "max_memory_mb") == "1GiB"


def test_every_option_of_a_command_is_known_to_all(tmp_path):
    """Every option in the help of a command is accepted in the file of every command."""
    keys = {key for command in COMMANDS for key in re.findall(r"^  (?:-\w, )?--([\w.-]+)", run_underspan(command, "--help").stdout, re.M)}
    assert {"trackers", "max_body_mb", "cluster", "gil_wait.method", "agent", "metrics.listen", "wakers"} <= keys
    path = tmp_path / "underspan.json"
    for key in keys - {"config"}:
        path.write_text(json.dumps({key: "1"}))
        for command in "sql", "store":
            said = run_underspan(command, "-c", str(path), *ARGUMENTS[command]).stderr
            assert "unknown key" not in said and len(said.splitlines()) == 1, (key, said)


# ---- the reference ----

@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    out = tmp_path_factory.mktemp("doc")
    subprocess.run([f"{ROOT}/deploy/doc/reference.py", UNDERSPAN, str(out)], check=True, timeout=60 * PATIENCE)
    return {name: (out / name).read_text() for name in os.listdir(out)} | {"directory": out}


def test_the_reference_has_every_option(reference):
    helps = {c: run_underspan(c, "--help").stdout for c in COMMANDS}
    options = {(c, key) for c in COMMANDS for key in re.findall(r"^  (?:-\w, )?--([\w.-]+)", helps[c], re.M)}
    assert len(options) > 100
    manual = reference["underspan.1"].replace("\\-", "-") + reference["underspan.json.5"]
    for command, key in options:
        assert f"fB{key}\\fR" in manual or f"--{key}\\fR" in manual, key
        words = re.search(rf"^ *{command}\) words='(.*)'", reference["underspan.bash"], re.M)[1].split()
        assert {f"--{key}", f"--{key}="} & {*words}, (command, key)
    said = reference["options.md"]
    assert "| `off_cpu.min_duration_us` | 10ms |" in said and "`UNDERSPAN_SPOOL_MAX_BYTES` | run |" in said
    for flag in "`list`", "`apply`", "`agents`":  # not of files
        assert flag not in said


def test_the_reference_has_every_column(reference):
    columns = re.findall(r"^    ([a-z_]+) [^\n]* COMMENT '([^']*)'", run_underspan("schema").stdout, re.M)
    assert len(columns) > 500
    for name, what in columns:
        assert f"| `{name}` |" in reference["tables.md"] and what.replace("<", "&lt;") in reference["tables.md"], name


def test_the_manual_is_one_for_troff(reference):
    for page in "underspan.1", "underspan.json.5":
        result = subprocess.run(["groff", "-man", "-ww", "-Tutf8", reference["directory"] / page], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=30)
        assert (result.returncode, result.stderr) == (0, "") and len(result.stdout.splitlines()) > 200


@pytest.mark.parametrize("typed, offered", [
    (["ru"], {"run"}), (["run", "--spool.max_b"], {"--spool.max_bytes="}), (["run", "--chec"], {"--check"}), (["help", "un"], {"units"}),
    (["sql", "-c", f"{ROOT}/deploy/und"], {f"{ROOT}/deploy/underspan.json"}),
    (["sql", "--config", "=", f"{ROOT}/deploy/und"], {f"{ROOT}/deploy/underspan.json"})])
def test_the_completion_offers_what_fits(reference, typed, offered):
    script = 'compopt() { :; }; . "$0"; COMP_WORDS=(underspan "$@"); COMP_CWORD=$#; _underspan; printf "%s\\n" "${COMPREPLY[@]}"'
    result = subprocess.run(["bash", "-c", script, reference["directory"] / "underspan.bash", *typed], stdout=subprocess.PIPE, check=True,
                            text=True, timeout=10)
    assert {*result.stdout.split()} == offered


def test_the_guides_sizes_follow_from_its_measurement():
    """`make sizes` writes them: the hosts are the measured bytes a request, which are the sum of the tables."""
    sys.path.append(f"{ROOT}/tests/bench")
    import sizes
    with open(f"{ROOT}/deploy/doc/guide.md") as f:
        written = f.read().split(sizes.BEGINS)[1].split(sizes.ENDS)[0]
    each = [int(n) for n in re.findall(r"^\| `ebpf_\w+` \|.*\| (\d+) \|$", written, re.M)]
    [total] = map(int, re.findall(r"^\| all tables \|.*\| (\d+) \|$", written, re.M))
    assert len(each) >= 6 and 0 <= total - sum(each) <= 5 + len(each) // 2, (total, each)
    assert sizes.hosts(total) in written
