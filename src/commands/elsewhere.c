// SPDX-License-Identifier: Apache-2.0
/* Words of other programs. See elsewhere.h. */
#include "commands/elsewhere.h"

#include <string.h>

#include "base/config_search.h"
#include "commands/commands.h"
#include "trackers/trackers.h"

bool elsewhere_service(const char *word)
{
	static const char *const words[] = { "start",  "stop",	 "restart", "reload",
					     "status", "enable", "disable" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(word, words[i]))
			return true;
	}
	return false;
}

#define REMOVAL                                                                                    \
	"rows end by their TTL (`underspan schema --keep=30d`); one table's: `underspan sql 'TRUNCATE TABLE ebpf_off_cpu'`"
#define PAGES                                                                                      \
	"pages are `underspan requests --html > FILE.html` and others, dashboards for Grafana are in deploy/grafana, of a package in /usr/share/underspan"
#define CHART "the Helm chart is deploy/k8s/chart, of a package below /usr/share/underspan"

const char *elsewhere_command(const char *word)
{
	static const struct {
		const char *word, *instead;
	} words[] = {
		{ "logs", "`journalctl -u underspan`" },
		{ "log", "`journalctl -u underspan`" },
		{ "config",
		  "`underspan run --check` prints it, `underspan help config` explains it" },
		{ "check",
		  "`underspan run --check` checks the configuration, `underspan doctor` the host" },
		{ "upgrade", "install the newer package, then `underspan schema --apply`" },
		{ "update", "install the newer package, then `underspan schema --apply`" },
		{ "migrate", "`underspan schema --apply` makes and upgrades the tables" },
		{ "init", "`underspan schema --apply` makes and upgrades the tables" },
		{ "tables",
		  "`underspan schema` prints them, `underspan schema --apply` makes them" },
		{ "install", "the package manager does it, or `make install` in the source tree" },
		{ "setup", "`underspan schema --apply` makes the tables, `underspan run --check` "
			   "checks the configuration" },
		{ "export", "`underspan sql 'SELECT ... FORMAT JSONEachRow' > FILE`, or `underspan "
			    "run --stdout`" },
		{ "import", "`underspan sql - < FILE`, an INSERT with its rows" },
		{ "backup", "it is ClickHouse's: BACKUP DATABASE; of a store, copy its directory "
			    "after its end" },
		{ "delete", REMOVAL },
		{ "clean", REMOVAL },
		{ "purge", REMOVAL },
		{ "ping", "`underspan sql 'SELECT 1'` asks the database, `underspan doctor` the "
			  "agent, too" },
		{ "connect", "`underspan sql 'SELECT 1'` asks the database" },
		{ "web", PAGES },
		{ "ui", PAGES },
		{ "dashboard", PAGES },
		{ "dashboards", PAGES },
		{ "grafana", PAGES },
		{ "report", PAGES },
		{ "k8s", CHART },
		{ "kubernetes", CHART },
		{ "helm", CHART },
		{ "alerts", "rules for Prometheus are in deploy/prometheus, of a package in "
			    "/usr/share/underspan" },
		{ "examples", "`underspan help COMMAND`, as in `underspan help requests`" },
		{ "units", "`underspan help units`" },
		{ "uninstall", "the package manager does it, as in `apt remove underspan`" },
		{ "completion",
		  "the packages have it for bash, `make doc` writes build/doc/underspan.bash" },
		{ "man", "`man underspan`, or `underspan help`" },
		{ "agent", "`underspan run`" },
		{ "daemon", "`underspan run`, or the service: `systemctl start underspan`" },
		{ "server", "`underspan store --path=DIR`" },
		{ "serve", "`underspan store --path=DIR`" },
		{ "ps", "`underspan doctor` lists the Python processes" },
		{ "list", "`underspan doctor` lists processes, `underspan requests` requests" },
		{ "query", "`underspan sql 'SELECT ...'`" },
		{ "spans", "`underspan doctor --spans`" },
		{ "slow", "`underspan requests`" },
		{ "trace", "`underspan explain TRACE_ID`, or `underspan timeline -p PID`" },
		{ "record", "`underspan timeline -p PID -o FILE.pftrace`" },
		{ "watch", "`underspan top`" },
		{ "monitor", "`underspan top`" },
		{ "attach", "`underspan requests -p PID`, `gil -p PID` or `offcpu -p PID`" },
		{ "profile", "`underspan offcpu -p PID`" },
		{ "flamegraph", "`underspan offcpu -p PID -o FILE.html`" },
		{ "metrics", "`underspan run --metrics.listen=127.0.0.1:9464`" },
		{ "dump", "`underspan top --once -p PID`, or `underspan offcpu -p PID`" },
		{ "service", "the service is systemd's, `systemctl start underspan`" },
		{ "systemd", "the service is systemd's, `systemctl start underspan`" },
		{ "collector", "`underspan store --path=DIR --otlp` takes spans without one" },
		{ "otlp", "`underspan store --path=DIR --otlp` takes spans" },
		{ "otel", "`underspan store --path=DIR --otlp` takes spans, `underspan doctor "
			  "--spans` checks them" },
		{ "opentelemetry", "`underspan store --path=DIR --otlp` takes spans, `underspan "
				   "doctor --spans` checks them" },
		{ "login", "clickhouse_user and clickhouse_password_file of the configuration: "
			   "`underspan help config`" },
		{ "password", "clickhouse_password_file or $UNDERSPAN_CLICKHOUSE_PASSWORD: "
			      "`underspan help config`" },
		{ "clickhouse", "--clickhouse=URL of the commands, `underspan store --path=DIR` "
				"for an embedded one" },
		{ "trackers", "`underspan run --trackers=A,B`: `underspan help run` lists them" },
		{ "options", "`underspan help COMMAND`, as in `underspan help run`" },
		{ "environment", "`underspan help config`" },
		{ "env", "`underspan help config`" },
		{ "test", "`underspan run --check` checks the configuration, `underspan doctor` "
			  "the host" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(words[i].word, word))
			return words[i].instead;
	}
	return NULL;
}

#define QUERY	      "the query is an argument, as in `underspan sql 'SELECT 1'`"
#define QUERY_FILE    "`underspan sql - < FILE` reads the query from a file"
#define ONE_REQUEST   "one request's time is `underspan explain --html ID > FILE.html`"
#define ID_ARGUMENT   "the id is an argument, as in `underspan explain TRACE_ID`"
#define CHOSEN_BY_PID "`--pid=PID` chooses processes; every row has its service, pod and container"
#define REQUEST_IDS   "`underspan requests -p PID` lists requests with their ids"

static const struct words {
	const char *command; /* NULL: every command */
	const char *option, *instead;
} options[] = {
	{ "explain", "-o", "`underspan explain --html ID > FILE.html`" },
	{ "explain", "--output", "`underspan explain --html ID > FILE.html`" },
	{ "explain", "-p", REQUEST_IDS },
	{ "explain", "--pid", REQUEST_IDS },
	{ "explain", "--since", "`underspan requests --since=10m` lists requests with their ids" },
	{ "explain", "--last", "`underspan requests --since=10m` lists requests with their ids" },
	{ "explain", "--slowest", "`underspan requests` lists the slowest with their ids" },
	{ "explain", "--service",
	  "`underspan requests --service=NAME` lists requests with their ids" },
	{ "explain", "--request", "the id is an argument, as in `underspan explain REQUEST_ID`" },
	{ "explain", "--trace", ID_ARGUMENT },
	{ "explain", "--trace_id", ID_ARGUMENT },
	{ "explain", "--trace-id", ID_ARGUMENT },
	{ "explain", "--id", ID_ARGUMENT },
	{ "explain", "--request_id", ID_ARGUMENT },
	{ "sql", "-q", QUERY },
	{ "sql", "-e", QUERY },
	{ "sql", "--query", QUERY },
	{ "sql", "--execute", QUERY },
	{ "sql", "--limit", "LIMIT is a part of the query" },
	{ "sql", "--json", "`--format=JSON`" },
	{ "sql", "--csv", "`--format=CSVWithNames`" },
	{ "sql", "-f", QUERY_FILE },
	{ "sql", "--file", QUERY_FILE },
	{ "sql", "--queries-file", QUERY_FILE },
	{ "run", "--json", "`--stdout` prints rows as JSON lines" },
	{ "run", "--output",
	  "`--stdout` prints rows as JSON lines, as in `underspan run --stdout "
	  "> FILE`" },
	{ "run", "-o",
	  "`--stdout` prints rows as JSON lines, as in `underspan run --stdout "
	  "> FILE`" },
	{ "run", "--otlp", "`underspan store --path=DIR --otlp` takes spans" },
	{ "run", "--service", CHOSEN_BY_PID },
	{ "run", "--unit", CHOSEN_BY_PID },
	{ "run", "--container", CHOSEN_BY_PID },
	{ "run", "--namespace", CHOSEN_BY_PID },
	{ "run", "--pod", CHOSEN_BY_PID },
	{ "run", "--cgroup", CHOSEN_BY_PID },
	{ "run", "--name", CHOSEN_BY_PID },
	{ "run", "--exclude", CHOSEN_BY_PID },
	{ "run", "--include", CHOSEN_BY_PID },
	{ "run", "--endpoint", "`--clickhouse=URL` takes rows, `underspan store --otlp` spans" },
	{ "run", "--otel-endpoint",
	  "`--clickhouse=URL` takes rows, `underspan store --otlp` spans" },
	{ "run", "--otlp-endpoint",
	  "`--clickhouse=URL` takes rows, `underspan store --otlp` spans" },
	{ "run", "--prometheus", "`--metrics.listen=127.0.0.1:9464`" },
	{ "run", "--metrics", "`--metrics.listen=127.0.0.1:9464`" },
	{ "run", "--listen", "`--metrics.listen=127.0.0.1:9464`" },
	{ "run", "--interval", "rows are sent as they come, after `--flush_interval` at most" },
	{ "run", "--apply", "`underspan schema --apply` makes the tables" },
	{ "run", "--path", "`--store=DIR` keeps the rows in an embedded ClickHouse" },
	{ "store", "--store", "its directory is `--path=DIR`" },
	{ "store", "--dir", "its directory is `--path=DIR`" },
	{ "store", "--directory", "its directory is `--path=DIR`" },
	{ "store", "--data", "its directory is `--path=DIR`" },
	{ "store", "-d", "its directory is `--path=DIR`" },
	{ "store", "--grpc", "it takes OTLP over HTTP: OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" },
	{ "store", "--check", "`underspan run --check` checks the configuration" },
	{ "requests", "-n", "`--top=N` is the number of lines" },
	{ "requests", "--limit", "`--top=N` is the number of lines" },
	{ "requests", "--sort", "`--by=PART`, as in `--by=gil`, or `--by=endpoint`" },
	{ "requests", "--endpoint", "`--path=PREFIX`, or `--by=endpoint` for all" },
	{ "requests", "--url", "`--path=PREFIX`" },
	{ "requests", "--trace", "`underspan explain TRACE_ID`" },
	{ "requests", "--trace_id", "`underspan explain TRACE_ID`" },
	{ "requests", "-o", "`underspan requests --html > FILE.html`" },
	{ "requests", "--output", "`underspan requests --html > FILE.html`" },
	{ "requests", "--format", "`--json`, or `--html`" },
	{ "requests", "--csv", "`--json`, or `--html`" },
	{ "requests", "--from", "`--since=1h`" },
	{ "requests", "--start", "`--since=1h`" },
	{ "requests", "--last", "`--since=1h`" },
	{ "requests", "--to", "`--until=30m`" },
	{ "requests", "--end", "`--until=30m`" },
	{ "requests", "--status",
	  "`--json` has the status, or ask ebpf_request by `underspan sql`" },
	{ "requests", "--slower-than", "the slowest come first, `--top=N` is the number of lines" },
	{ "requests", "--min-duration",
	  "the slowest come first, `--top=N` is the number of lines" },
	{ "gil", "-o", "`underspan gil -p PID --html > FILE.html`" },
	{ "gil", "--output", "`underspan gil -p PID --html > FILE.html`" },
	{ "offcpu", "--html", "`-o FILE.html`" },
	{ "offcpu", "--svg", "`-o FILE.svg`" },
	{ "offcpu", "--pprof", "`-o FILE.pb.gz`" },
	{ "offcpu", "--flamegraph", "`-o FILE.html`" },
	{ "offcpu", "--flame", "`-o FILE.html`" },
	{ "timeline", "--html", "`-o FILE.html`" },
	{ "timeline", "--perfetto", "`-o FILE.pftrace`" },
	{ "timeline", "--request", ONE_REQUEST },
	{ "timeline", "--trace", ONE_REQUEST },
	{ "timeline", "--trace_id", ONE_REQUEST },
	{ "timeline", "--json", "`-o FILE.pftrace`, for ui.perfetto.dev" },
	{ "top", "-n", "`--once` prints one picture" },
	{ "top", "-b", "`--once` prints one picture" },
	{ "top", "-o", "`underspan top --once --json > FILE`" },
	{ "top", "--output", "`underspan top --once --json > FILE`" },
	{ "top", "--interval",
	  "the screen changes each second; `--once -d S` measures for S seconds" },
	{ "doctor", "--html", "`--json`" },
	{ "gil", "--top", "leave it out: with -p it prints every thread" },
	{ "gil", "--limit", "leave it out: with -p it prints every thread" },
	{ "doctor", "--all", "leave it out: it tells of all Pythons" },
	{ "doctor", "--verbose", "leave it out: it tells all; `--json` for programs" },
	{ "doctor", "--fix", "each line that says NO has the fix; underspan changes nothing" },
	{ "schema", "-o", "`underspan schema > FILE`" },
	{ "schema", "--output", "`underspan schema > FILE`" },
	{ "schema", "--ttl", "`--keep=30d`" },
	{ "schema", "--retention", "`--keep=30d`" },
	{ "schema", "--prefix", "`--table_prefix=PREFIX`" },
	{ "schema", "--replicas", "`--cluster=NAME`: ClickHouse knows the cluster's replicas" },
	{ "schema", "--replica", "`--cluster=NAME`: ClickHouse knows the cluster's replicas" },
	{ "schema", "--shards", "`--cluster=NAME`: ClickHouse knows the cluster's shards" },
	{ "schema", "--shard", "`--cluster=NAME`: ClickHouse knows the cluster's shards" },
	{ "schema", "--policy", "`--storage_policy=NAME`" },
	{ "schema", "--upgrade", "`--apply`" },
	{ "schema", "--downgrade",
	  "nothing is to be done: an older agent sends the columns that it knows" },
	{ "store", "--port", "`--listen=127.0.0.1:PORT`" },
	{ "store", "--host", "`--listen=HOST:PORT`" },
	{ "store", "--user", "the user is `default`, the password is in DIR/password" },
	{ "store", "--password", "the store makes one, in DIR/password" },
	{ "schema", "--table",
	  "it prints every table; one: `underspan sql 'SHOW CREATE TABLE "
	  "ebpf_request'`" },
	{ "schema", "--drop", "underspan drops no table: `underspan sql 'DROP TABLE ...'`" },
	{ "schema", "--dry-run", "`--check` prints the differences and changes nothing" },
	{ NULL, "--format", "`--json`" },
	{ NULL, "--debug", "`--log_level=debug`" },
	{ "run", "--verbose", "`--log_level=debug`" },
	{ "store", "--verbose", "`--log_level=debug`" },
	{ NULL, "--quiet", "`--log_level=error`" },
	{ NULL, "-q", "`--log_level=error`" },
	{ NULL, "--daemon", "the service manager does it: `systemctl start underspan`" },
	{ NULL, "--background", "the service manager does it: `systemctl start underspan`" },
	{ NULL, "--foreground", "leave it out: underspan stays in the foreground" },
	{ NULL, "--user", "`--clickhouse_user=NAME`" },
	{ NULL, "--password",
	  "`--clickhouse_password_file=FILE`, or the variable "
	  "UNDERSPAN_CLICKHOUSE_PASSWORD: process lists show arguments" },
	{ NULL, "--database", "`--clickhouse_database=NAME`" },
	{ NULL, "--url", "`--clickhouse=URL`" },
	{ NULL, "--server", "`--clickhouse=URL`" },
	{ NULL, "--port",
	  "it is a part of `--clickhouse=URL`, as in http://127.0.0.1:8123, or of "
	  "`--metrics.listen=HOST:PORT`" },
};

/* --NAME */
static bool is_tracker(const char *arg, size_t len)
{
	for (size_t i = 0; !strncmp(arg, "--", 2) && all_trackers[i]; i++) {
		const char *name = all_trackers[i]->name;

		if (strlen(name) == len - 2 && !strncmp(arg + 2, name, len - 2))
			return true;
	}
	return false;
}

const char *elsewhere_option(const char *command, const char *arg)
{
	size_t len = strcspn(arg, "=");
	bool known = !strncmp(arg, "--", 2) && len > 2 &&
		     config_find_option(commands_all_options(), arg + 2, len - 2);

	if (!known && !strcmp(command, "run") && is_tracker(arg, len))
		return "that is a tracker: `--trackers=A,B` chooses those that run";
	for (size_t i = 0; arg[0] == '-' && i < ARRAY_SIZE(options); i++) {
		const struct words *w = &options[i];

		if ((w->command ? !strcmp(w->command, command) : !known) &&
		    strlen(w->option) == len && !strncmp(w->option, arg, len))
			return w->instead;
	}
	return NULL;
}
