# SPDX-License-Identifier: Apache-2.0
"""A server of one thread per connection that answers GET /NAME with exactly known writes: invalid answers followed by a close (ANSWERS), or
unusual but valid answers on a connection that continues (KEPT). On stderr: the port."""
import re
import socket
import sys
import threading
import time


def each(data):
    return [data[i:i + 1] for i in range(len(data))]


HEAD = b"HTTP/1.1 200 OK\r\n"
# name: written bytes, and the status; None: no readable status
ANSWERS = {
    "plain": ([HEAD + b"Content-Length: 5\r\n\r\nhello"], 200),
    "no_length": ([HEAD + b"\r\nhello"], 200),
    "too_short": ([HEAD + b"Content-Length: 100\r\n\r\nhello"], 200),
    "status_99999": ([b"HTTP/1.1 99999 Odd\r\nContent-Length: 2\r\n\r\nok"], None),
    "status_2": ([b"HTTP/1.1 2\r\nContent-Length: 2\r\n\r\nok"], None),
    "garbage": ([b"\0\xff" * 500], None),
    "huge_head": ([HEAD + b"X: " + b"a" * 100_000 + b"\r\nContent-Length: 2\r\n\r\nok"], 200),
    "bad_chunks": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nhello\r\n0\r\n\r\n"], 200),
    "no_last_chunk": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"], 200),
    "length_and_chunks": ([HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n"], 200),
    "negative_length": ([HEAD + b"Content-Length: -1\r\n\r\nhello"], 200),
    "endless_length": ([HEAD + b"Content-Length: 184467440737095516160\r\n\r\nhello"], 200),
    "body_by_bytes": ([HEAD + b"Content-Length: 5\r\n\r\n", *each(b"hello")], 200),
    "carriage_returns": ([b"HTTP/1.1 200 OK\rContent-Length: 2\r\rok"], 200),
    "line_feeds": ([b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"], 200),
    "escapes": ([b"HTTP/1.1 503 \x1b[2J<script>\r\nContent-Length: 2\r\n\r\nok"], 503),
    "status_600": ([b"HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nok"], 600),
    "nothing": ([], None),
    "other_version": ([b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nok"], None),
    "no_digits": ([b"HTTP/1.1 1:0 Odd\r\nContent-Length: 2\r\n\r\nok"], None),
    "status_20000": ([b"HTTP/1.1 20000 Odd\r\nContent-Length: 2\r\n\r\nok"], None),
    "cut_status": ([b"HTTP/1.1 20"], None),
    "garbage_by_bytes": (each(b"HTTP/1.1\x00200 OK\r\n"), None),
    "two_lengths": ([HEAD + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\nhello"], 200),
    "odd_length": ([HEAD + b"Content-Length: 2x\r\n\r\nhello"], 200),
    "other_coding": ([HEAD + b"Transfer-Encoding: gzip, chunked\r\nContent-Length: 2\r\n\r\n5\r\nhello\r\n0\r\n\r\n"], 200),
}
UNREADABLE = {name for name, (pieces, status) in ANSWERS.items() if pieces and not status and name != "cut_status"}

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nContent-Length: 1\r\n\r\n"
MADE = b"HTTP/1.1 201 Made\r\nContent-Length: 5\r\n\r\nhello"
CODED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LATE = b"\r\nServer: " + b"s" * 3000 + b"\r\nContent-Length: 5\r\n\r\nhello"
# name: written bytes, status, bytes of the final answer, the end; None: all bytes; a tuple in place of a list: written at once
KEPT = {
    "interim_before": ([INTERIM + MADE], 201, len(MADE), "length"),
    "interim_apart": ([INTERIM, MADE], 201, len(MADE), "length"),
    "interim_torn": ([INTERIM[:9], INTERIM[9:30], INTERIM[30:80], INTERIM[80:] + MADE[:4], MADE[4:]], 201, len(MADE), "length"),
    "interim_by_bytes": (each(INTERIM + MADE), 201, len(MADE), "length"),
    "status_999": ([b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok"], 999, None, "length"),
    "head_by_bytes": (each(MADE), 201, len(MADE), "length"),
    "head_torn": ([MADE[:10], MADE[10:30], MADE[30:36], MADE[36:]], 201, len(MADE), "length"),
    "head_large": ([b"HTTP/1.1 200 OK" + LATE], 200, 15 + len(LATE), "length"),
    "head_large_torn": ([b"HTTP/1.1 200 OK" + LATE[:2000], LATE[2000:]], 200, 15 + len(LATE), "length"),
    "vectors": ((MADE[:5], MADE[5:20], b"", MADE[20:38], MADE[38:44], MADE[44:]), 201, len(MADE), "length"),
    "many_vectors": ((MADE[:-5], *each(b"hello" * 20)), 201, len(MADE), "length"),
    "spaces": ([HEAD + b"cOnTeNt-LeNgTh:  \t5  \r\n\r\nhello"], 200, None, "length"),
    "same_lengths": ([HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"], 200, None, "length"),
    "chunks": ([CODED + b"5\r\nhello\r\n0\r\n\r\n"], 200, None, "chunked"),
    "chunks_apart": ([CODED, b"5\r\n", b"hello", b"\r\n", b"00\r\n", b"\r\n"], 200, None, "chunked"),
    "chunks_by_bytes": ([CODED, *each(b"1A;x=y\r\n" + b"z" * 26 + b"\r\n0\r\nTrailer: x\r\n\r\n")], 200, None, "chunked"),
    "chunks_like_the_last": ([CODED, b"20\r\nhello\r\n0\r\n\r\n", b"and twenty more bytes\r\n0\r\n\r\n"[-20:], b"\r\n0\r\n\r\n"], 200, None, "chunked"),
    "chunks_many": ([CODED + b"1\r\nx\r\n" * 200, b"0\r\n\r\n"], 200, None, "chunked"),
    "chunks_many_at_once": ([CODED + b"1\r\nx\r\n" * 300 + b"0\r\n\r\n"], 200, None, "chunked"),
    "chunks_thousands": ([CODED + b"1\r\nx\r\n" * 9000 + b"0\r", b"\n\r\n"], 200, None, "chunked"),
    "chunks_thousands_trailer": ([CODED + b"1\r\nx\r\n" * 9000 + b"0\r\nTrailer: x\r\n\r\n"], 200, None, "next_request"),
    "chunks_many_vectors": ((CODED, *(b"1\r\n", b"x", b"\r\n") * 300, b"0\r\n", b"\r\n"), 200, None, "chunked"),
    "chunks_vectors": ((CODED, b"5\r\n", b"hello", b"\r\n", b"0\r\n\r\n"), 200, None, "chunked"),
    "no_content": ([b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n"], 204, None, "length"),
    "at_once": ([MADE[:-5], b"hello"], 201, len(MADE), "length"),
    "held_back": ([MADE[:-5], b"hello"], 201, len(MADE), "length"),
    "not_modified": ([b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"], 304, None, "length"),
}


TUNNELS = {b"CONNECT": b"HTTP/1.1 200 Connected\r\n\r\n", b"UPGRADE": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"}


class Reader:
    def __init__(self, connection):
        self.connection, self.got = connection, b""

    def more(self):
        more = self.connection.recv(1 << 17)
        if not more:
            raise EOFError
        self.got += more

    def until(self, end):
        while end not in self.got:
            self.more()
        taken, self.got = self.got.split(end, 1)
        return taken

    def skip(self, n):
        while len(self.got) < n:
            self.more()
        self.got = self.got[n:]

    def request(self):
        """The words of a request's first line; reads the body, too."""
        head = b""
        while not head:
            head = self.until(b"\r\n\r\n").lstrip(b"\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if re.search(rb"(?i)\r\ntransfer-encoding: chunked", head):
            while size := int(self.until(b"\r\n"), 16):
                self.skip(size + 2)
            self.skip(2)
        elif length:
            self.skip(int(length[1]))
        return head.split(b"\r\n")[0].split(b" ") + [b""]


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = Reader(connection)
    while True:
        try:
            requests = [reader.request()]
            while reader.got:
                requests.append(reader.request())
        except (EOFError, ConnectionError):
            return connection.close()
        names = [path[1:].decode("latin") for _, path, *_ in requests]
        if len(names) > 1 or requests[0][0] == b"HEAD":
            answers = [b"".join(KEPT.get(name, ([MADE],))[0]) for name in names]
            connection.sendall(b"".join(answer.partition(b"hello")[0] if request[0] == b"HEAD" else answer for request, answer in zip(requests, answers)))
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, names[0] != "held_back")
        tunnel = TUNNELS.get(requests[0][0])
        pieces = [tunnel] if tunnel else (ANSWERS.get(names[0]) or KEPT.get(names[0]) or ([MADE],))[0]
        if isinstance(pieces, tuple):
            connection.sendmsg(pieces)
        else:
            for piece in pieces:
                connection.sendall(piece)
        if names[0] in ANSWERS:
            time.sleep(0.005)
            return connection.close()


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"Listening at: http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
