# SPDX-License-Identifier: Apache-2.0
"""Compares each request's row with the clocks of both ends. `check(play)` says what is wrong, as Mismatches; check_parts.py has the time within the
handler. Bounds leave room for what neither clock knows: how long a thread that should run had no CPU."""
import collections
import dataclasses

import check_parts
from kinds import KINDS
from match import describe_row, in_ms, match

PARTS = ("accept_queue", "client_wait", "queue", "pool_wait", "cpu", "runq", "throttled", "gil", "gc_own", "gc_sibling", "lock", "net", "disk", "fault",
         "sleep", "pipe", "child", "other", "await", "loop_busy", "client_slow")
# parts that may be NULL, and the marks of which one then says so
NULLABLE = {"gil": {"gil"}, "gc_own": {"gc"}, "gc_sibling": {"gc"}, "accept_queue": {"accept", "arrival"}, "client_wait": {"arrival"},
            "queue": {"arrival"}}
SLACK = 2  # ms
MANY = 9  # client threads at whose time a handler asks its own server


@dataclasses.dataclass(frozen=True)
class Mismatch:
    aspect: str
    number: int  # of the request, 0 for a row of none
    text: str
    lines: tuple = ()  # (name, text) of all that is known

    @property
    def key(self):
        return self.aspect, self.number


class Comparison:
    """A request and its row."""

    def __init__(self, request):
        self.request, self.play, self.row, self.handler, self.client = request, request.play, request.rows[0], request.handler, request.client
        self.plan = request.plan or {"path": "", "method": "GET"}
        self.kind_name, self.unix, self.proxy = self.play.plan["kind"], self.play.plan["unix"], self.play.plan["proxy"]
        self.kind = KINDS[self.kind_name]
        self.client_threads = len(self.play.plan["threads"]) if request.plan else MANY
        self.marks = set(self.row["not_measured"])
        self.ms = {part: in_ms(self.row[part + "_ns"] or 0) for part in PARTS}
        self.duration = in_ms(self.row["duration_ns"])
        self.slack = SLACK + in_ms(self.client.get("delay", 0))
        self.elsewhere = "work_elsewhere" in self.marks
        self.parts_compared = False

    def wrong(self):
        """Yields (aspect, text)."""
        for compare in (self.wrong_sum, self.wrong_head, self.wrong_outcome, self.wrong_bytes, self.wrong_whole):
            yield from compare()
        handler, request = self.handler, self.request
        if not handler or request.cut or handler.get("cancelled"):
            return
        ended_early = (request.aborted or "half" in self.client) and self.play.monotonic(self.row["end_time"]) < handler["end"] - 10**6
        if not ended_early:
            yield from self.wrong_client_wait()
            yield from self.wrong_before()
            yield from check_parts.wrong(self)

    def wrong_sum(self):
        row = self.row
        for part in PARTS:
            ns = row[part + "_ns"]
            if ns is None and not NULLABLE.get(part, set()) & self.marks:
                yield "null", f"{part} is NULL, without a mark"
            if ns is not None and not 0 <= ns < 10**11:
                yield "range", f"{part} is {ns}"
        total = sum(row[part + "_ns"] or 0 for part in PARTS)
        if total != row["duration_ns"]:
            yield "sum", f"the parts are {total}, duration_ns is {row['duration_ns']}"
        if abs((row["end_time"] - row["start_time"]) * 1000 - row["duration_ns"]) > 2000:
            yield "stamps", f"duration_ns is {row['duration_ns']}, from start to end are {row['end_time'] - row['start_time']} us"
        if row["weight"] != 1:
            yield "weight", f"weight is {row['weight']}"

    def wrong_head(self):
        """A head that came with the one before it is marked `pipelined`, and has no path."""
        row, request, plan, marks = self.row, self.request, self.plan, self.marks
        if self.handler and row["pid"] != self.handler["pid"]:
            yield "pid", f"pid is {row['pid']}, not {self.handler['pid']}"
        if not request.plan:
            return
        path = plan["path"].partition("?")[0]
        behind = request.pipelined > 1 or not request.first and "pipelined" in marks
        unseen = behind and "pipelined" in marks
        if row["path"] != path and not (unseen and not row["path"]) and not ("head_split" in marks and path.startswith(row["path"])):
            yield "path", f"path is {row['path']}"
        if row["method"] != plan["method"] and not unseen:
            yield "method", f"method is {row['method']}, not {plan['method']}"
        if row["trace_id"] and row["parent_span_id"] != f"{request.number:016x}":
            yield "span", f"parent_span_id is {row['parent_span_id']}"
        if not row["trace_id"] and not marks & {"head_split", "pipelined"}:
            yield "trace", "there is no trace_id"
        if not self.proxy and row["connection_request"] != self.client.get("nth"):
            yield "connection_request", f"connection_request is {row['connection_request']}, not {self.client.get('nth')}"

    def wrong_outcome(self):
        """A proxy gives up in its own ways."""
        row, request, status = self.row, self.request, self.client.get("status")
        if request.aborted:
            if row["outcome"] not in ("client_aborted", "answered", "no_answer"):
                yield "outcome", f"outcome is {row['outcome']}"
        elif status:
            if row["status"] != status and not (self.proxy and status in (400, 499, 502, 504)):
                yield "status", f"status is {row['status']}, not {status}"
            if row["outcome"] != "answered" and not request.cut and not self.proxy:
                yield "outcome", f"outcome is {row['outcome']}"

    def wrong_bytes(self):
        row, client, plan, request = self.row, self.client, self.plan, self.request
        if self.proxy or "status" not in client or request.aborted or request.cut or client.get("refused"):
            return
        unread = "body" in plan and (not self.handler or self.handler["received"] != plan["body"])
        if row["bytes_in"] != client["bytes"] and not request.pipelined and not unread:
            yield "bytes_in", f"bytes_in is {row['bytes_in']}, not {client['bytes']}"
        if row["bytes_out"] != client["size"]:
            yield "bytes_out", f"bytes_out is {row['bytes_out']}, not {client['size']}"
        if row["end_by"] != client["framing"] and plan["method"] != "HEAD":
            yield "end_by", f"end_by is {row['end_by']}, not {client['framing']}"

    def wrong_whole(self):
        request, client, handler = self.request, self.client, self.handler
        if request.plan and "status" in client and not request.cut and not request.aborted and not self.proxy:
            low, high = self.whole_bounds()
            nagle = 40 * ("nagle" in self.marks)  # the last bytes left later than the server wrote them, or the other way round
            slack = max(self.slack, .02 * high)
            if not low - slack - (1 if self.client_threads == 1 else 4) <= self.duration <= high + slack + nagle:
                yield "whole", f"duration is {self.duration:.2f}, not {low:.2f} to {high:.2f}"
        elif request.plan and "status" in client and self.proxy and not request.cut:
            if self.duration > in_ms(client["done"] - client["begin"]) + self.slack + 2:
                yield "whole", f"duration is {self.duration:.2f}, longer than the client's"
        whole = handler and not request.aborted and not request.cut and "half" not in client and not handler.get("cancelled")
        if whole and not request.pipelined and self.duration < in_ms(handler["end"] - handler["begin"]) - 2:
            yield "whole", f"duration is {self.duration:.2f}, shorter than the handler's"

    def whole_bounds(self):
        """Of the duration, by the client's clock: from connect(), or from the first byte where the server knows no earlier moment."""
        request, client, handler = self.request, self.client, self.handler
        known_late = self.kind.defers or self.unix
        begin = client["begin"] if request.first and not known_late else client["sent"]
        high = in_ms(client["done"] - (client["begin"] if request.first else begin))
        # the server's part of a long answer ends when the kernel has it
        end = client.get("read_at") or (client["first"] if "/big-" in request.path else client["done"])
        low = 0 if request.pipelined else in_ms(end - begin)
        if handler and self.client_threads > 1:
            low = min(low, in_ms(handler["end"] - begin))  # the client may have been late to read
        if self.unix and request.first and self.row["accept_queue_ns"] is None:
            low = in_ms(client["done"] - max(client["sent"], handler["begin"])) if handler else 0
        if self.unix and "read_at" in client:
            low = min(low, in_ms(client["read_at"] - (handler["begin"] if handler else client["read_at"])))
        if "arrival" in self.marks:
            low = min(low, in_ms(client["done"] - handler["begin"]) if handler else 0)
        if "nagle" in self.marks:
            low -= 45
        if "half" in client:
            low -= in_ms(client["half"] - client["sent_all"]) + 1
        connect = in_ms(client["connected"] - client["begin"])
        if request.first and connect > 500:
            low -= connect  # the accept queue was full, and the SYN was sent again
        return low, high

    def wrong_client_wait(self):
        request, client = self.request, self.client
        if not request.plan or self.proxy or request.pipelined:
            return
        if not request.aborted and "read_at" not in client:
            most = in_ms(client["sent_all"] - (client["begin"] if request.first else client["sent"]))
            if self.ms["client_wait"] > most + self.slack:
                yield "client_wait high", f"client_wait is {self.ms['client_wait']:.2f}, not up to {most:.2f}"
            if self.client_threads == 1 and not self.unix and not self.kind.defers:
                least = client["pauses"] + (in_ms(client["sent"] - client["connected"]) if request.first else 0)
                waited = self.ms["client_wait"] + self.ms["accept_queue"]
                if waited < least - self.slack - 2:
                    yield "client_wait low", f"client_wait and accept_queue are {waited:.2f}, not {least:.2f}"

    def wrong_before(self):
        """A body is sent while the handler runs, too."""
        request, client = self.request, self.client
        if not request.plan or self.proxy or request.pipelined or "body" in self.plan:
            return
        waited = sum(self.ms[part] for part in ("accept_queue", "client_wait", "queue", "pool_wait"))
        most = in_ms(self.handler["begin"] - (client["begin"] if request.first else client["sent"]))
        if waited > most + self.slack:
            yield "before high", f"before the handler were {waited:.2f}, not up to {most:.2f}"


def check_rows_of(request):
    """(aspect, text) of what needs no clock."""
    if len(request.handlers) > 1:
        yield "handler", f"it ran {len(request.handlers)} times"
    if len(request.rows) > 1:
        yield "rows", f"there are {len(request.rows)}"
    # of requests sent at once, the server may have dropped the later ones
    if not request.rows and request.pipelined <= 1 and (request.handler or "status" in request.client):
        yield "rows", f"there is none; the handler ran {len(request.handlers)} times, the client saw {request.client.get('status')}"


def check(play):
    """(mismatches, counts)"""
    requests, rest = match(play)
    counts = collections.Counter(requests=len(requests), rows=len(play.rows), compared=0)
    mismatches = [Mismatch("row of no request", 0, "", (("row", describe_row(row)),)) for row in rest]
    for request in requests:
        wrong = list(check_rows_of(request))
        if request.rows:
            comparison = Comparison(request)
            wrong += comparison.wrong()
            counts["compared"] += comparison.parts_compared
        mismatches += [Mismatch(aspect, request.number, text, tuple(request.describe())) for aspect, text in wrong]
    return mismatches, counts
