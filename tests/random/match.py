# SPDX-License-Identifier: Apache-2.0
"""Finds the rows of each request of a play: by its trace id; a row that has none, as its head was not seen as a whole, by path, or by connection
and time. A `Request` has all that is known of one: what was planned, what client and handler measured, and the row."""
import collections

# columns of a row, beside its parts, that a report shows
SHOWN = ("path", "status", "bytes_in", "bytes_out", "tid", "model", "link", "end_by", "outcome", "open_requests", "busy_threads", "queue_depth",
         "connection_request", "not_measured")
STAMPS = ("connected", "sent", "sent_all", "first", "done", "left", "half", "ready", "read_at")
NEAR_NS, LEAVES_NS = 10_000_000, 1_000_000_000  # stamps of two clocks; the row of a client that left may end so much later


def in_ms(ns):
    return ns / 1e6


class Request:
    def __init__(self, play, number):
        self.play, self.number = play, number
        self.plan, self.connection = play.planned.get(number, (None, None))  # None: a handler's request to its own server
        self.client = play.clients.get(number, {})
        self.handlers = play.handlers.get(number, [])
        self.handler = self.handlers[0] if self.handlers else None
        self.rows = []

    @property
    def path(self):
        return self.plan["path"] if self.plan else ""

    @property
    def first(self):
        """The first of its connection."""
        return self.client.get("nth", 1) == 1

    @property
    def pipelined(self):
        """Its number among the requests that were sent at once; 0 if it was sent alone, or by a proxy, which does so."""
        return 0 if self.play.plan["proxy"] else self.client.get("pipelined", 0)

    @property
    def aborted(self):
        return "left" in self.client

    @property
    def cut(self):
        """The client did not see the end of the answer, or could not send all."""
        return any(self.client.get(name) for name in ("eof", "timeout", "error", "send_error"))

    def may_have(self, row):
        """A row without a trace id."""
        client, begin, end = self.client, self.play.monotonic(row["start_time"]), self.play.monotonic(row["end_time"])
        if row["path"].startswith(f"/{self.number}/"):
            return True
        done = client.get("done", client.get("left", 0) + LEAVES_NS)
        if self.handler:
            done = max(done, self.handler["end"])  # the client had given up
        if self.play.plan["unix"] and self.pipelined > 1:  # no port
            return "pipelined" in row["not_measured"] and row["connection_request"] == client["nth"] and abs(end - done) < NEAR_NS and \
                client["sent"] - NEAR_NS <= begin <= done
        if not client.get("port") or row["peer_port"] != client["port"] or row["path"].startswith(f"/{self.play.plan['seed']}"):
            return False
        return client["begin"] - NEAR_NS <= begin and end <= done + NEAR_NS and (
            begin >= client["sent"] - NEAR_NS or self.first or self.pipelined)

    def distance_of(self, row):
        """Of several requests that were sent at once over unix sockets, which have no port, rows may be of one or of another."""
        return abs(self.play.monotonic(row["end_time"]) - self.client.get("done", self.client["sent"]))

    def describe(self):
        """The row and both clocks, in milliseconds since the client's connect()."""
        zero = self.client.get("begin") or (self.handler["begin"] if self.handler else 0)
        yield "plan", str({**(self.plan or {}), "connection": {k: v for k, v in (self.connection or {}).items() if k != "calls"}})
        for row in self.rows:
            yield "row", describe_row(row)
        if "sent" in self.client:
            yield "client", str({name: round(in_ms(value - zero), 2) if name in STAMPS else value for name, value in self.client.items()
                                 if name not in ("number", "begin")})
        for handler in self.handlers:
            yield "handler", describe_handler(handler, zero)


def describe_row(row):
    parts = {column[:-len("_ns")]: round(in_ms(ns), 2) for column, ns in row.items() if column.endswith("_ns") and ns}
    return f"{parts} {({column: row[column] for column in SHOWN})}"


def describe_handler(handler, zero):
    segments = (f"{s['name']} {in_ms(s['end'] - s['begin']):.1f} (CPU {in_ms(s['cpu']):.1f}, ready {in_ms(s['delay']):.1f})" for s in handler["segments"])
    return (f"{in_ms(handler['begin'] - zero):.2f} to {in_ms(handler['end'] - zero):.2f}, CPU {in_ms(handler['cpu']):.2f}, ready "
            f"{in_ms(handler['delay']):.2f}, tid {handler['tid']}{', cancelled' if handler.get('cancelled') else ''}: {', '.join(segments)}")


def match(play):
    """(requests, rows of no request)"""
    requests = {number: Request(play, number) for number in sorted({*play.clients, *play.handlers})}
    rows = collections.defaultdict(list)
    for row in play.rows:
        number = int(row["trace_id"] or "0", 16)
        rows[number if number in requests else None].append(row)
    rest = rows.pop(None, [])
    for number, request in requests.items():
        request.rows = rows[number]
        if not request.rows and "sent" in request.client:
            request.rows = sorted(filter(request.may_have, rest), key=request.distance_of)[:1]
            rest = [row for row in rest if row not in request.rows]
    return list(requests.values()), rest
