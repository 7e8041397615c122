#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Assembles the dashboards from sql/: `build.py` writes dashboards/*.json, `build.py --check` fails where these are out of date,
`build.py --trace-url=URL --out=DIR` writes dashboards for a different viewer of traces. A file of sql/DASHBOARD/ is one panel, the
first line is the panel's question; `#include "FILE"` inserts a file of this folder (*.inc) or of the project's sql/, with window and
parameters replaced by the dashboard's choice."""
import argparse
import dataclasses
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
SQL = HERE / "sql"
PLUGIN = "grafana-clickhouse-datasource"
DATASOURCE = {"type": PLUGIN, "uid": "${datasource}"}
TIME_SERIES, TABLE = 0, 1  # the plugin's `format`


# ---- SQL ----

# The window in the project's files, and the replacement in a panel. A DateTime64 where the file computes with the window.
END = "toDateTime64(least(now(), $__toTime), 6, 'UTC')"
WINDOW = {
    "now64(6, 'UTC') AS until": f"{END} AS until",
    "until - INTERVAL 1 HOUR AS since": "toDateTime64($__fromTime, 6, 'UTC') AS since",
    "AND end_time >= since\n": "AND end_time >= since AND start_time < until\n",
    "(g.1, '%T')": "(g.1, '%F %T')",  # a window may have several days
    "(g.2, '%T')": "(g.2, '%F %T')",
    "3600e6": "(toUnixTimestamp64Micro(until) - toUnixTimestamp64Micro(since))",
    "start_time >= now() - INTERVAL 1 HOUR": "$__timeFilter(start_time)",
    "start_time >= toStartOfMinute(now() - INTERVAL 1 HOUR)": "$__timeFilter(start_time)",
    "start_time >= now() - INTERVAL 1 DAY": "start_time >= $__fromTime - INTERVAL 1 DAY AND start_time <= $__toTime",
    "time >= now() - INTERVAL 1 DAY": "time >= $__toTime - INTERVAL 1 DAY AND time <= $__toTime",
    "HAVING ended >= now() - INTERVAL 1 HOUR": "HAVING ended >= $__fromTime",
    "{from:DateTime64(6, 'UTC')}": "$__fromTime",
    "{to:DateTime64(6, 'UTC')}": "$__toTime",
}
# the parameters of `underspan requests`: (file, parameter, value)
PARAMETERS = [
    # a count by second and thread: of an hour at most, for any window
    ("requests/listeners.sql", r"\$__fromTime", "greatest($__fromTime, $__toTime - INTERVAL 1 HOUR)"),
    ("requests/", r"\n *AND \(\{path:String\} = ''.*", ""),
    ("requests/", r"\n *AND \(empty\(\{pids:Array\(UInt32\)\}\).*", ""),
    ("requests/", r"\{top:UInt32\}", "50"),
    ("requests/endpoints.sql", r"r\.\{by:Identifier\}", "r.hidden_ms"),
    ("requests/endpoints.sql", r"\nHAVING \{without:UInt8\}.*", ""),
    ("requests/slowest.sql", r"\{by:Identifier\}", "server_ms"),
]
# the choice of services, hosts and pods goes behind this condition
CHOSEN_AFTER = [
    ("queries/coverage.sql", r"WHERE start_time >= since - INTERVAL 1 HOUR|WHERE host_pid = 0|WHERE time >= \$__toTime[^\n]*?\$__toTime|"
     r"WHERE time >= until - INTERVAL 1 DAY|WHERE start_time >= until - INTERVAL 1 DAY", "chosen_host.inc"),
    ("queries/unwatched.sql", r"AND host_pid != 0", "chosen_host.inc"),
    ("queries/ena.sql", r"WHERE start_time >= [^\n]*", "chosen_host.inc"),
    ("requests/", r"\n *AND \(\{host:String\} = ''[^\n]*", "chosen.inc"),
    ("queries/", r"WHERE \$__timeFilter\(start_time\)", "chosen.inc"),
]


def without_comments(text):
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("--")]
    # behind code, if no string is open there
    return "\n".join(re.sub(r"^((?:[^']|'[^']*')*?) +-- .*", r"\1", line) for line in lines)


def project_file(name):
    """A file of the project's sql/ with what it includes."""
    text = (HERE.parents[1] / "sql" / name).read_text()
    return re.sub(r'(?m)^#include "(.*)"\n', lambda found: project_file(found[1]), text)


def of_the_project(name):
    """A question of the project's sql/, with the dashboard's window and choice."""
    text = without_comments(project_file(name)).strip().rstrip(";")
    for old, new in WINDOW.items():
        text = text.replace(old, new)
    for of, pattern, new in PARAMETERS:
        if name.startswith(of):
            text = re.sub(pattern, new, text)
    _, place, choice = next(rule for rule in CHOSEN_AFTER if name.startswith(rule[0]))
    chosen = "\n" + (SQL / choice).read_text().rstrip()
    text, n = re.subn(place, lambda found: ("" if "{host" in found[0] else found[0]) + chosen, text)
    left = re.search(r"now64?\(6|now\(\) -|(?<!\$)\{\w+:", text)
    if not n or left:
        raise SystemExit(f"build.py: {name}: {'no place for the choice' if not n else 'a window or parameter of its own: ' + left[0]}")
    return text


def panel_sql(path):
    """(question, SQL) of a file."""
    text = path.read_text()
    question = " ".join(line.removeprefix("--").strip() for line in re.match(r"(--.*\n)+", text)[0].splitlines())

    def include(found):
        name = found[1]
        return (SQL / name).read_text().rstrip() if name.endswith(".inc") else of_the_project(name)
    body = text[re.match(r"(--.*\n)+", text).end():]
    while '#include "' in body:
        body = re.sub(r'(?m)^#include "(.*)"$', include, body)
    # the plugin replaces macros within comments, too: the panel's description has the question
    return question, without_comments(body).strip()


# ---- panels ----

def link(title, url):
    return {"title": title, "url": url, "targetBlank": False}


def override(column, **properties):
    return {"matcher": {"id": "byName", "options": column}, "properties": [{"id": name.replace("__", "."), "value": v} for name, v in properties.items()]}


KEEP = "${__url_time_range}&var-datasource=${datasource:percentencode}"
TO_SERVICE = link("this service", "/d/underspan-service?" + KEEP + "&var-service=${__data.fields.service_key:percentencode}")
TO_HOST = link("this host", "/d/underspan-host?" + KEEP + "&var-host=${__value.raw:percentencode}")
TO_REQUEST = link("this request", "/d/underspan-request?" + KEEP + "&var-request_id=${__value.raw:percentencode}")
TO_TRACE = link("this trace", "${trace_url:raw}${__value.raw:percentencode}")
HIDDEN_COLUMN = {"custom__hidden": True}
COLUMNS = {
    "service": override("service", links=[TO_SERVICE]), "service_key": override("service_key", **HIDDEN_COLUMN),
    "request_id": override("request_id", links=[TO_REQUEST]), "trace_id": override("trace_id", links=[TO_TRACE]),
    # names are raw there; a host is a host name
    "host": override("host", links=[TO_HOST]),
    "hidden_percent": override("hidden_percent", unit="percent", custom__cellOptions={"type": "gauge", "mode": "basic"}, min=0, max=100),
    "ms_bar": override("ms", unit="ms", custom__cellOptions={"type": "gauge", "mode": "basic"}, min=0),
}


@dataclasses.dataclass
class Panel:
    file: str
    title: str
    kind: str = "table"
    width: int = 24
    height: int = 9
    unit: str = "short"
    stack: bool = False
    columns: tuple = ()  # of COLUMNS

    def json(self, dashboard, number, x, y):
        question, sql = panel_sql(SQL / dashboard / f"{self.file}.sql")
        series = self.kind == "timeseries"
        defaults = {"unit": self.unit if series else "none"}
        if series:
            defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 35 if self.stack else 5, "showPoints": "auto",
                                  "spanNulls": False, "stacking": {"group": "A", "mode": "normal" if self.stack else "none"}}
            defaults["min"] = 0
            options = {"legend": {"displayMode": "table", "placement": "right", "showLegend": True, "calcs": ["mean", "max"]},
                       "tooltip": {"mode": "multi", "sort": "desc"}}
        else:
            defaults["custom"] = {"align": "auto", "filterable": True, "inspect": True}
            options = {"showHeader": True, "cellHeight": "sm"}
        panel = {"id": number, "type": self.kind, "title": self.title, "description": question, "datasource": DATASOURCE,
                 "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
                 "fieldConfig": {"defaults": defaults, "overrides": [COLUMNS[c] for c in self.columns]}, "options": options,
                 "targets": [{"refId": "A", "datasource": DATASOURCE, "editorType": "sql", "queryType": "timeseries" if series else "table",
                              "format": TIME_SERIES if series else TABLE, "rawSql": sql}]}
        if series:
            panel["interval"] = "10s"  # sums come every 10 s
        return panel


def line(file, title, unit, width=12, **more):
    return Panel(file, title, "timeseries", width, unit=unit, **more)


REQUEST_COLUMNS = ["request_id", "trace_id", "host"]
DASHBOARDS = {
    "fleet": ("Underspan: fleet", ["service", "host", "pod"], [
        line("hidden_time", "Hidden time by part: requests standing in each wait", "short", width=24, stack=True),
        Panel("services", "Services by hidden time", columns=["service", "service_key", "hidden_percent"], height=11),
        line("requests", "Requests per second", "reqps"),
        Panel("not_measured", "Not measured (upper bound)", width=12),
        Panel("coverage", "Agents and coverage", columns=["host"], height=11),
        Panel("unwatched", "Python processes that are not watched", columns=["host"])]),
    "service": ("Underspan: service", ["service", "host", "pod", "trace_url"], [
        line("latency", "Latency of all requests", "ms"),
        line("requests", "Requests per second", "reqps"),
        line("parts", "Parts of the mean request", "ms", width=24, height=11, stack=True),
        line("threads", "Threads busy, requests waiting", "short"),
        Panel("not_measured", "Not measured", width=12),
        Panel("listeners", "Listeners: threads missing (the window's last hour)", columns=["host"]),
        Panel("endpoints", "Endpoints by hidden time (ms per request)", columns=["hidden_percent"], height=11),
        Panel("slowest", "Slowest requests", columns=REQUEST_COLUMNS, height=11),
        Panel("handoff_places", "Hand-offs by place of the pick-up", width=12, columns=["host"]),
        Panel("loop_stall", "Event-loop stalls by place", width=12, columns=["host"]),
        Panel("gc_pause", "Garbage collections, at exit last", width=12, columns=["host"]),
        Panel("gil_wait", "Holders of the GIL", width=12, columns=["host"]),
        Panel("locks", "Locks, and the threads that gave them back", columns=["host"]),
        Panel("off_cpu", "Waits by cause and place", columns=["host"]),
        Panel("on_cpu", "CPU time by place (samples)", columns=["host"])]),
    "request": ("Underspan: request", ["request_id", "trace_id", "trace_url"], [
        Panel("found", "The request", columns=[*REQUEST_COLUMNS, "service", "service_key"], height=6),
        Panel("parts", "Its ledger", width=12, height=16, columns=["ms_bar"]),
        Panel("spans", "The spans of its trace", width=12, height=16, columns=["trace_id"])]),
    "host": ("Underspan: host", ["service", "host", "pod"], [
        line("run_queue", "Threads ready without a CPU", "short"),
        line("throttled", "CPU withheld by quotas (seconds per second)", "short"),
        Panel("cpu_throttle", "CPU quotas", columns=["host"]),
        line("accept_drops", "Handshakes dropped by listeners", "cps"),
        Panel("tcp_accept", "Accept queues", width=12, columns=["host"]),
        Panel("tcp_loss", "Losses and closed windows", width=12, columns=["host"]),
        Panel("tcp_connect", "Outbound connections", width=12, columns=["host"]),
        Panel("ena", "EC2 allowances exceeded", width=12, columns=["host"]),
        line("agent_cost", "CPUs used by the agent", "short"),
        Panel("agent_losses", "What the agent lost or left out", columns=["host"]),
        Panel("coverage", "Coverage", columns=["host"], height=11),
        Panel("unwatched", "Python processes that are not watched", columns=["host"])]),
}


# ---- variables ----

def query_variable(name):
    question, sql = panel_sql(SQL / "variables" / f"{name}.sql")
    # `*` is no percent-encoded name: the condition in chosen.inc is then true of all
    return {"type": "query", "name": name, "label": name, "description": question, "datasource": DATASOURCE,
            "query": {"editorType": "sql", "queryType": "table", "format": TABLE, "rawSql": sql, "refId": name}, "refresh": 2, "sort": 0,
            "multi": True, "includeAll": True, "allValue": "*", "options": [], "regex": "", "hide": 0, "skipUrlSync": False,
            "current": {"text": ["All"], "value": ["$__all"]}}


def textbox(name, label, value="", url=True):
    return {"type": "textbox", "name": name, "label": label, "query": value, "hide": 0, "skipUrlSync": not url,
            "options": [{"selected": True, "text": value, "value": value}], "current": {"text": value, "value": value}}


def variable(name, trace_url):
    if name == "trace_url":  # not from the address of the page: a foreign link decides nothing
        return textbox(name, "trace viewer (the trace id follows)", trace_url, url=False)
    return textbox(name, name) if name in ("request_id", "trace_id") else query_variable(name)


def dashboard(name, trace_url):
    title, variables, panels = DASHBOARDS[name]
    made, x, y, below = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > 24:
            x, y = 0, below
        made.append(panel.json(name, number, x, y))
        x, below = x + panel.width, max(below, y + panel.height)
    datasource = {"type": "datasource", "name": "datasource", "label": "ClickHouse", "query": PLUGIN, "refresh": 1, "regex": "", "options": [],
                  "hide": 0, "skipUrlSync": False, "multi": False, "includeAll": False}
    return {"uid": f"underspan-{name}", "title": title, "tags": ["underspan"], "schemaVersion": 39, "version": 1, "editable": True, "id": None,
            "time": {"from": "now-1h", "to": "now"}, "refresh": "", "timezone": "", "graphTooltip": 1, "annotations": {"list": []},
            "links": [{"type": "dashboards", "title": "underspan", "tags": ["underspan"], "asDropdown": True, "includeVars": True, "keepTime": True,
                       "icon": "external link", "targetBlank": False, "tooltip": "", "url": ""}],
            "templating": {"list": [datasource, *(variable(v, trace_url) for v in variables)]}, "panels": made}


OWN_NAMES = "|".join(path.stem for folder in ("tables", "views") for path in (HERE.parents[1] / "sql" / folder).glob("*.sql") if path.stem != "request")
# a view, and a word of many other uses
OWN = re.compile(rf"\b(?=(?:{OWN_NAMES})\b)|(?<=FROM )(?=request\()|(?<=JOIN )(?=request\()")


def prefixed(value, prefix):
    """With the prefix before the tables and views of sql/ in all questions, as `--table_prefix` has it."""
    if isinstance(value, list):
        return [prefixed(v, prefix) for v in value]
    if not isinstance(value, dict):
        return value
    return {key: OWN.sub(prefix, v) if key in ("rawSql", "query") and isinstance(v, str) else prefixed(v, prefix) for key, v in value.items()}


def prefix_argument(text):
    if not re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]{0,63})?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no prefix: letters, digits and underscores, at most 64, no digit first")
    return text


def files(trace_url, prefix=""):
    return {f"{name}.json": json.dumps(prefixed(dashboard(name, trace_url), prefix), indent=1, ensure_ascii=False) + "\n" for name in DASHBOARDS}


def main():
    parser = argparse.ArgumentParser(description="writes the dashboards from sql/")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is not up to date")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "dashboards", metavar="DIR")
    parser.add_argument("--trace-url", default="/d/underspan-request?var-trace_id=", metavar="URL", help="what a trace id is put behind")
    parser.add_argument("--prefix", type=prefix_argument, default="", help="before the names of underspan's tables, as --table_prefix")
    arguments = parser.parse_args()
    old = []
    for name, text in files(arguments.trace_url, arguments.prefix).items():
        path = arguments.out / name
        if arguments.check:
            old += [name] if not path.exists() or path.read_text() != text else []
        else:
            arguments.out.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if old:
        sys.exit(f"build.py: not up to date: {' '.join(old)}; run deploy/grafana/build.py")


if __name__ == "__main__":
    main()
