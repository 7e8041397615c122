# SPDX-License-Identifier: Apache-2.0
"""The times of a request by the clocks of both ends, and whether the row of `ebpf_request` agrees.

A known part is right within 2 ms or 2 %. In addition, a row may differ by time not excluded by the clocks of the same run: the wait of the
handler's thread for a CPU (schedstat), the client's wait for a CPU, and time measured by the client without explanation by a clock of the
handler.
"""
PARTS = ("accept_queue client_wait queue pool_wait cpu runq throttled gil gc_own gc_sibling lock net disk fault sleep pipe child other await "
         "loop_busy client_slow").split()
BEFORE = ("accept_queue", "client_wait", "queue", "pool_wait")
INSIDE = [part for part in PARTS if part not in (*BEFORE, "cpu", "runq", "gc_own", "loop_busy", "client_slow")]
NULLABLE = ("accept_queue", "client_wait", "queue", "gil", "gc_own", "gc_sibling")
# steps of the workload with a different name of the part in the row
NAMES = {"poll": "await", "gcsibling": "gc_sibling"}
# gevent turns these waits into waits of the loop
GREEN = {"sleep": "await", "net": "await"}
# the aspects of a row, in the order of the table
ASPECTS = ("one row", "sum", "head", "status", "bytes", "whole", "before", "queue", "busy", "parts", "thread", "end")
UNSURE_NS = 5_000_000  # between a client's clock and an arrival, and between a read and the handler's clock


def moment(microseconds):
    """Nanoseconds of a row's time stamp."""
    return microseconds * 1000


class Known:
    """Lengths are in milliseconds."""

    def __init__(self, call, around):
        """around: all calls of the service."""
        self.call, self.service, self.truth = call, call.service, call.truth
        self.start = call.begin if call.nth == 1 and not self.service.defers else call.sent
        self.waited = ((call.done or call.left) - self.start) / 1e6
        self.silent = (call.sent - call.connected) / 1e6 if self.start == call.begin else 0
        self.beside = [other for other in around if other is not call and other.sent and other.to == call.to
                       and other.sent < call.sent + UNSURE_NS and (other.done or other.left) > call.sent - UNSURE_NS]
        self.around = [other for other in around if other is not call and other.sent]
        truths = [other.truth for other in around if other.truth]
        self.collections = {tuple(c) for truth in truths for c in truth["collections"] if c[1]}
        if self.truth:
            self.know_inside(truths)

    def know_inside(self, truths):
        truth = self.truth
        self.begin, self.end = truth["begin"], truth["end"]
        names = {**NAMES, **(GREEN if self.service.green else {})}
        self.parts = {names.get(name, name): ns / 1e6 for name, ns in truth["parts"].items()}
        self.unsure = truth["delay"] / 1e6 + self.parts.pop("unsure", 0)
        own = [c for c in self.collections if c[2] == truth["tid"] and self.begin <= c[0] < self.end]
        self.own_gc = sum(c[3] for c in own) / 1e6, sum(c[1] - c[0] for c in own) / 1e6
        self.cpu = truth["cpu"] / 1e6 - self.own_gc[0]
        self.siblings_gc = sum(max(0, min(self.end, c[1]) - max(self.call.begin, c[0])) for c in self.collections if c not in own) / 1e6
        # further requests of an event loop's thread in the same time, or before the request
        others = [t for t in truths if t is not truth and t["tid"] == truth["tid"]]
        beside = [(t, (min(t["end"], self.end) - max(t["begin"], self.begin)) / 1e6) for t in others]
        self.meanwhile = sum(ms for _, ms in beside if ms > 0)
        self.others_busy = sum(ms for t, ms in beside if ms > 0 and not {"poll", "sleep"} & set(t["parts"]))
        ends = [t["end"] for t in others if self.call.sent < t["end"] <= self.begin]
        self.queued = (max(ends) - self.call.sent_all) / 1e6 if ends else 0
        known = sum(self.parts.values()) + self.cpu + self.own_gc[0] + self.silent + max(0, self.queued)
        self.unexplained = max(0, self.waited - known)

    def wrong(self, row):
        """Yields (aspect, error) pairs."""
        for aspect in ASPECTS[1:]:
            for text in getattr(self, "wrong_" + aspect)(row):
                yield aspect, text

    @staticmethod
    def says(row, part, low, high):
        slack = max(2, 0.02 * high)
        ms = (row[part + "_ns"] or 0) / 1e6
        if not low - slack <= ms <= high + slack:
            yield f"{part} is {ms:.3f} ms, not {low:.3f} to {high:.3f}"

    def wrong_sum(self, row):
        parts = [row[part + "_ns"] for part in PARTS]
        for part, ns in zip(PARTS, parts):
            if ns is None and part not in NULLABLE:
                yield f"{part} is NULL"
            if ns is not None and not 0 <= ns < 10**12:
                yield f"{part} is {ns}"
        if sum(ns or 0 for ns in parts) != row["duration_ns"]:
            yield f"the parts are {sum(ns or 0 for ns in parts)}, duration_ns is {row['duration_ns']}"
        length = moment(row["end_time"]) - moment(row["start_time"])
        if abs(length - row["duration_ns"]) > 2000:
            yield f"from start to end are {length}, duration_ns is {row['duration_ns']}"

    def wrong_head(self, row):
        call = self.call
        address = call.service.addresses[call.to]
        family = {"ipv6": "ipv6", "unix": "unix"}.get(call.to, "ipv4")
        wanted = {"method": call.method, "path": call.path.partition("?")[0], "trace_id": call.trace, "parent_span_id": call.span,
                  "span_id": "", "family": family, "server_port": 0 if family == "unix" else address[1]}
        if call.pauses_ms and "head_split" in row["not_measured"]:
            del wanted["trace_id"], wanted["parent_span_id"], wanted["path"]
        if call.through:
            del wanted["parent_span_id"], wanted["trace_id"]  # the key by which the row was found
        else:
            wanted["connection_request"] = call.nth
            wanted["peer_port"] = call.peer_port if family != "unix" else 0
        for column, value in wanted.items():
            if row[column] != value:
                yield f"{column} is {row[column]!r}, not {value!r}"
        if self.truth and row["pid"] != self.truth["pid"]:
            yield f"pid is {row['pid']}, not {self.truth['pid']}"

    def wrong_status(self, row):
        if not self.call.leaves and row["status"] != self.call.status:
            yield f"status is {row['status']}, not {self.call.status}"

    def wrong_bytes(self, row):
        call = self.call
        if call.through:
            return
        if row["bytes_in"] != len(call.head) + len(call.body):
            yield f"bytes_in is {row['bytes_in']}, not {len(call.head) + len(call.body)}"
        if not call.leaves and row["bytes_out"] != call.bytes_out:
            yield f"bytes_out is {row['bytes_out']}, not {call.bytes_out}"

    def wrong_whole(self, row):
        """Up to the answer's last byte, which a client may read later."""
        call, ms = self.call, row["duration_ns"] / 1e6
        if call.leaves or call.through:
            return
        low = self.waited - call.pressure_ms if not call.read_after_ms else (call.read_at - self.start) / 1e6
        high = self.waited + call.server_delay_ms
        if call.nth == 1 and row["accept_queue_ns"] is None:
            low -= (row["duration_ns"] / 1e6 < low) * ((call.sent - call.begin) / 1e6)  # begins with accept() or with the read
        slack = max(2, 0.02 * high)
        if not low - slack <= ms <= high + slack:
            yield f"duration is {ms:.3f} ms, not {low:.3f} to {high:.3f}"

    def wrong_before(self, row):
        """The wait for a thread, and for a silent client."""
        if not self.truth or self.call.through:
            return
        call, ms = self.call, {part: (row[part + "_ns"] or 0) / 1e6 for part in BEFORE}
        for part in ("client_wait", *self.service.queue):
            said = {"accept" if part == "accept_queue" else "arrival"} <= set(row["not_measured"])
            if row[part + "_ns"] is None and not (call.to == "unix" and said):
                yield f"{part} is NULL"
        most = (self.begin - self.start) / 1e6
        if call.body or call.pauses_ms:
            del ms["client_wait"]  # in the handler, too
        if sum(ms.values()) > most + 2:
            yield f"before the handler were {sum(ms.values()):.3f} ms, not {most:.3f}"
        queued = sum(ms[part] for part in self.service.queue)
        if self.queued > 5 and queued < self.queued - 2 - call.delay_ms:
            yield f"{' and '.join(self.service.queue)} is {queued:.3f} ms, not {self.queued:.3f}"
        if self.silent > 5 and not call.pauses_ms:
            # before accept, a connection waits for the server
            yield from self.says(row, "client_wait", self.silent - ms["accept_queue"] - call.delay_ms, most)

    def wrong_queue(self, row):
        """Number of unread connections on arrival."""
        depth = row["queue_depth"]
        if self.service.model == "pool" or self.call.to == "unix" or "work_elsewhere" in row["not_measured"]:
            if depth is not None:
                yield f"queue_depth is {depth}, and nobody counts these"
            return
        sure = possible = 0
        for other in self.beside:
            read = other.truth["begin"] if other.truth and not other.body and not other.pauses_ms else None
            possible += read is None or read > self.call.sent - UNSURE_NS
            sure += read is not None and read > self.call.sent + UNSURE_NS and other.sent < self.call.sent - UNSURE_NS
        if depth is None:
            if not self.call.through and "arrival" not in row["not_measured"]:
                yield f"queue_depth is NULL, not {sure}"
        elif not sure <= depth <= possible:
            yield f"queue_depth is {depth}, not {sure} to {possible}"

    def wrong_busy(self, row):
        """Threads that served other requests when this one was read, between its first byte and its handler. A pool's are not counted: a reader
        that has handed on others does not know."""
        if not self.truth:
            return
        busy, first, model = row["busy_threads"], self.call.sent, self.service.model
        at_once = [other for other in self.around if other.sent < self.begin + UNSURE_NS and (
            other.leaves or other.done > first - UNSURE_NS)]
        possible = {(other.truth["tid"] if other.truth else id(other)) for other in at_once}
        sure = {other.truth["tid"] for other in at_once if other.truth and not other.streamed and other.truth["begin"] < first - UNSURE_NS
                and other.truth["end"] > self.begin + UNSURE_NS}
        if model == "thread" and busy is None:
            yield f"busy_threads is NULL, not {len(sure)}"
        elif model == "pool" and sure and busy is not None:
            yield f"busy_threads is {busy}, and nobody counts a pool's, of which {len(sure)} were busy"
        elif model == "thread" and not len(sure - {self.truth["tid"]}) <= busy <= len(possible):
            yield f"busy_threads is {busy}, not {len(sure)} to {len(possible)}"
        elif model != "thread" and busy is not None and busy > min(1, len(possible)):
            yield f"busy_threads is {busy}, not 0 to {min(1, len(possible))}"

    def wrong_parts(self, row):
        if self.call.pauses_ms:
            # for the rest of a head; a thread also for a body's, and a loop then for anything
            loop = self.service.model == "loop" or row["link"] == "wake"
            waits = ("client_wait", "await") if loop and self.call.body else ("client_wait",)
            ms = sum(row[part + "_ns"] or 0 for part in waits) / 1e6
            if ms < self.call.pauses_ms - 2 - self.call.server_delay_ms:
                yield f"{' and '.join(waits)} is {ms:.3f} ms; the client paused for {self.call.pauses_ms}"
        if not self.truth or self.call.read_after_ms or self.call.pauses_ms:
            return
        more = self.unsure + self.unexplained
        if self.meanwhile > 5 and self.service.model == "loop":
            yield from self.wrong_shared(row)
            return
        for part in INSIDE:
            known = self.parts.get(part, 0)
            yield from self.says(row, part, known - self.unsure, known + more + (self.siblings_gc if part in ("gil", "gc_sibling") else 0))
        yield from self.says(row, "cpu", self.cpu - self.unsure, self.cpu + more)
        yield from self.says(row, "runq", self.truth["delay"] / 1e6 - self.unsure, self.truth["delay"] / 1e6 + more)
        yield from self.says(row, "gc_own", self.own_gc[0], self.own_gc[1])
        for part in ("gil", "gc_own", "gc_sibling"):
            if row[part + "_ns"] is None:
                yield f"{part} is NULL"

    def wrong_shared(self, row):
        """Concurrent requests of an event loop: the loop's work is loop_busy of each request, the rest is known."""
        busy = sum(row[part + "_ns"] or 0 for part in PARTS if part not in ("await", "accept_queue", "client_wait")) / 1e6
        least = max(self.others_busy, self.cpu) - self.unsure  # the thread has run further requests, too
        if busy < least - 2:
            yield f"the loop was busy for {busy:.3f} ms, not {least:.3f}"
        if row["loop_busy_ns"] / 1e6 < least - 2 - 0.02 * least:
            yield f"loop_busy is {row['loop_busy_ns'] / 1e6:.3f} ms, not {least:.3f}"
        if row["open_requests"] != 2:
            yield f"open_requests is {row['open_requests']}"
        await_ms = self.parts.get("await", 0)
        yield from self.says(row, "await", await_ms - self.others_busy - self.unsure, await_ms + self.unexplained)

    def wrong_thread(self, row):
        if row["model"] != self.service.model:
            yield f"model is {row['model']}, not {self.service.model}"
        if self.truth and row["tid"] != self.truth["tid"] and not self.call.streamed:
            yield f"tid is {row['tid']}, not {self.truth['tid']}"
        links = ("write", "wake") if self.service.model == "pool" else ("same",)
        if self.truth and row["link"] not in links:
            yield f"link is {row['link']}"
        if row["weight"] != 1:
            yield f"weight is {row['weight']}"

    def wrong_end(self, row):
        call = self.call
        if call.upgrade:
            wanted = {"end_by": ("upgrade",), "outcome": ("upgraded",)}
        elif call.leaves:
            # some servers do the work and write into a closed connection: no error is visible
            wanted = {"outcome": ("client_aborted", "answered") if row["status"] else ("client_aborted", "no_answer")}
        elif call.status is None:
            wanted = {"end_by": ("close",), "outcome": ("no_answer",)}
        else:
            wanted = {"end_by": (call.framing,), "outcome": ("answered",)}
        for column, values in wanted.items():
            if row[column] not in values:
                yield f"{column} is {row[column]}, not {' or '.join(values)}"
        if call.read_after_ms and self.truth:
            # the server goes on writing until no buffer has room
            slow = (call.read_at - call.answered) / 1e6
            yield from self.says(row, "client_slow", slow - call.ran / 1e6 - call.server_delay_ms, slow + self.unexplained)
