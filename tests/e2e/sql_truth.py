# SPDX-License-Identifier: Apache-2.0
"""The expected answer of each file of sql/queries, computed in Python from the rows of sql_known.py: QUERIES maps a file's
name to a function of (rows by table, now) that returns the whole result, as lists in the order of the columns."""
import collections
import datetime
import ipaddress
import math

from sql_known import HOUR, MINUTE, SECOND, float32
from sql_loops import coroutine_of

# columns computed by the tables from several columns, in nanoseconds
COMPUTED = {
    "server_ms": lambda r: r["duration_ns"] - (r["client_wait_ns"] or 0) - r["client_slow_ns"],
    "hidden_ms": lambda r: sum(r[f"{part}_ns"] or 0 for part in ("accept_queue", "queue", "pool_wait", "runq", "throttled", "gil", "gc_sibling", "loop_busy"))}
QUERIES = {}
DAY = 24 * HOUR


def question(function):
    QUERIES[function.__name__ + ".sql"] = function
    return function


# ---- common parts of the answers ----

def rounded(x, digits=0):
    """To the nearest, as in ClickHouse: halves to even."""
    return None if x is None else round(x * 10 ** digits) / 10 ** digits


def timestamp(us):
    at = datetime.datetime.fromtimestamp(us // SECOND, datetime.timezone.utc)
    return f"{at:%Y-%m-%d %H:%M:%S}.{us % SECOND:06d}"


def minute(us):
    return timestamp(us // MINUTE * MINUTE)[:19]


def clock(us):
    return timestamp(us)[11:19]


def weighted_quantile(level, pairs):
    """The smallest value that covers the given share of the weights; None without values."""
    pairs = sorted((value, round(weight * 1000)) for value, weight in pairs)
    wanted, sum_so_far = math.ceil(sum(w for _, w in pairs) * level), 0
    for value, weight in pairs:
        sum_so_far += weight
        if sum_so_far >= wanted:
            return value
    return None


def quantile_ms(level, rows, column="duration_ns"):
    value = weighted_quantile(level, [(r[column] // 1000, r["weight"]) for r in rows])
    return None if value is None else rounded(value / 1e3, 1)


def weights(rows, column=None):
    return math.fsum(r["weight"] * (r[column] if column else 1) for r in rows)


def largest(rows, column, divisor, digits=1):
    return rounded(max(r[column] for r in rows) / divisor, digits) if rows else None


def place(stack):
    return " < ".join(stack[:4])


def address(text):
    ip = ipaddress.ip_address(text)
    return str(ip.ipv4_mapped or ip)


def grouped(rows, key):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups.items()


def most(pairs):
    """The name with the largest sum; of equals the first in the alphabet."""
    sums = collections.defaultdict(float)
    for name, value in pairs:
        sums[name] += value
    return min(sums, key=lambda name: (-sums[name], name)) if sums else None


def since(rows, moment):
    return [r for r in rows if r["start_time"] >= moment]


def process(r):
    return r["host"], r["container_id"], r["pid"], r["host_pid"]


def head(key):
    host, container, pid, host_pid = key
    return [host, container[:12], pid, host_pid]


# ---- the questions ----

@question
def gc_pause(known, now):
    at_exit = lambda r: r["reason"] == "shutdown" or (r["reason"], r["generation"], r["py_stack"], r["frozen_threads"]) == ("", 2, [], 0)
    rows = sorted(since(known["ebpf_gc_pause"], now - HOUR), key=lambda r: (at_exit(r), -r["duration_ns"], r["start_time"], r["host"], r["host_pid"]))
    return [[timestamp(r["start_time"]), r["host"], r["container_id"][:12], r["pid"], r["thread_name"],
             None if r["generation"] == -1 else r["generation"], rounded(r["duration_ns"] / 1e6, 1), r["collected"], r["long_lived"], r["frozen_threads"],
             None if r["frozen_threads"] is None else rounded(r["duration_ns"] * (1 + r["frozen_threads"]) / 1e6, 1), place(r["py_stack"]) or None, int(at_exit(r))] for r in rows[:20]]


@question
def gil_wait(known, now):
    parts = [{**r, "keeper": h["tid"], "kept_ns": h["ns"], "keeper_name": h["thread_name"]}
             for r in since(known["ebpf_gil_wait"], now - HOUR) for h in r["holders"]]
    lines = []
    for (*key, keeper), rows in grouped(parts, lambda r: (*process(r), r["keeper"])):
        last = max(rows, key=lambda r: (r["start_time"], r["host_tid"]))
        lines.append([*head(key), keeper or None, last["keeper_name"], rounded(weights(rows)), len({r["host_tid"] for r in rows}),
                      rounded(weights(rows, "kept_ns") / 1e6, 1), largest(rows, "kept_ns", 1e6),
                      most((place(r["holder_py_stack"]), r["kept_ns"] * r["weight"]) for r in rows
                           if r["holder_tid"] == keeper and r["holder_py_stack"])])
    return sorted(lines, key=lambda l: (-l[8], l[0], l[3], l[4] or math.inf))[:20]


@question
def handoff_places(known, now):
    lines = []
    taken = [r for r in since(known["ebpf_handoff"], now - HOUR) if r["py_stack"]]
    for (*key, port, where), rows in grouped(taken, lambda r: (*process(r), r["local_port"], place(r["py_stack"]))):
        lines.append([*head(key), port, where, rounded(weights(rows)), rounded(weights(rows, "handoff_ns") / 1e6, 1),
                      quantile_ms(0.99, rows, "handoff_ns"), largest(rows, "handoff_ns", 1e6)])
    return sorted(lines, key=lambda l: (-l[7], l[0], l[3], l[4], l[5]))[:20]


@question
def loop_stall(known, now):
    lines = []
    for (*key, loop, where), rows in grouped(since(known["ebpf_loop_stall"], now - HOUR),
                                             lambda r: (*process(r), r["loop"], place(r["py_stack"]) or None)):
        mostly = most((part, (r[f"{part}_ns"] or 0) * r["weight"]) for r in rows
                      for part in ("cpu", "runq", "gil", "lock", "net", "disk", "sleep", "other"))
        if mostly == "other" and where and ("/subprocess.py:" in where or "/multiprocessing/popen_" in where):
            mostly = "child"
        lines.append([*head(key), loop, where, mostly, rounded(weights(rows)), rounded(weights(rows, "duration_ns") / 1e6, 1),
                      largest(rows, "duration_ns", 1e6), max((r["waiting"] for r in rows if r["waiting"] is not None), default=None)])
    return sorted(lines, key=lambda l: (-l[8], l[0], l[3], l[4], l[5] is None, l[5]))[:20]


@question
def on_cpu(known, now):
    lines, of_process = [], collections.defaultdict(float)
    recent = since(known["ebpf_on_cpu"], now - HOUR)
    for (*key, where), rows in grouped(recent, lambda r: (*process(r), place(r["py_stack"]) or None)):
        ms = rounded(weights(rows, "duration_ns") / 1e6)
        of_process[tuple(key)] += ms
        lines.append((key, where, ms, len({r["tid"] for r in rows})))
    lines = [[*head(key), where, ms, rounded(100 * ms / of_process[tuple(key)], 1), threads] for key, where, ms, threads in lines]
    return sorted(lines, key=lambda l: (-l[5], l[0], l[3], l[4] is None, l[4]))[:20]


@question
def coroutines(known, now):
    parts = [{**r, "coroutine": coroutine_of(r["py_stack"]), "cpu": r["duration_ns"], "blocked": 0} for r in since(known["ebpf_on_cpu"], now - HOUR)]
    parts += [{**r, "coroutine": coroutine_of(r["py_stack"]), "cpu": 0, "blocked": r["off_ns"]}
              for r in since(known["ebpf_off_cpu_profile"], now - HOUR) if not r["idle"]]
    lines, of_process = [], collections.defaultdict(float)
    for (*key, coroutine), rows in grouped((r for r in parts if r["coroutine"]), lambda r: (*process(r), r["coroutine"])):
        sums = {where: weights(own, "cpu") + weights(own, "blocked") for where, own in grouped(rows, lambda r: r["py_stack"][0])}
        cpu, blocked = (rounded(weights(rows, column) / 1e6) for column in ("cpu", "blocked"))
        of_process[tuple(key)] += cpu + blocked
        lines.append((key, coroutine, cpu, blocked, max(sums, key=lambda where: (sums[where], where))))
    lines = [[*head(key), coroutine, cpu, blocked, rounded(100 * (cpu + blocked) / of_process[tuple(key)], 1), where]
             for key, coroutine, cpu, blocked, where in lines]
    assert len({line[4] for line in lines}) == 4
    return sorted(lines, key=lambda l: (-l[5] - l[6], l[0], l[3], l[4]))[:20]


@question
def off_cpu(known, now):
    lines = []
    busy = [r for r in since(known["ebpf_off_cpu_profile"], now - HOUR) if not r["idle"]]
    for (*key, cause, call, where), rows in grouped(busy, lambda r: (
            *process(r), r["cause"], r["syscall"],
            place(r["py_stack"] or r["user_stack"]) if r["host_pid"] else "(no room for the place)")):
        lines.append([*head(key), cause, call, where, rounded(weights(rows, "count")), rounded(weights(rows, "off_ns") / 1e6, 1),
                      rounded(weights(rows, "runq_ns") / 1e6, 1), largest(rows, "max_ns", 1e6),
                      most((r["waker_comm"], r["off_ns"] * r["weight"]) for r in rows if r["waker_comm"])])
    return sorted(lines, key=lambda l: (-l[8], l[0], l[3], l[4], l[5], l[6]))[:30]


@question
def locks(known, now):
    lines = []
    waits = [r for r in since(known["ebpf_off_cpu"], now - HOUR) if r["lock_address"] and not r["idle"]]
    for (*key, lock, releaser), rows in grouped(waits, lambda r: (*process(r), r["lock_address"], r["waker_host_tid"])):
        last = max(rows, key=lambda r: (r["start_time"], r["host_tid"]))
        longest = max((r for r in rows if r["py_stack"] or r["user_stack"]), key=lambda r: (r["duration_ns"], r["start_time"], r["host_tid"]), default=None)
        lines.append([*head(key), f"{lock:#x}", releaser or None, last["waker_thread_name"] or last["waker_comm"], rounded(weights(rows)),
                      len({r["host_tid"] for r in rows}), rounded(weights(rows, "duration_ns") / 1e6, 1), largest(rows, "duration_ns", 1e6),
                      place(longest["py_stack"] or longest["user_stack"]) if longest else None])
    return sorted(lines, key=lambda l: (-l[9], l[0], l[3], int(l[4], 16), l[5] or 0))[:20]


@question
def tcp_accept(known, now):
    lines = []
    whole_minutes = since(known["ebpf_tcp_accept"], (now - HOUR) // MINUTE * MINUTE)
    for (at, host, ip, port, netns), rows in grouped(whole_minutes, lambda r: (
            minute(r["start_time"]), r["host"], r["listen_ip"], r["local_port"], r["netns"])):
        last = max(rows, key=lambda r: (r["start_time"], r["host_tid"]))
        accepted = [r for r in rows if r["kind"] == "accepted"]
        overflowed = rounded(weights(rows, "overflows"))
        lines.append([at, host, last["container_id"][:12], last["comm"], address(ip), port, netns, rounded(weights(accepted)),
                      quantile_ms(0.5, accepted), largest(accepted, "duration_ns", 1e6), max(r["queue_len"] for r in rows),
                      max(r["queue_max"] for r in rows), overflowed, rounded(weights(rows, "drops")) - overflowed,
                      rounded(weights([r for r in rows if r["kind"] == "never_accepted"]))])
    return sorted(lines, key=lambda l: (l[0], l[9] is None, -(l[9] or 0), l[1], l[5], l[6], l[4]))


@question
def tcp_connect(known, now):
    def line(key, opened, over):
        failed = [r for r in opened if r["outcome"] != "success"]
        good = [r for r in opened if r["outcome"] == "success"]
        life = weighted_quantile(0.5, [(r["duration_ns"] // 1000000, r["weight"]) for r in over])
        return [key[0], key[1][:12], key[2], address(key[3]), key[4], rounded(weights(opened)), rounded(weights(failed)),
                sorted({r["outcome"] for r in failed}), quantile_ms(0.5, good), quantile_ms(0.99, good),
                rounded(weights(opened, "total_retrans")), rounded(weights(over)),
                rounded(weights([r for r in over if r["duration_ns"] < 1e9])), None if life is None else rounded(life / 1e3, 1),
                rounded(weights(over, "bytes_sent") + weights(over, "bytes_received")) if over else None], key

    both = [dict(grouped(since(known[table], now - HOUR), lambda r: (r["host"], r["container_id"], r["comm"], r["remote_ip"], r["remote_port"])))
            for table in ("ebpf_tcp_connect", "ebpf_tcp_connect_closed")]
    lines = [line(key, *(table.get(key, []) for table in both)) for key in {**both[0], **both[1]}]
    lines.sort(key=lambda pair: (-pair[0][6], -pair[0][5], pair[0][0], pair[1][1], *pair[0][2:5]))
    return [line for line, _ in lines[:50]]


@question
def tcp_loss(known, now):
    lines = []
    for (host, container, comm, ip, port), rows in grouped(since(known["ebpf_tcp_loss"], now - HOUR), lambda r: (
            r["host"], r["container_id"], r["comm"], r["remote_ip"],
            r["local_port"] if 0 < r["local_port"] < r["remote_port"] else r["remote_port"])):
        def of(*kinds):
            return [r for r in rows if r["kind"] in kinds]

        def stalled(found):
            return rounded(weights(found, "stalled_ns") / 1e6)

        times = [stalled([r for r in of("rto", "tlp") if r["ended_by"] != "rto"]), stalled(of("syn_retransmit")),
                 stalled(of("zero_window_received")), stalled(of("zero_window_sent"))]
        lines.append(([host, container[:12], comm, address(ip), port,
                       rounded(weights(of("retransmit", "loss_recovery", "rto", "tlp"), "segments")), rounded(weights(of("rto"))), times[0],
                       largest(of("rto", "tlp"), "stalled_ns", 1e6, 0), *times[1:], rounded(weights(of("rst_sent", "rst_received"), "segments")),
                       weighted_quantile(0.5, [(r["srtt_us"], r["weight"]) for r in rows if r["srtt_us"]])], -sum(times), container))
    lines.sort(key=lambda l: (l[1], l[0][0], l[2], *l[0][2:5]))
    return [line for line, _, _ in lines[:30]]


@question
def ena(known, now):
    runs = []
    names = ["bw_in", "bw_out", "pps", "conntrack", "linklocal"]
    last = {}
    for r in sorted(since(known["ebpf_ena"], now - DAY), key=lambda r: r["start_time"]):
        for name in names:
            packets, key = r[f"{name}_allowance_exceeded"], (r["host"], r["interface"], name)
            if not packets:
                continue
            if key in last and r["start_time"] - last[key]["ended"] < 5 * SECOND:
                last[key]["ended"] = r["end_time"]
                last[key]["packets"] += packets
            else:
                last[key] = {"key": key, "began": r["start_time"], "ended": r["end_time"], "packets": packets}
                runs.append(last[key])
    return [[*run["key"], timestamp(run["began"]), timestamp(run["ended"]), run["packets"]]
            for run in sorted(runs, key=lambda run: (run["began"], run["key"])) if run["ended"] >= now - HOUR]


@question
def cpu_throttle(known, now):
    lines = []
    for (host, cgroup, cgroup_id), rows in grouped(since(known["ebpf_cpu_throttle"], now - HOUR), lambda r: (
            r["host"], r["cgroup"], r["cgroup_id"])):
        windows = [max(same, key=lambda r: r["throttled_ns"]) for _, same in grouped(rows, lambda r: r["end_time"])]
        last = max(windows, key=lambda r: r["end_time"])
        used_up, periods = sum(r["throttled_periods"] for r in windows), sum(r["periods"] for r in windows)
        lines.append(([host, cgroup, " ".join(sorted({r["container_id"][:12] for r in rows})),
                       rounded(sum(r["throttled_ns"] for r in windows) / 1e9, 3), used_up,
                       rounded(100 * used_up / periods, 1) if periods else None, rounded(last["quota_us"] / last["period_us"], 2), len(windows),
                       largest(windows, "duration_ns", 1e6)], cgroup_id))
    lines.sort(key=lambda l: (-l[0][3], l[0][0], l[0][1], l[1]))
    return [line for line, _ in lines[:20]]


def last_words(known, begin, now, of_host, more=()):
    """The last word of each process (or of the host) about each tracker."""
    words = {}
    for r in sorted(known["ebpf_probe_health"], key=lambda r: r["time"]):
        if r["time"] >= begin and (r["host_pid"] == 0) == of_host:
            words[(r["host"], r["tracker"], r["host_pid"], *(r[name] for name in more))] = r
    return words.values()


@question
def unwatched(known, now):
    refused = [r for r in last_words(known, now - DAY, now, False) if not r["live"]]
    lines = [[host, container[:12], pid, binary, version, reason, sorted(r["tracker"] for r in rows), timestamp(max(r["time"] for r in rows))]
             for (host, container, pid, binary, version, reason), rows in grouped(refused, lambda r: (
                 r["host"], r["container_id"], r["host_pid"], r["binary"], r["python_version"], r["reason"]))]
    return sorted(lines, key=lambda l: (l[0], l[2], l[5]))


@question
def coverage(known, now):
    began = now - HOUR
    reports = dict(grouped(sorted(known["ebpf_agent"], key=lambda r: r["start_time"]), lambda r: (r["host"], r["tracker"])))
    heard = {key: max(r["end_time"] for r in since(rows, now - DAY)) for key, rows in reports.items() if since(rows, now - DAY)}
    words = dict(grouped(last_words(known, now - DAY, now, True, ["binary"]), lambda r: (r["host"], r["tracker"])))
    stopped = {key: "; ".join(sorted({r["reason"] for r in said})) for key, said in words.items() if not any(r["live"] for r in said)}
    processes = dict(grouped(last_words(known, now - DAY, now, False), lambda r: (r["host"], r["tracker"])))
    lines = []
    for key in {**heard, **{key: 0 for key in stopped if key[0] in {host for host, _ in heard}}}:
        rows = [r for r in reports.get(key, []) if r["end_time"] >= began]
        gaps, covered = [], began
        for r in rows:
            if r["start_time"] >= covered + SECOND:
                gaps.append((covered, r["start_time"]))
            covered = max(covered, r["end_time"])
        if rows and now // SECOND - covered // SECOND > 60 + 2 * 10:
            gaps.append((covered, now))
        if key in stopped or not rows:
            gaps = [(began, now)]
        figures = [None] * 6
        if rows and key not in stopped:
            def total(*names):
                return sum(r[name] for r in rows for name in names)
            seconds = sum(r["end_time"] - r["start_time"] for r in rows)
            thinned = sum(r["end_time"] - r["start_time"] for r in rows if r["sampling_level"] or r["skip_shift"])
            figures = [total("seen"), total("rows"), total("lost_ring", "lost_state", "bad_event"),
                       total("dropped_memory", "dropped_spool", "dropped_corrupt", "dropped_refused", "lost_crash"), total("sampled"),
                       rounded(100 * thinned / seconds, 1)]
        state = "does not run: " + stopped[key] if key in stopped else "measured" if rows else "no agent since " + timestamp(heard[key])[:19]
        of = processes.get(key)
        lines.append([*key, state, rounded(100 * (1 - sum(b - a for a, b in gaps) / HOUR), 1),
                      ", ".join(f"{clock(a)} to {clock(b)}" for a, b in gaps), *figures,
                      sum(r["live"] for r in of) if of else None, sum(not r["live"] for r in of) if of else None])
    return sorted(lines)


# ---- of the view request_time: composition of the requests of sql_known.py ----

def requests(known, begin):
    """Requests of the window: trace, start, milliseconds waited and collecting, weight."""
    for span in known["otel_traces"]:
        if span["SpanKind"] == "Server" and span["Timestamp"] // 1000 >= begin:
            waited, collecting, weight = map(float, span["SpanAttributes"]["known"].split())
            yield {"trace": span["TraceId"], "service": span["ServiceName"], "start": span["Timestamp"] // 1000, "waited": waited,
                   "gc": collecting, "weight": weight, "total": waited + 1 + 100}


@question
def handoff(known, now):
    lines = []
    for at, rows in grouped(requests(known, (now - HOUR) // MINUTE * MINUTE), lambda r: minute(r["start"])):
        pairs = [(r["waited"], r["weight"]) for r in rows]
        lines.append([at, rows[0]["service"], "shop-1", weights(rows), weighted_quantile(0.5, pairs), weighted_quantile(0.99, pairs),
                      max(r["waited"] for r in rows), 100.0])
    return sorted(line for line in lines if line[5] > 10)


@question
def gc_victims(known, now):
    hit = sorted((r for r in requests(known, now - HOUR) if r["gc"] > 1), key=lambda r: (-r["gc"], r["trace"]))
    return [[r["trace"], r["service"], "GET /", "shop-1", "", 70, r["total"], r["gc"], rounded(100 * r["gc"] / r["total"])] for r in hit[:20]]


@question
def slowest_spans(known, now):
    slow = sorted(requests(known, now - HOUR), key=lambda r: (-r["total"], r["trace"]))
    return [[r["trace"], r["service"], "GET /", r["total"], 0.0, r["waited"], r["gc"], 100 - r["gc"], 1.0, 100.0, []] for r in slow[:20]]


@question
def slowest_requests(known, now):
    """No span of the last hour is a request's."""
    def ms(r, part):
        return None if r[f"{part}_ns"] is None else rounded(r[f"{part}_ns"] / 1e6, 1)
    slow = sorted((r for r in known["ebpf_request"] if now - HOUR <= r["start_time"] < now), key=lambda r: (-r["duration_ns"], r["request_id"]))
    return [[r["request_id"], "", r["host"], r["pid"], r["method"], r["path"], r["status"], rounded(r["duration_ns"] / 1e6, 1),
             *(ms(r, part) for part in ("accept_queue", "queue", "pool_wait", "loop_busy", "runq", "gil", "gc_sibling", "lock", "net", "cpu")),
             None, r["not_measured"]] for r in slow[:20]]
