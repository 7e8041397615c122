# SPDX-License-Identifier: Apache-2.0
"""Reads an answer of HTTP/1 from a connection of client.py, and notes what it is: status, framing (length, chunked, close), size, whether
the server closes; first and done, when its head and its last byte came; eof, timeout or error, if it is not complete."""
import re
import time

now = time.perf_counter_ns
BLANK = b"\r\n\r\n"
HEADER = re.compile(rb"^([\w-]+): *(.*?) *\r$", re.M)


def read_answer(connection, call, facts):
    try:
        if read_head(connection, call, facts):
            end = body_end(connection, call, facts)
            facts["size"] = min(end, len(connection.data))
            del connection.data[:end]
            facts["done"] = connection.received
            return
    except TimeoutError:
        facts["timeout"] = True
    except OSError as e:
        facts["error"] = str(e)
    facts["done"] = now()


def read_head(connection, call, facts):
    """False if there is none. Interim answers (100 Continue) are left out."""
    data = connection.data
    while True:
        while BLANK not in data:
            if not connection.receive():
                facts["eof"] = True
                return False
        facts.setdefault("first", connection.received)
        if not data.startswith(b"HTTP/1.1 100"):
            break
        del data[:data.index(BLANK) + len(BLANK)]
    head = bytes(data[:data.index(BLANK)])
    headers = {name.lower(): value.lower() for name, value in HEADER.findall(head + b"\r\n")}
    facts["head"], facts["status"] = len(head) + len(BLANK), int(head.split()[1])
    facts["length"] = int(headers.get(b"content-length", 0))
    facts["framing"] = "chunked" if b"chunked" in headers.get(b"transfer-encoding", b"") else \
        "length" if b"content-length" in headers or call["method"] == "HEAD" else "close"
    said = headers.get(b"connection", b"")
    facts["closes"] = said == b"close" or head.startswith(b"HTTP/1.0") and said != b"keep-alive"
    return True


def fill(connection, size, facts):
    while len(connection.data) < size:
        if not connection.receive():
            facts["eof"] = True
            return False
    return True


def body_end(connection, call, facts):
    """Where it is in the connection's data."""
    begin = facts["head"]
    if call["method"] == "HEAD":
        return begin
    if facts["framing"] == "length":
        fill(connection, begin + facts["length"], facts)
        return begin + facts["length"]
    if facts["framing"] == "close":
        while connection.receive():
            pass
        return len(connection.data)
    return chunks_end(connection, begin, facts)


def chunks_end(connection, at, facts):
    while True:
        line_end = connection.data.find(b"\r\n", at)
        if line_end < 0:
            if not connection.receive():
                facts["eof"] = True
                return len(connection.data)
            continue
        size = int(connection.data[at:line_end], 16)
        at = line_end + 2 + size + 2
        if not fill(connection, at, facts) or not size:
            return at
