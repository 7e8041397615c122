# SPDX-License-Identifier: Apache-2.0
"""A proxy for HTTP/1.1 between the agent and a real store. `plan(request)` decides the fate of each request."""
import gzip
import hashlib
import http.client
import socket
import ssl
import struct
import threading
import time
import urllib.parse


class Request:
    """One request of the agent as received: `number` counts all requests, inserts included."""

    def __init__(self, number, connection, head, rest):
        self.number = number
        self.connection = connection
        lines = head.decode().split("\r\n")
        self.method, self.path, _ = lines[0].split(" ", 2)
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
        self.query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        self.length = int(self.headers.get("content-length", 0))
        self.body = rest

    @property
    def table(self):
        return self.query.get("query", "").split(" ")[2] if "query" in self.query else ""

    def read(self, upto=None):
        """Reads the body, or the first `upto` bytes."""
        upto = self.length if upto is None else min(upto, self.length)
        while len(self.body) < upto:
            piece = self.connection.recv(min(65536, upto - len(self.body)))
            if not piece:
                raise ConnectionError("the agent hung up")
            self.body += piece
        return self.body


class FaultProxy:
    """plan(request) returns None to pass the request, or a function (proxy, request); True from the function keeps
    the connection. Ready-made functions follow below."""

    def __init__(self, target, plan=lambda request: None, tls=None, host="127.0.0.1", port=0):
        self.target, self.plan, self.tls = target, plan, tls
        self.requests, self.connections = [], 0
        self.sealed = {}  # token -> hash of the bytes sealed under the token
        self.failures = []
        self.lock = threading.Lock()
        self.socket = socket.create_server((host, port), backlog=64)
        self.address = self.socket.getsockname()
        self.url = f"{'https' if tls else 'http'}://{self.address[0]}:{self.address[1]}"
        self.open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """As if the machine died: no listener, and open connections are cut."""
        for s in [self.socket, *self.open]:
            try:
                s.shutdown(socket.SHUT_RDWR)  # wakes the threads waiting on the connections
            except OSError:
                pass
        self.socket.close()

    kill = close

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            self.open.add(connection)
            while self._one(connection):
                pass
        except (OSError, ValueError):
            pass  # closed by either end
        except Exception as e:  # of the test's own making: the test looks
            self.failures.append(e)
        finally:
            self.open.discard(connection)
            connection.close()

    def _one(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        with self.lock:
            request = Request(len(self.requests), connection, head, rest)
            self.requests.append(request)
        action = self.plan(request) or deliver
        return action(self, request)

    def ask_store(self, request):
        """Sends the whole request to the store: status, headers, body of the answer."""
        request.read()
        self.check_sealed(request)
        store = http.client.HTTPConnection(*self.target, timeout=60)
        try:
            headers = {k: v for k, v in request.headers.items() if k not in ("host", "connection")}
            store.request(request.method, request.path, body=request.body, headers=headers)
            answer = store.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            store.close()

    def check_sealed(self, request):
        """A token stands for the same bytes for ever."""
        token = request.query.get("insert_deduplication_token")
        if token:
            digest = hashlib.sha256(request.body).digest()
            with self.lock:
                if self.sealed.setdefault(token, digest) != digest:
                    self.failures.append(AssertionError(f"other bytes under the token {token}"))

    def inserts(self):
        return [r for r in self.requests if r.table]


def hang_up(connection):
    """RST: the peer cannot mistake the close for an orderly end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    except OSError:
        pass


def reply(request, status, headers, body):
    lines = [f"HTTP/1.1 {status} Fault"]
    lines += [f"{k}: {v}" for k, v in headers if k.lower() not in ("content-length", "transfer-encoding", "connection")]
    lines += [f"Content-Length: {len(body)}", "", ""]
    request.connection.sendall("\r\n".join(lines).encode() + body)


def deliver(proxy, request):
    try:
        status, headers, body = proxy.ask_store(request)
    except (OSError, http.client.HTTPException):
        hang_up(request.connection)  # the store went away
        return False
    reply(request, status, headers, body)
    return True


def answer(status, body="", **headers):
    """As a proxy or an overloaded server does, without asking the store."""
    def act(proxy, request):
        request.read()
        reply(request, status, [(k.replace("_", "-"), v) for k, v in headers.items()], body.encode())
        return True
    return act


def exception(code, status=500, text="made up by the test", header=True, before=""):
    headers = {"X_ClickHouse_Exception_Code": code} if header else {"X_ClickHouse_Query_Id": "q"}
    return answer(status, f"{before}Code: {code}. DB::Exception: {text}\n", **headers)


# as found in a body with a good beginning; servers since 25.11 mark exceptions
EXCEPTION = b"Code: 241. DB::Exception: made up by the test\n"
TAG = "abcdefghijklmnop"
MARKED = f"\r\n__exception__\r\n{TAG}\r\n{EXCEPTION.decode()}{len(EXCEPTION)} {TAG}\r\n__exception__\r\n".encode()
YES = "HTTP/1.1 200 OK\r\nX-ClickHouse-Query-Id: q\r\n"


def in_chunks(pieces, header="X-Made-Up: yes", trailer="", end=True):
    """200 in ClickHouse's name without asking the store, the body in chunks, with or without an end; then the connection is
    closed."""
    def act(proxy, request):
        request.read()
        request.connection.sendall(f"{YES}{header}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            request.connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(0.05)  # a packet each
        if end:
            request.connection.sendall(f"0\r\n{trailer}\r\n".encode())
        return False
    return act


def raw(rest, end=lambda connection: None):
    """200 in ClickHouse's name without asking the store, with these last headers and body; then the connection is closed."""
    def act(proxy, request):
        request.read()
        request.connection.sendall(YES.encode() + rest)
        time.sleep(0.05)
        end(request.connection)
        return False
    return act


def gzipped_exception(proxy, request):
    request.read()
    reply(request, 500, [("Content-Encoding", "gzip"), ("X-ClickHouse-Query-Id", "q")], gzip.compress(EXCEPTION))
    return True


def only_continue(proxy, request):
    request.read()
    for _ in range(60):
        request.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.1)
    return False


def endless_reply(proxy, request):
    request.read()
    request.connection.sendall(f"{YES}Transfer-Encoding: chunked\r\n\r\n".encode())
    for _ in range(1000):
        request.connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
    return False


def endless_header(proxy, request):
    request.read()
    request.connection.sendall(f"{YES}X-ClickHouse-Long: {'x' * (4 << 20)}\r\n".encode())
    return False


def reset_at(n):
    """The connection breaks when so many bytes of the body are through."""
    def act(proxy, request):
        request.read(n)
        hang_up(request.connection)
        return False
    return act


def cut_off_at(n):
    """So many bytes reach the store, then both connections break."""
    def act(proxy, request):
        request.read()
        store = socket.create_connection(proxy.target)
        head = [f"{request.method} {request.path} HTTP/1.1", "Host: store"]
        head += [f"{k}: {v}" for k, v in request.headers.items() if k != "host"]
        store.sendall("\r\n".join(head + ["", ""]).encode() + request.body[:n])
        time.sleep(0.05)
        hang_up(store)
        hang_up(request.connection)
        return False
    return act


def lose_reply(proxy, request):
    """The request is carried out, and the reply is lost."""
    proxy.ask_store(request)
    hang_up(request.connection)
    return False


def half_a_reply(proxy, request):
    status, _, _ = proxy.ask_store(request)
    request.connection.sendall(f"HTTP/1.1 {status} OK\r\nX-Click".encode())
    hang_up(request.connection)
    return False


def never_answer(proxy, request):
    proxy.ask_store(request)
    request.connection.recv(1)  # until the agent has had enough
    return False


def trickle(proxy, request):
    """A byte at a time, slowly: alive, and never done."""
    proxy.ask_store(request)
    for byte in b"HTTP/1.1 200 OK\r\nX-ClickHouse-Query-Id: q\r\nX-Slow: " + b"x" * 600:
        request.connection.sendall(bytes([byte]))
        time.sleep(0.1)
    return False


def never_read(proxy, request):
    """Half-open: takes nothing more, says nothing."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and request.connection.fileno() >= 0 and request.connection in proxy.open:
        time.sleep(0.05)
    return False


def tls_context(cert, key, client_ca=None, sni=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    if sni is not None:
        context.sni_callback = lambda _socket, name, _context: sni.append(name)
    return context
