# SPDX-License-Identifier: Apache-2.0
"""client.py PLAN ADDRESS OUT: acts as the plan's clients (a file of JSON, see plan.py). For each call a line of JSON says what the client did and
saw, and when: CLOCK_MONOTONIC in nanoseconds, as the handlers' times are (truth.py)."""
import json
import os
import select
import socket
import struct
import sys
import threading
import time

from responses import read_answer

now = time.perf_counter_ns
SECONDS, EXPECT_SECONDS, PIPELINED_SECONDS = 15, 3, 4  # patience with a server
SMALL = 100_000  # a buffer that makes a server wait, whose client does not read


def delay_ns():
    """How long the thread was ready without a CPU."""
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1])


class Connection:
    """A socket, and what was received and not yet read as an answer."""

    def __init__(self, address, small):
        unix = address.startswith("/")
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.socket.settimeout(SECONDS)
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        self.begin = now()
        self.socket.connect(address if unix else ("127.0.0.1", int(address)))
        self.connected = now()
        if not unix:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = 0 if unix else self.socket.getsockname()[1]
        self.data, self.received, self.calls = bytearray(), now(), 0

    def receive(self):
        """False at the end."""
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            return False
        self.data += data
        self.received = now()
        return bool(data)

    def facts(self, call):
        self.calls += 1
        return {"number": call["number"], "nth": self.calls, "begin": self.begin, "connected": self.connected, "port": self.port, "pauses": 0}


def head_of(call):
    number = call["number"]
    trace = [f"traceparent: 00-{number:032x}-{number:016x}-01"]
    length = ["Transfer-Encoding: chunked"] if call.get("chunked") else [f"Content-Length: {call['body']}"] if "body" in call else []
    big = [f"X-{i}: {'y' * 90}" for i in range(call.get("big_head", 0) // 100)]
    lines = [f"{call['method']} {call['path']} HTTP/1.1", "Host: test", *length, *big]
    lines[len(lines) if call.get("trace_last") else 2:0] = trace
    if not call["keep"]:
        lines.append("Connection: close")
    if call.get("expect"):
        lines.append("Expect: 100-continue")
    return "\r\n".join([*lines, "", ""]).encode()


class Call:
    """A request on a connection, one after the other."""

    def __init__(self, connection, call):
        self.connection, self.call, self.socket = connection, call, connection.socket
        self.facts = {**connection.facts(call), "delay": -delay_ns(), "bytes": 0}

    def act(self):
        """False if the connection is of no use any more."""
        self.facts["sent"] = now()
        try:
            self.send_head()
            if self.call.get("expect"):
                self.wait_for_100()
            if "body" in self.call and not self.facts.get("refused"):
                self.send_body()
        except OSError as e:
            self.facts["send_error"] = str(e)
        self.facts["sent_all"] = now()
        if "abort" in self.call:
            return self.leave()
        if "half" in self.call:
            self.close_half()
        if "read_after" in self.call:
            self.read_late()
        read_answer(self.connection, self.call, self.facts)
        self.emit()
        facts = self.facts
        return "status" in facts and not facts.get("eof") and not facts["closes"] and facts["framing"] != "close"

    def send(self, data):
        self.socket.sendall(data)
        self.facts["bytes"] += len(data)

    def send_head(self):
        rest = head_of(self.call)
        for size, ms in self.call.get("head_pieces", []):
            if len(rest) > size + 4:
                self.send(rest[:size])
                rest = rest[size:]
                time.sleep(ms / 1000)
                self.facts["pauses"] += ms
        self.send(rest)

    def wait_for_100(self):
        """The answer may be another one: then the server does not want the body."""
        connection = self.connection
        self.socket.settimeout(EXPECT_SECONDS)
        try:
            while b"\r\n\r\n" not in connection.data and connection.receive():
                pass
        except TimeoutError:
            pass  # of HTTP/1.0: sends what it has, as clients do
        self.socket.settimeout(SECONDS)
        if connection.data and b" 100 " not in connection.data[:15]:
            self.facts["refused"] = True

    def send_body(self):
        body, pauses = b"b" * self.call["body"], self.call["body_pieces"]
        step = max(1, -(-len(body) // len(pauses)))
        for i, ms in enumerate(pauses):
            piece = body[i * step:(i + 1) * step]
            if piece:
                time.sleep(ms / 1000)
                self.send(b"%x\r\n%s\r\n" % (len(piece), piece) if self.call.get("chunked") else piece)
        if self.call.get("chunked"):
            self.send(b"0\r\n\r\n")

    def leave(self):
        time.sleep(self.call["abort"] / 1000)
        if self.call["reset"]:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.facts["left"] = now()
        self.socket.close()
        self.emit()
        return False

    def close_half(self):
        time.sleep(self.call["half"] / 1000)
        self.facts["half"] = now()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has closed before

    def read_late(self):
        select.select([self.socket], [], [], SECONDS)
        self.facts["ready"] = now()
        time.sleep(self.call["read_after"] / 1000)
        self.facts["read_at"] = now()

    def emit(self):
        self.facts["delay"] += delay_ns()
        emit(self.facts)


def emit(facts):
    """A single write: threads of the client share the file."""
    os.write(OUT, (json.dumps(facts) + "\n").encode())


def send_pipelined(connection, calls):
    """All at once; then reads the answers, for as long as there are any."""
    heads, sent = [head_of(call) for call in calls], now()
    try:
        connection.socket.sendall(b"".join(heads))
    except OSError:
        pass  # the missing answers tell
    connection.socket.settimeout(PIPELINED_SECONDS)
    for call, head in zip(calls, heads):
        facts = {**connection.facts(call), "delay": 0, "sent": sent, "sent_all": sent, "bytes": len(head)}
        facts["pipelined"] = facts["nth"]
        read_answer(connection, call, facts)
        emit(facts)
        if "status" not in facts or facts.get("eof"):
            return


def play(planned):
    """A thread's connections."""
    for plan in planned:
        calls = plan["calls"]
        time.sleep(plan["start"] / 1000)
        try:
            connection = Connection(ADDRESS, small=any("read_after" in call for call in calls))
        except OSError as e:
            emit({"number": calls[0]["number"], "error": str(e)})
            continue
        with connection.socket:
            time.sleep(plan["silent"] / 1000)
            if plan.get("pipeline"):
                send_pipelined(connection, calls)
                continue
            for call in calls:
                time.sleep(call["pause"] / 1000)
                if not Call(connection, call).act():
                    break
            time.sleep(plan.get("linger", 0) / 1000)


if __name__ == "__main__":
    ADDRESS, OUT = sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(sys.argv[1]) as f:
        threads = [threading.Thread(target=play, args=[planned]) for planned in json.load(f)["threads"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
