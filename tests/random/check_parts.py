# SPDX-License-Identifier: Apache-2.0
"""Compares the parts of a row with the handler's own clock: `wrong(comparison)` of check.py's Comparison yields (aspect, text).

Where a handler has its thread for itself (`wrong_own`), each of its steps says how long it waited at least, and of what kind the rest may be.
Requests that share an event loop (`wrong_shared`) are compared by the loop's busy time. Of work that a loop gave to a pool (`wrong_linked`) the row
has at least what the pool's thread waited for.
"""
import collections

from match import in_ms

# parts that the waits of a step may have
ALLOWED = {
    "sleep": ["sleep"], "usleep": ["sleep"], "poll": ["sleep", "other"], "select": ["other", "net"], "epoll": ["other"],
    "net": ["net"], "net_unix": ["net"], "net_timeout": ["net"], "net_kept": ["net"], "own_server": ["net"],
    "lock": ["lock"], "queue": ["lock"], "event": ["lock"], "share": ["lock"], "thread": ["lock"], "thread_cpu": ["lock"],
    "gil": ["sleep", "lock"], "gc_sibling": ["sleep", "lock", "gc_sibling"],
    "disk": ["disk", "other"], "flock": ["other", "lock", "disk"],
    "child": ["child", "pipe"], "child_output": ["pipe", "child", "other"], "pipe": ["pipe", "lock"],
    "body": ["client_wait"],
}
WAITS = ("lock", "net", "disk", "sleep", "pipe", "child", "other", "await")
BUSY = ("loop_busy", "cpu", "runq", "gil", "gc_own", "gc_sibling", "lock", "net", "disk", "sleep", "pipe", "child", "other", "fault", "client_slow",
        "pool_wait")
USES_A_THREAD = ("pool:", "gather_pool", "thread", "lock", "queue")
AWAITS_OF_GEVENT = ("sleep", "net", "net_unix", "net_timeout", "body")
BUSY_OF_GEVENT = ("cpu", "hash", "gc", "disk", "usleep")
# documented in deploy/README.md: a client that does not take a long answer is await_ns, or is not client_slow_ns
LONG_ANSWER_IS_AWAIT = ("twisted", "daphne", "daphne-django", "daphne-django-sync")
LONG_ANSWER_IS_NOT_SLOW = (*LONG_ANSWER_IS_AWAIT, "waitress")
BESIDE_NS = 3_000_000


def total(intervals):
    """The length of what they cover."""
    covered, end = 0, -1
    for begin, until in sorted(intervals):
        if until > end:
            covered += until - max(begin, end)
            end = until
    return covered


def wrong(of):
    """By who runs the handler, by what is known of it."""
    row, handler, kind, request = of.row, of.handler, of.kind, of.request
    if request.pipelined > 1:
        if not of.elsewhere and any(s["name"].startswith("pool:") for s in handler["segments"]):
            yield "unmarked", "pipelined, used a pool, and there is no work_elsewhere"
        return
    same = row["tid"] == handler["tid"]
    if kind.model == "thread":
        if row["model"] != "thread":
            yield "model", f"model is {row['model']}"
        if of.elsewhere:
            yield "marked", "work_elsewhere, and there was none"
    if kind.model in ("thread", "pool") and not same and not of.elsewhere:
        yield "tid", f"tid is {row['tid']}, not {handler['tid']}"
    if kind.model == "loop":
        yield from wrong_loop(of, same)
    elif same and not (kind.model == "pool" and of.elsewhere) and not request.pipelined:
        yield from wrong_own(of)


def wrong_loop(of, same):
    handler, request, segments = of.handler, of.request, of.handler["segments"]
    own_thread_only = of.kind.app != "django_async" and not any(s["name"].startswith(USES_A_THREAD) for s in segments)
    if of.row["model"] == "pool" and own_thread_only:
        yield "model", "model is pool"
    if not same:
        yield from wrong_thread(of)
        return
    if not of.elsewhere and any("inner" in s and s["inner"]["tid"] != handler["tid"] for s in segments):
        yield "unmarked", "used a pool, and there is no work_elsewhere"
    if request.pipelined:
        return
    if others_on_the_loop(of) or of.row["open_requests"] > 1:
        yield from wrong_shared(of)
    else:
        yield from wrong_own(of)


def others_on_the_loop(of):
    handler, client = of.handler, of.client
    begin = client.get("sent") or handler["begin"]
    end = max(client.get("done") or client.get("left") or 0, handler["end"])
    return any(other["begin"] < end + BESIDE_NS and other["end"] > begin - BESIDE_NS for other in of.play.handlers_of_thread(handler["tid"])
               if other is not handler)


def wrong_thread(of):
    """The row is about another thread than the loop's: the one of the pool that did a part, or Django's, which has run all."""
    if of.elsewhere:
        return
    segments = of.handler["segments"]
    elsewhere = [s for s in segments if "inner" in s or s.get("elsewhere")]
    if of.kind.app == "django_async" and not elsewhere:
        for segment in segments:
            for part, ns in segment["least"].items():
                least = in_ms(ns)
                if "|" not in part and of.ms[part] + of.ms["loop_busy"] < least - of.slack - in_ms(segment["delay"]):
                    yield "low " + part, f"{part} is {of.ms[part]:.2f}, not {least:.2f}"
    elif not any("inner" not in s or s["inner"]["tid"] == of.row["tid"] for s in elsewhere):
        yield "tid", f"tid is {of.row['tid']}, not {of.handler['tid']}"
    else:
        yield from wrong_linked(of, elsewhere)


def wrong_linked(of, elsewhere):
    of.parts_compared = True
    for inner in (s["inner"] for s in elsewhere if "inner" in s):
        for part, ns in inner["least"].items():
            least = in_ms(ns)
            if "|" not in part and of.ms[part] < least - of.slack - in_ms(inner["delay"]) - .02 * least:
                yield "low " + part, f"{part} is {of.ms[part]:.2f}, the pool's thread had {least:.2f}"


def wrong_shared(of):
    """What blocks the loop is busy time of all its requests; only the rest is awaited."""
    of.parts_compared = True
    begin, end = of.handler["begin"], of.handler["end"]

    def blocks(segment):
        return segment["name"] in BUSY_OF_GEVENT if of.kind.gevent else not segment.get("awaits")
    busy = in_ms(total((max(s["begin"], begin), min(s["end"], end)) for handler in of.play.handlers_of_thread(of.handler["tid"])
                       for s in handler["segments"] if blocks(s) and s["end"] > begin and s["begin"] < end))
    if not of.elsewhere and of.ms["await"] > of.duration - busy + of.slack + 1:
        yield "high await", f"await is {of.ms['await']:.2f}; the loop was busy for {busy:.2f} of {of.duration:.2f}"
    said = sum(of.ms[part] for part in BUSY)
    if said < busy - of.slack - 1 - .02 * busy:
        yield "low loop_busy", f"the loop was busy for {busy:.2f}, not {said:.2f}"


class Bounds:
    """Of each part, in ms, by the handler's segments.

    low: {part: at least}; any_of: [(parts, at least in all)]; high: {part: at most}; rest: waits of no known kind, as for the GIL."""

    def __init__(self, of):
        handler, segments = of.handler, of.handler["segments"]
        self.crowd = of.client_threads > 1
        self.low, self.high, self.any_of, self.rest = collections.Counter(), collections.Counter(), [], 0
        for segment in segments:
            wall, cpu, delay = in_ms(segment["end"] - segment["begin"]), in_ms(segment["cpu"]), in_ms(segment["delay"])
            wait = max(0, wall - cpu - delay)
            if segment.get("awaits") or of.kind.gevent and segment["name"] in AWAITS_OF_GEVENT:
                self.add_await(segment, wait)
            else:
                self.add_blocking(segment, wait)
        self.wall, self.cpu, self.delay = in_ms(handler["end"] - handler["begin"]), in_ms(handler["cpu"]), in_ms(handler["delay"])
        # between the segments
        self.rest += max(0, self.wall - self.cpu - sum(in_ms(s["end"] - s["begin"] - s["cpu"]) for s in segments))
        self.segments_cpu = sum(in_ms(s["cpu"]) for s in segments if not s.get("awaits"))
        self.outside = self.outside_of_handler(of, segments)
        self.add_collections(handler)

    def add_await(self, segment, wait):
        """Of gevent any wait is one."""
        least = in_ms(segment["least"].get("await", 0) if segment.get("awaits") else sum(segment["least"].values()))
        self.low["await"] += least
        self.high["await"] += wait
        if segment["name"] == "async_child":
            self.high["pipe"] += wait  # the child's exec() is told by a pipe
        self.rest += max(0, wait - least)

    def add_blocking(self, segment, wait):
        name, known = segment["name"], 0
        for part, ns in segment["least"].items():
            if part == "cpu" or part == "child" and self.crowd:
                continue
            known += in_ms(ns)
            if "|" in part:
                self.any_of.append((part.split("|"), in_ms(ns)))
            else:
                self.low[part] += in_ms(ns)
        for part in ALLOWED.get(name, []):
            self.high[part] += wait
        self.rest += wait if name in ("thread_cpu", "own_server") else max(0, wait - known)
        if name == "disk" and self.crowd:
            self.rest += known

    def outside_of_handler(self, of, segments):
        """The server's own work around it."""
        before = sum(of.ms[part] for part in ("accept_queue", "queue", "pool_wait"))
        if not any(s["name"] == "body" for s in segments):
            before += of.ms["client_wait"]
        return max(0, of.duration - self.wall - before)

    def add_collections(self, handler):
        begin, end = handler["begin"], handler["end"]
        own, siblings = [], []
        for started, ended, tid in handler["collections"]:
            if tid != handler["tid"]:
                siblings.append(max(0, min(ended or end, end) - max(started, begin)))
            elif ended and started >= begin:
                own.append(ended - started)
        self.own_gc, self.siblings_gc = in_ms(sum(own)), in_ms(sum(siblings))


def wrong_own(of):
    of.parts_compared = True
    bounds = Bounds(of)
    for compare in (wrong_low, wrong_high, wrong_cpu, wrong_interpreter, wrong_slow):
        yield from compare(of, bounds)


def wrong_low(of, bounds):
    """A sibling's collection may end what a lock or a pipe would have waited for."""
    for part, least in bounds.low.items():
        if part == "gil" and "gil" in of.marks:
            continue
        said, low = of.ms[part], least
        if part == "gil":
            said += of.ms["gc_sibling"]
        if part == "disk":
            low *= 0 if bounds.crowd else .6
        if part in ("lock", "pipe"):
            low -= bounds.siblings_gc
        if said < low - max(2, .02 * least) - .2 * bounds.delay - .5:
            yield "low " + part, f"{part} is {said:.2f}, not {least:.2f}"
    for parts, least in bounds.any_of:
        said = sum(of.ms[part] for part in parts)
        if said < least - max(2, .02 * least) - .2 * bounds.delay - .5:
            yield "low " + "|".join(parts), f"{' and '.join(parts)} are {said:.2f}, not {least:.2f}"


def wrong_high(of, bounds):
    for part in WAITS:
        high = bounds.high[part]
        if part == "await" and any(s["name"] == "body" for s in of.handler["segments"]):
            continue  # the client's time to send it
        long_answer = of.kind_name in LONG_ANSWER_IS_AWAIT and "/big-" in of.request.path
        if part == "await" and (of.kind.model == "loop" or long_answer) or part == "other" and of.elsewhere:
            high += bounds.outside
        slack = max(2, .02 * high) + .2 * bounds.delay
        # a wait of the server, outside of the handler, is short
        if of.ms[part] > high + slack and (of.ms[part] > high + bounds.outside + slack or of.ms[part] - high > 4):
            yield "high " + part, f"{part} is {of.ms[part]:.2f}, not up to {high:.2f} ({bounds.outside:.2f} are outside of the handler)"


def wrong_cpu(of, bounds):
    cpu, outside = of.ms["cpu"], bounds.outside
    least = min(bounds.cpu - bounds.own_gc, bounds.segments_cpu)
    if cpu < least - max(2, .02 * bounds.segments_cpu) - bounds.own_gc - .03 * of.duration:
        yield "low cpu", f"cpu is {cpu:.2f}, not {least:.2f}"
    known = sum(bounds.low.values()) + sum(ms for _, ms in bounds.any_of)
    # a hypervisor may run another guest while the kernel counts CPU time of this one
    unknown = max(0, bounds.wall - bounds.cpu - bounds.delay - known)
    if cpu > bounds.cpu + unknown + outside + 2 + .02 * cpu:
        yield "high cpu", f"cpu is {cpu:.2f}, not up to {bounds.cpu:.2f} and {unknown:.2f} and {outside:.2f}"
    runq = of.ms["runq"] + of.ms["throttled"]
    if runq > bounds.delay + outside + 3 + in_ms(of.client.get("delay", 0)):
        yield "high runq", f"runq is {runq:.2f}, not up to {bounds.delay:.2f} and {outside:.2f}"


def wrong_interpreter(of, bounds):
    outside, own, siblings = bounds.outside, bounds.own_gc, bounds.siblings_gc
    if "gc" not in of.marks:
        if own > 4 and of.ms["gc_own"] < .5 * own - 2 - bounds.delay:
            yield "low gc_own", f"gc_own is {of.ms['gc_own']:.2f}, not {own:.2f}"
        if of.ms["gc_own"] > own + outside + 2:
            yield "high gc_own", f"gc_own is {of.ms['gc_own']:.2f}, not up to {own:.2f} and {outside:.2f}"
        if of.ms["gc_sibling"] > siblings + outside + 2:
            yield "high gc_sibling", f"gc_sibling is {of.ms['gc_sibling']:.2f}, not up to {siblings:.2f} and {outside:.2f}"
    most = bounds.rest + bounds.low["gil"]
    if of.handler["segments"] and of.ms["gil"] > most + outside + 2:
        yield "high gil", f"gil is {of.ms['gil']:.2f}, not up to {most:.2f} and {outside:.2f}"


def wrong_slow(of, bounds):
    """The client that reads late, and no other."""
    long_answer = "/big-" in of.request.path or "/stream-" in of.request.path
    if of.ms["client_slow"] > 2 + bounds.outside * long_answer:
        yield "high client_slow", f"client_slow is {of.ms['client_slow']:.2f}"
    if "read_at" in of.client and of.kind_name not in LONG_ANSWER_IS_NOT_SLOW and not of.proxy:
        least = in_ms(of.client["read_at"] - of.client["ready"])
        if of.ms["client_slow"] < least - 20:
            yield "low client_slow", f"client_slow is {of.ms['client_slow']:.2f}, not {least:.2f}"
