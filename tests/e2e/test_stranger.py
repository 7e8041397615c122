# SPDX-License-Identifier: Apache-2.0
"""Commands as somebody types them who has read no page: each is answered by one sentence with the thing and the fix."""
import http.server
import os
import re
import subprocess
import threading

import pytest

from agent import NO_ENGINE, UNDERSPAN, plain_build, run_underspan
from store_fixture import ROOT, store  # noqa: F401
from test_errors import FAILED, USAGE, check_sentence

pytestmark = pytest.mark.light
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
SERVER = "--clickhouse=http://127.0.0.1:1"  # no listener
NO_PROCESS = "no process 2147483647"

TYPED = [
    # the command
    ("rnu", USAGE, "did you mean run"),
    ("Explain", USAGE, "did you mean explain"),
    ("start", USAGE, "systemctl start underspan"),
    ("stop", USAGE, "systemctl stop underspan"),
    ("status", USAGE, "systemctl status underspan"),
    ("restart", USAGE, "systemctl restart underspan"),
    ("install", USAGE, "package manager.*make install"),
    ("units", USAGE, "underspan help units"),
    ("nonsense", USAGE, "underspan help"),
    ("help rnu", USAGE, "did you mean run"),
    ("logs", USAGE, "journalctl -u underspan"),
    ("config", USAGE, "underspan run --check"),
    ("upgrade", USAGE, "underspan schema --apply"),
    ("uninstall", USAGE, "apt remove"),
    ("flamegraph", USAGE, "offcpu -p PID -o FILE.html"),
    ("query", USAGE, "underspan sql"),
    ("ps", USAGE, "underspan doctor"),
    ("--stdout run", USAGE, "the command comes first"),
    ("man", USAGE, "`man underspan`"),
    ("agent", USAGE, "`underspan run`"),
    ("update", USAGE, "underspan schema --apply"),
    ("tables", USAGE, "underspan schema"),
    ("monitor", USAGE, "underspan top"),
    ("help run gil", USAGE, "one command or topic at a time.*'gil'"),
    # options of other programs
    ("run --debug", USAGE, "--log_level=debug"),
    ("store --verbose", USAGE, "--log_level=debug"),
    ("run -q", USAGE, "--log_level=error"),
    ("run --daemon", USAGE, "systemctl start underspan"),
    ("run --foreground", USAGE, "leave it out"),
    ("run --password=x", USAGE, "clickhouse_password_file.*process lists"),
    ("sql --user=me SELECT", USAGE, "--clickhouse_user=NAME"),
    ("requests --database=otel", USAGE, "--clickhouse_database=NAME"),
    ("sql --url=http://127.0.0.1:1 SELECT", USAGE, "--clickhouse=URL"),
    ("run --port 8123", USAGE, "--clickhouse=URL"),
    ("run --json", USAGE, "--stdout"),
    ("run -o rows.json", USAGE, "--stdout > FILE"),
    ("run --otlp", USAGE, "store --path=DIR --otlp"),
    ("run --unit=shop", USAGE, "--pid=PID"),
    ("run --path=/tmp/mine", USAGE, "--store=DIR"),
    ("store --store=/tmp/mine", USAGE, "--path=DIR"),
    ("sql -e SELECT", USAGE, "the query is an argument"),
    ("sql -f x.sql", USAGE, "sql - < FILE"),
    (f"sql {SERVER} x.sql", USAGE, "sql - < FILE"),
    (f"sql {SERVER} /etc/passwd", USAGE, "'/etc/passwd' is a file's name.*sql - < FILE"),
    (f"sql {SERVER} -", USAGE, "the query is empty"),
    (f"sql {SERVER} handoff", USAGE, "a file of underspan's queries.*sql - < sql/queries/handoff.sql"),
    (f"explain {SERVER} 0123456789abcdef0123456789abcdef 5", USAGE, "one id at a time: '5'"),
    (f"explain {SERVER} 00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", FAILED, "is ClickHouse running there"),
    (f"explain {SERVER} 00-0123456789abcdef0123456789abcdef-0123456789abcdef", USAGE, "no trace id"),
    ("explain -o x.html 5", USAGE, "explain --html ID > FILE.html"),
    ("gil -p 1 -o x.svg", USAGE, "gil -p PID --html > FILE.html"),
    ("offcpu -p 1 --html", USAGE, "-o FILE.html"),
    ("offcpu -p 1 --pprof", USAGE, "-o FILE.pb.gz"),
    ("timeline -p 1 -o x.json", USAGE, "use FILE.html for a page, or FILE.pftrace"),
    ("top --once -n 5", USAGE, "`--once` prints one picture"),
    ("top -o x.json", USAGE, "top --once --json > FILE"),
    ("top --interval=5", USAGE, "changes each second"),
    ("requests --status=500", USAGE, "ebpf_request"),
    ("requests --slower-than=1s", USAGE, "--top=N"),
    ("doctor --html", USAGE, "--json"),
    ("doctor --since=5m", USAGE, "--spans"),
    ("schema foo", USAGE, "--NAME=VALUE"),
    ("schema -o x.sql", USAGE, "underspan schema > FILE"),
    ("schema --ttl=3d", USAGE, "--keep=30d"),
    ("schema --prefix=my_", USAGE, "--table_prefix=PREFIX"),
    ("schema --agents=5", USAGE, "--apply or --check"),
    ("schema --downgrade", USAGE, "nothing is to be done"),
    ("store --port=8123", USAGE, "--listen=127.0.0.1:PORT"),
    ("store --path=/tmp/mine --user=me", USAGE, "`default`.*DIR/password"),
    ("store --path=/tmp/mine --otlp=127.0.0.1:2 --listen=127.0.0.1:2", USAGE, "name another port"),
    ("explain --request=5", USAGE, "underspan explain REQUEST_ID"),
    (f"explain {SERVER} 0123456789abcdef", USAGE, "a span's id, give its trace id"),
    (f"requests {SERVER} -n 5", USAGE, "--top=N"),
    (f"requests {SERVER} --limit=5", USAGE, "--top=N"),
    (f"requests {SERVER} --sort=gil", USAGE, "--by=PART"),
    (f"requests {SERVER} -o x.html", USAGE, "requests --html > FILE.html"),
    (f"requests {SERVER} --since=2026-11-24", USAGE, "ago, not a date"),
    (f"schema {SERVER} --dry-run", USAGE, "--check prints the differences|`--check`"),
    ("schema --drop", USAGE, "drops no table"),
    ("requests no-such-program", USAGE, "no process has that name.*underspan doctor"),
    ("doctor -p gunicorn", USAGE, "not a process id.*pgrep"),
    ("run --stdout gunicorn app:app", USAGE, "'gunicorn'.*starts no program.*--pid=PID"),
    ("run --stdout -- python3 x.py", USAGE, "'python3'.*starts no program"),
    ("timeline --html -p 1", USAGE, "-o FILE.html"),
    ("timeline --request=5 -o x.html", USAGE, "underspan explain --html ID"),
    ("timeline 0123456789abcdef0123456789abcdef -o x.html", USAGE, "underspan explain TRACE_ID"),
    ("timeline 12345678901234567890 -o x.html", USAGE, "underspan explain REQUEST_ID"),
    ("explain --trace_id=5", USAGE, "the id is an argument"),
    ("requests --endpoint=/price -p 1", USAGE, "--path=PREFIX.*--by=endpoint"),
    ("requests --url=/price -p 1", USAGE, "--path=PREFIX"),
    ("requests --trace=abc", USAGE, "underspan explain TRACE_ID"),
    ("offcpu --flame -p 1", USAGE, "-o FILE.html"),
    ("schema --table=ebpf_request", USAGE, "SHOW CREATE TABLE"),
    ("sql --limit=5 SELECT", USAGE, "a part of the query"),
    ("gil -p 1 --html=/tmp/x.html", USAGE, "neither true nor false; for a file: --html > FILE"),
    ("doctor --service=shop", USAGE, "service: of spans, so --spans as well"),
    ("dump --pid 1", USAGE, "top --once -p PID"),
    ("service start", USAGE, "systemctl start underspan"),
    ("collector", USAGE, "store --path=DIR --otlp"),
    ("help otlp", USAGE, "store --path=DIR --otlp"),
    ("help trackers", USAGE, "--trackers=A,B"),
    ("login", USAGE, "clickhouse_password_file.*help config"),
    ("run --container=abc --stdout", USAGE, "--pid=PID.*container"),
    ("run --endpoint=http://a:4317", USAGE, "--clickhouse=URL.*store --otlp"),
    ("run --prometheus --stdout", USAGE, "--metrics.listen=127.0.0.1:9464"),
    ("run --interval=5 --stdout", USAGE, "--flush_interval"),
    ("explain --last", USAGE, "underspan requests --since=10m"),
    (f"requests {SERVER} --by=gil_wait", USAGE, "--by=gil$"),
    (f"requests {SERVER} --by=handoff", USAGE, "--by=queue$"),
    (f"requests {SERVER} --by=queue,gil", USAGE, "one part at a time, as in --by=queue$"),
    (f"requests {SERVER} --from=1h", USAGE, "--since=1h"),
    (f"requests {SERVER} --format=json", USAGE, "`--json`"),
    ("schema --keep=3", USAGE, "use 1h to .*without a unit it is seconds, 3d is days"),
    ("store --path=/tmp/mine --grpc", USAGE, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
    ("setup", USAGE, "underspan schema --apply.*underspan run --check"),
    ("export", USAGE, "underspan sql 'SELECT ... FORMAT JSONEachRow' > FILE"),
    ("import x.json", USAGE, "underspan sql - < FILE"),
    ("backup", USAGE, "BACKUP DATABASE"),
    ("delete", USAGE, "schema --keep=30d.*TRUNCATE TABLE"),
    ("ping", USAGE, "underspan sql 'SELECT 1'"),
    ("dashboard", USAGE, "requests --html > FILE.html.*deploy/grafana"),
    ("helm", USAGE, "deploy/k8s/chart"),
    ("alerts", USAGE, "deploy/prometheus"),
    ("help examples", USAGE, "underspan help COMMAND"),
    ("schema --replicas=2", USAGE, "--cluster=NAME"),
    ("schema --shards=2", USAGE, "--cluster=NAME"),
    ("schema --upgrade", USAGE, "`--apply`"),
    ("store --dir=/tmp/mine", USAGE, "--path=DIR"),
    ("run --exclude=java --stdout", USAGE, "--pid=PID"),
    ("sql --json SELECT", USAGE, "--format=JSON"),
    ("gil -p 1 --top=5", USAGE, "leave it out"),
    ("doctor --all", USAGE, "leave it out"),
    ("store --path=/tmp/mine --store_program=clickhouse", FAILED, "--store_program=/usr/bin/clickhouse, or leave the option out"),
    (f"explain {SERVER} trace_id=0123456789abcdef0123456789abcdef", USAGE, "`underspan explain 0123456789abcdef0123456789abcdef`$"),
    (f"explain {SERVER} https://traces.example.com/trace/0123456789ABCDEF0123456789abcdef?x=1", USAGE, "`underspan explain 0123456789ABCDEF0123456789abcdef`$"),
    (f"explain {SERVER} 0x0123456789abcdef0123456789abcdef", USAGE, "`underspan explain 0123456789abcdef0123456789abcdef`$"),
    # options that would be without effect
    ("offcpu -p 1 --by=lock --wakers", USAGE, "leave out --wakers, or --by=lock"),
    ("offcpu -p 1 --by=lock --native", USAGE, "leave out --native, or --by=lock"),
    ("offcpu -p 1 --by=lock -o x.svg", USAGE, "no part of that file.*FILE.html"),
    ("offcpu -p 1 --by=lock -o x.folded", USAGE, "no part of that file.*FILE.html"),
    # no place, or a wrong one
    ("run", USAGE, "--clickhouse=URL, --store=DIR .* or --stdout"),
    ("run --store", USAGE, "--store=DIR"),
    ("run --store=", USAGE, "--store=DIR"),
    ("run --store=/etc", USAGE, "not an underspan store.*nothing was changed.*new or empty"),
    ("run --clickhouse=localhost:8123", USAGE, "such as http://127.0.0.1:8123"),
    ("run --clickhouse=http://a:1,,http://b:1", USAGE, "empty place in the list.*http://a:8123,http://b:8123"),
    ("run --store=/etc/passwd --check", USAGE, "needs a directory"),
    ("requests --store=/etc", USAGE, "not an underspan store.*Name the directory of a store"),
    ("run --store=/etc --check", USAGE, "not an underspan store.*Name a new or empty directory"),
    ("run --store=/no/such/dir --check", USAGE, "make the directory above it first"),
    ("run --stdout --no-request.path", USAGE, "--request.path=false"),
    ("run --stdout --handoff", USAGE, "a tracker: `--trackers=A,B`"),
    ("run --stdout --trackers=gc_pause,", USAGE, "--trackers=A,B"),
    ("run --stdout -", USAGE, "unexpected argument '-'.*--NAME=VALUE"),
    ("run --check --clickhouse=http://127.0.0.1:0", USAGE, "port 0.*8123"),
    ("sql --clickhouse=http://127.0.0.1:0 SELECT", USAGE, "port 0.*8123"),
    ("run --clickhouse=ftp://x", USAGE, "neither http:// nor https://"),
    ("run --clickhouse=tcp://127.0.0.1:9000", USAGE, "HTTP interface"),
    ("run --clickhouse=https://127.0.0.1:1 --clickhouse_ca_file=/no/ca.pem", USAGE, "clickhouse_ca_file: cannot read /no/ca.pem"),
    ("run --check --clickhouse=https://127.0.0.1:1 --clickhouse_cert_file=/no/c.pem", USAGE, "clickhouse_cert_file: cannot read /no/c.pem"),
    ("run --clickhouse=http://user:secret@127.0.0.1:1", USAGE, "clickhouse_password_file"),
    ("run --stdout --clickhouse_password=x", USAGE, "did you mean --clickhouse_password_file"),
    ("run --stdout --store=/tmp/no-such-store", USAGE, "several places"),
    ("sql", USAGE, "which query"),
    ("sql SELECT", USAGE, "no database given.*--clickhouse=URL.*--store=DIR"),
    ("sql --store=/no/such/store SELECT", FAILED, "no store at /no/such/store; start a store with"),
    (f"sql {SERVER} SELECT 1", USAGE, "unexpected argument '1'.*one argument, in quotes"),
    (f"sql {SERVER} SELECT", FAILED, "127.0.0.1:1.*is ClickHouse running there.*8123"),
    ("sql --clickhouse=https://127.0.0.1:1 SELECT", FAILED, "is ClickHouse running there.*8443"),
    ("sql --clickhouse=http://no-such-host.invalid:8123 SELECT", FAILED, "no-such-host.invalid"),
    ("sql -q SELECT", USAGE, "the query is an argument"),
    ("explain -p 1", USAGE, "underspan requests -p PID"),
    ("explain --since=10m", USAGE, "underspan requests --since=10m"),
    ("explain --service=shop", USAGE, "underspan requests --service=NAME"),
    ("timeline -o x.pftrace", USAGE, "which process.*-p PID"),
    ("run --stdout -p abc", USAGE, "not a process id"),
    ("explain", USAGE, "TRACE_ID, or REQUEST_ID"),
    (f"explain {SERVER} xyz", USAGE, "32 hex digits"),
    (f"explain {SERVER} 0123456789abcdef0123456789abcdef", FAILED, "is ClickHouse running there"),
    ("requests", USAGE, "no database given.*or -p PID"),
    ("requests --since=10m", USAGE, "no database given"),
    (f"requests {SERVER} --since=yesterday", USAGE, "not a duration.*1h, 7d"),
    (f"requests {SERVER} --by=foo", USAGE, "no part of a request"),
    ("schema --apply", USAGE, "no database given"),
    ("schema --cluster", USAGE, "--cluster=NAME"),
    # files, units, numbers
    ("run -c /no/such/file.json", USAGE, "No such file"),
    ("run -c /tmp", USAGE, "/tmp: Is a directory"),
    ("run -c", USAGE, "needs a file name"),
    ("run -c /etc/passwd", USAGE, "/etc/passwd:1: not valid JSON"),
    ("run stdout", USAGE, "did you mean --stdout"),
    ("run trackers=gc_pause", USAGE, "did you mean --trackers"),
    ("run --stdout --trackers=gcpause", USAGE, "did you mean gc_pause"),
    ("run --stdout --trackers=all", USAGE, "leave the option out for all"),
    ("run --stdout --trackers=gc_pause;off_cpu", USAGE, "a comma between names"),
    ("run --stdout --metrics.listen=:9464", USAGE, "as in 127.0.0.1:9464"),
    ("store --path=/tmp/mine --max_memory_mb=10GB", USAGE, "powers of 1024"),
    ("run --stdout --trackers=", USAGE, "--trackers=A,B"),
    ("run --stdout --duration=5x", USAGE, "250ms, 10s, 2m"),
    ("run --stdout --duration=-1", USAGE, "not a duration"),
    ("run --stdout --memory_bytes=10k", USAGE, "use 1MiB or more"),
    ("run --stdout --batch_rows=10k", USAGE, "whole number, as in 1000"),
    ("run --stdout --governor.cpu_percent=1%", USAGE, "not a number, as in 1 or 0.5"),
    ("run --stdout --metrics.listen=9464", USAGE, "127.0.0.1:9464"),
    ("run --stdout --gc_pause.min_duraton_us=1ms", USAGE, "did you mean --gc_pause.min_duration_us"),
    # processes
    ("run --stdout --pid=abc", USAGE, "not a process id"),
    ("run --stdout --pid=2147483647", FAILED, NO_PROCESS),
    ("gil", USAGE, "-p PID"),
    ("gil -p python", USAGE, "not a process id"),
    ("gil -p 2147483647", FAILED, NO_PROCESS),
    ("offcpu", USAGE, "-p PID"),
    ("offcpu -p 1 -o x.png", USAGE, "FILE.html or FILE.svg"),
    ("offcpu -p 1 --diff=/no/such/file", USAGE, "/no/such/file"),
    ("offcpu -p 1 -d 1 -o /tmp/mine/x.svg", FAILED, "there is no directory /tmp/mine: .*mkdir -p /tmp/mine"),
    ("timeline -p 1 -d 1 -o /tmp/mine/x/x.html", FAILED, "there is no directory /tmp/mine/x: .*mkdir -p"),
    ("top", FAILED, "--once"),
    # the store
    ("store", USAGE, "store --path=DIR"),
    ("store /tmp/mine", USAGE, "underspan store --path=/tmp/mine"),
    ("store --path=/tmp/mine --listen=8123", USAGE, "HOST:PORT, as in 127.0.0.1:8123"),
    ("store --path=/tmp/mine --listen=0.0.0.0:8123", USAGE, "--listen_anywhere"),
    ("store --path=/tmp/mine --libchdb=/no/such/file", FAILED, "/no/such/file: No such file.*deploy/libchdb.sh"),
    ("store --path=/tmp/mine --libchdb=/tmp", USAGE, "/tmp: a directory: name the library"),
    ("run --store=/tmp/mine --libchdb=/tmp --duration=1", USAGE, "/tmp: a directory: name the library"),
    ("store --path=/etc/passwd", FAILED, "needs a directory"),
    ("store --path=/tmp/mine/x/y", FAILED, "make the directory above it first"),
]


@pytest.mark.parametrize("typed, code, words", TYPED, ids=[typed for typed, _, _ in TYPED])
def test_typed(typed, code, words, tmp_path):
    """/tmp/mine stands for a directory of the test's own."""
    typed, words = (text.replace("/tmp/mine", str(tmp_path / "mine")) for text in (typed, words))
    check_sentence(run_underspan(*typed.split(), timeout=60), code, words)


@pytest.mark.parametrize("typed", ["run --stdout", "gil -p 1", "offcpu -p 1", "requests -p 1", "top --once"])
def test_without_root(typed):
    check_sentence(run_underspan(*typed.split(), prefix=NOBODY, timeout=60), FAILED, "CAP_BPF.*run as root")


@pytest.mark.parametrize("typed", [["run", "help"], ["help", "help"], ["-?"], ["help", "-h"]])
def test_help_in_other_words(typed):
    assert run_underspan(*typed).stdout == run_underspan("help", *typed[:1] if typed[0] == "run" else ()).stdout != ""


ON_TMPFS = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o "$0" tmpfs /mnt && exec "$@"']


@plain_build(NO_ENGINE)
def test_no_option_is_refused_as_another_programs():
    """The table of words that are no options of a command (src/commands/elsewhere.c) has none of the command's own."""
    table = re.findall(r'\{ "(\w+)", "(--[\w-]+)",', (ROOT / "src/commands/elsewhere.c").read_text())
    assert len(table) > 100
    own = {command: set(re.findall(r"(?m)^  (--[\w.-]+)", run_underspan("help", command).stdout)) for command, _ in table}
    assert all(own.values()) and [(c, word) for c, word in table if word in own[c]] == []


def test_a_refused_address_leaves_no_directory(tmp_path):
    for wrong in "--listen=0.0.0.0:8123", "--listen=8123", "--otlp=4318", "--otlp=0.0.0.0:4318":
        assert run_underspan("store", f"--path={tmp_path}/db", wrong).returncode == USAGE
    assert not list(tmp_path.iterdir())
    check_sentence(run_underspan("store", f"--path={tmp_path}/db", "--listen=203.0.113.7:8123", "--listen_anywhere"), FAILED,
                   "cannot listen on 203.0.113.7:8123: no interface of this host has that address, `ip address` lists them")


def test_disks_that_take_nothing():
    check_sentence(run_underspan("store", "--path=/mnt/x", prefix=[*ON_TMPFS, "ro"]), FAILED, "Read-only file system: name a directory")
    check_sentence(run_underspan("store", "--path=/root/x", prefix=NOBODY), FAILED, "Permission denied: run as root, or")
    for options, words in ("ro", "Read-only file system: name a file in a directory of yours"), ("size=4k", "No space"):
        check_sentence(run_underspan("offcpu", "-p", str(os.getpid()), "-d1", "-o", "/mnt/x.html", prefix=[*ON_TMPFS, options], timeout=60),
                       FAILED, f"/mnt/x.html: cannot be written: {words}")


def test_without_rights():
    """The way out is one that a package has: no path of a source tree."""
    for command in ["run", "--stdout"], ["offcpu", "-p", str(os.getpid())], ["top", "--once"]:
        done = run_underspan(*command, prefix=[*NOBODY, "--inh-caps=-all", "--bounding-set=-all"])
        check_sentence(done, FAILED, r"CAP_BPF .*run as root \(sudo\), or as the unit underspan.service does")
        assert "deploy/" not in done.stderr


def test_few_open_files():
    result = run_underspan("run", "--stdout", "--duration=1", prefix=["sh", "-c", 'ulimit -n 20; exec "$@"', "sh"], timeout=60)
    check_sentence(result, FAILED, "ulimit -n")


def test_without_the_right_to_read_processes():
    """A container that was given the capabilities of BPF only: nothing is watched, and that is said."""
    prefix = ["capsh", "--drop=cap_sys_ptrace", "--", "-c", 'exec "$@"', "sh"]
    result = run_underspan("run", "--stdout", "--trackers=gc_pause", "--duration=1", prefix=prefix, timeout=60)
    assert result.returncode == 0 and "missing capability CAP_SYS_PTRACE" in result.stderr, result.stderr
    result = run_underspan("doctor", prefix=prefix, timeout=60)
    assert result.returncode == FAILED and re.search("NO +rights +missing capability CAP_SYS_PTRACE.*run as root", " ".join(result.stdout.split())), result.stdout


@plain_build(NO_ENGINE)
def test_sql_that_is_wrong(store):  # noqa: F811
    """The server's words, without the list of everything that could follow, and with a fix where it is underspan's."""
    at = f"--store={store.path}"
    for name in "ebpf_request", "request_time", "default.ebpf_off_cpu":
        check_sentence(run_underspan("sql", at, f"SELECT * FROM {name}"), FAILED, "underspan schema --apply")
    assert "schema" not in run_underspan("sql", at, "SELECT * FROM shop").stderr
    said = run_underspan("sql", at, "SELEC 1").stderr
    assert "Syntax error: failed at position 7" in said and len(said) < 220, said
    for query, words in (("SELECT 1; SELECT 2", "one statement"), ("SELECT {a:String}", "write the value"), ("SELECT * FROM ebpf_handof", "did you mean ebpf_handoff"),
                         ("SELECT 1 FORMAT Nope", "Unknown format Nope")):
        said = run_underspan("sql", at, query).stderr
        assert words in said and said.count("DB::Exception") == 1, said


@plain_build(NO_ENGINE)
def test_views_without_a_window(store):  # noqa: F811
    at = f"--store={store.path}"
    for name in "otel_traces", "otel_traces_trace_id_ts":
        store.ask((ROOT / f"sql/otel/{name}.sql").read_text())
    assert run_underspan("schema", at, "--apply").returncode == 0
    check_sentence(run_underspan("sql", at, "SELECT * FROM request_time"), FAILED, "take a window, as in request_time\\(from = ")
    for option in ["explain", "5"], ["doctor", "--spans"]:
        result = run_underspan(*option, at, "--traces=otel.mine")
        assert result.returncode != 0 and "schema --apply --traces=otel.mine" in result.stdout + result.stderr, result


def test_a_pipe_as_configuration(tmp_path):
    """Without a writer it does not hold up a start."""
    os.mkfifo(tmp_path / "x.json")
    check_sentence(run_underspan("run", "-c", str(tmp_path / "x.json"), timeout=20), USAGE, "x.json:1: not valid JSON")
    piped = run_underspan("run", "--check", "--stdout", "-c", "/dev/stdin", prefix=["sh", "-c", 'sleep 0.2; echo \'{"batch_rows": 77}\' | "$@"', "sh"], timeout=20)
    assert piped.returncode == 0 and "batch_rows = 77" in piped.stdout, piped


@pytest.mark.parametrize("text, words", [
    ("clickhouse: http://a:8123\n", "one JSON object, as in {"), ("", "one JSON object, as in {"), ('{"log_level": "info",}', "a comma before it, after the last value"),
    ('{ // where\n "log_level": "info" }', "JSON has no comments"), ('{ # where\n "log_level": "info" }', "JSON has no comments"),
    ('{"clickhouse": "http://a:1", "clickhouse": "http://b:1"}', "one text, with commas"), ('{"log_level": "info"} {}', "the file is one object")])
def test_a_file_that_is_no_json(text, words, tmp_path):
    (tmp_path / "x.json").write_text(text)
    check_sentence(run_underspan("run", "--check", "-c", str(tmp_path / "x.json")), USAGE, r"x\.json:1: not valid JSON: |x\.json:2: not valid JSON: ", words)


@pytest.mark.parametrize("name, words", [("PASSWORD", "did you mean UNDERSPAN_CLICKHOUSE_PASSWORD"), ("CLICKHOUSE_URL", "did you mean UNDERSPAN_CLICKHOUSE\\?"),
                                         ("DEBUG", "UNDERSPAN_LOG_LEVEL=debug"), ("CONFIG", "`-c FILE` names the file")])
def test_a_variable_of_another_name(name, words):
    result = run_underspan("run", "--check", "--stdout", prefix=["env", f"UNDERSPAN_{name}=1"])
    assert result.returncode == 0 and re.search(f"UNDERSPAN_{name} is no option.*{words}", result.stderr), result


def test_doctor_without_root():
    result = run_underspan("doctor", prefix=NOBODY, timeout=60)
    assert (result.returncode, result.stderr) == (FAILED, "") and "CAP_BPF (to load BPF programs): run as root" in result.stdout, result


@pytest.fixture(scope="module")
def web_server():
    """The port of a server that is no ClickHouse."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_error(404, "welcome")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.fixture(scope="module")
def web_site():
    """Answers each request with a page; below /old/ with a redirect, below /endless/ without an end, below /text/ with a word,
    below /echo/ with what was sent, below /empty/ with nothing."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(301 if self.path.startswith("/old/") else 200)
            if self.path.startswith("/old/"):
                self.send_header("Location", "https://new.example/")
            self.end_headers()
            try:
                texts = {"text": b"Ok.", "echo": sent, "empty": b""}
                self.wfile.write(texts.get(self.path.split("/")[1], b"\n<html>welcome</html>"))
                while self.path.startswith("/endless/"):
                    self.wfile.write(b" " * 65536)
            except OSError:
                pass

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.mark.parametrize("path, said", [("", "answered with a web page: is that ClickHouse?"), ("/endless", "answered with a web page: is that"),
                                        ("/old", "HTTP 301, a redirect to https://new.example/, which is not followed")])
def test_a_web_site_is_no_database(web_site, path, said):
    """Its page is no answer: nothing is printed."""
    for words in ["sql", "SELECT 1"], ["explain", "1"], ["schema", "--check"], ["requests"]:
        check_sentence(run_underspan(words[0], f"--clickhouse={web_site}{path}", *words[1:]), FAILED, re.escape(said))
    check_sentence(run_underspan("requests", f"--clickhouse={web_site}/text"), FAILED, "no header of ClickHouse and is not JSON: is that ClickHouse")
    for path in "text", "echo", "empty":
        result = run_underspan("sql", f"--clickhouse={web_site}/{path}", "SELECT 1")
        check_sentence(result, FAILED, "with no header of ClickHouse.*is that ClickHouse.*8123")
        assert result.stdout == ""


def test_addresses_of_an_agent():
    for address in "127.0.0.1:9464/metrics", ":9464", "http://127.0.0.1:9464", "127.0.0.1", "127.0.0.1:http":
        result = run_underspan("doctor", f"--agent={address}", timeout=60)
        assert result.returncode == FAILED and f"'{address}' is not HOST:PORT, as in 127.0.0.1:9464" in result.stdout, result


@pytest.fixture
def old_server():
    """Answers as the ClickHouse 18.16 of Debian 12 did to each command when it was asked: with the same exception for each."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            text = b"Code: 115, e.displayText() = DB::Exception: Unknown setting cancel_http_readonly_queries_on_client_close, e.what() = DB::Exception\n"
            self.send_response(500)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"--clickhouse=http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def test_a_server_that_is_too_old(old_server):
    for command in ["sql", "SELECT 1"], ["schema", "--check"], ["schema", "--apply"], ["requests"], ["explain", "5"], ["top", "--once"]:
        check_sentence(run_underspan(command[0], old_server, *command[1:]), FAILED, "too old.*23.1 or newer")


def test_wrong_servers(web_server):
    check_sentence(run_underspan("sql", f"--clickhouse=https://127.0.0.1:{web_server}", "SELECT 1"), FAILED, "does that port speak TLS.*http://")
    for command in ["sql", "SELECT 1"], ["schema", "--check"], ["requests", "--since=1h"]:
        check_sentence(run_underspan(command[0], f"--clickhouse=http://127.0.0.1:{web_server}", *command[1:]), FAILED,
                       "answered HTTP 404 with a web page: is that ClickHouse.*8123")
    result = run_underspan("doctor", f"--agent=127.0.0.1:{web_server}", timeout=60)
    assert result.returncode == FAILED and f"what answers at 127.0.0.1:{web_server} is no agent: it has no /metrics" in result.stdout, result


def test_a_process_that_is_no_python():
    """run goes on: a child may become one."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            result = run_underspan("run", "--stdout", "--trackers=gc_pause", f"--pid={process.pid}", "--duration=1", timeout=30)
            assert result.returncode == 0 and f"process {process.pid} runs no Python so far" in result.stderr, result.stderr
            for command in "gil", "requests":
                check_sentence(run_underspan(command, "-p", str(process.pid), "-d1", timeout=30), FAILED, f"{process.pid} \\(sleep\\) runs no Python")
        finally:
            process.kill()


@pytest.mark.parametrize("name, words", [("UNDERSPAN_BATCH_ROW", "did you mean UNDERSPAN_BATCH_ROWS"), ("UNDERSPAN_FOO", "help config")])
def test_the_environment(name, words):
    result = subprocess.run([UNDERSPAN, "run", "--check", "--stdout"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, name: "1"}, timeout=30)
    assert result.returncode == 0 and words in result.stderr, result


def test_short_words_for_the_version():
    assert {run_underspan(word).stdout for word in ("version", "--version", "-V", "-v")} == {run_underspan("version").stdout}
