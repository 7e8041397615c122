# SPDX-License-Identifier: Apache-2.0
"""Servers under watch, each in a directory with a port or socket, and clients of exact behaviour."""
import json
import os
import re
import selectors
import signal
import socket
import ssl
import subprocess
import threading
import time

import host

PATIENCE = float(os.environ.get("UNDERSPAN_PATIENCE", 1))  # where a processor is emulated, servers start slowly

NGINX_CONF = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log stderr warn; {user}
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    upstream app {{ server {upstream}; }}
    server {{ listen {listen}; location / {{ proxy_pass http://app; proxy_read_timeout 60s; }} }}
}}
"""


class LateServer:
    """Sends a byte `ms` after each connect."""

    def __init__(self, ms):
        self.ms, self.listener = ms, socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        time.sleep(self.ms / 1000)
        with connection:
            connection.sendall(b"x")

    def kill(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Server:
    """A process that logs to stderr; the last lines are shown after a failure."""

    def __init__(self, argv, env=None, cwd=None):
        self.log = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=cwd,
                                        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
        self.pid = self.process.pid
        threading.Thread(target=self._read_log, daemon=True).start()

    def _read_log(self):
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_log(self, pattern, n=1, timeout=15):
        """The matches of the first n matching lines, as soon as present."""
        deadline = time.monotonic() + timeout * PATIENCE
        with self._changed:
            while True:
                found = [m for m in (re.search(pattern, line) for line in self.log) if m]
                if len(found) >= n:
                    return found[:n]
                left = deadline - time.monotonic()
                assert left > 0 and self.process.poll() is None, "\n".join(self.log[-30:])
                self._changed.wait(min(left, 0.2))

    def kill(self):
        """Unshare dies only of SIGKILL, and takes the child along; a master of workers needs a request."""
        if self.process.poll() is None and self.process.args[0] != "unshare":
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Gunicorn(Server):
    """gthread with the truth of workloads/handoff_truth.py. `bind` "127.0.0.1:0" lets the kernel choose the port."""

    def __init__(self, python, generation, directory, *options, bind="127.0.0.1:0", worker_class="gthread", threads=2,
                 workers=1, prefix=()):
        self.private_epoll = generation.version >= 24  # each worker thread waits for the first byte
        self.truth_path = os.path.join(directory, "truth.jsonl")
        argv = [*prefix, python.path, "-m", "gunicorn", "--bind", bind, "--worker-class", worker_class,
                "--workers", str(workers), "--graceful-timeout", "5", *options]
        if generation.version >= 25:
            argv.append("--no-control-socket")  # the socket would be shared by all gunicorns of a user
        if worker_class == "gthread":
            argv += ["--threads", str(threads), "-c", os.path.join(host.WORKLOADS, "handoff_truth.py")]
        argv.append("handoff_truth:app")
        paths = [p for p in (host.WORKLOADS, generation.path) if p]
        super().__init__(argv, cwd=directory, env={"PYTHONPATH": ":".join(paths), "HANDOFF_TRUTH": self.truth_path})
        where = self.wait_log(r"Listening at: (\S+)")[0].group(1)
        if where.startswith("unix:"):
            self.address = where[len("unix:"):]
        else:
            name, port = re.match(r"https?://\[?([^\]]*)\]?:(\d+)$", where).groups()
            self.address = (name, int(port))
        self.wait_log(r"Booting worker with pid: (\d+)", workers)

    @property
    def worker_pids(self):
        """Pids as printed by gunicorn: in a PID namespace, the pids of the namespace."""
        return [int(m.group(1)) for m in (re.search(r"Booting worker with pid: (\d+)", l) for l in self.log) if m]

    def stop(self):
        """SIGQUIT: at once; SIGTERM would wait for the poller's second."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(15)

    def truth(self):
        """All lines except a line under construction: readers see the file page by page."""
        with open(self.truth_path) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def wait_covered(self, agent):
        """Sends requests until the pickup of a request by each present worker is a row."""
        asked = []
        for pid in list(self.worker_pids):
            def covered():
                get(self.address)
                asked.append(pid)
                return agent.select("ebpf_handoff", lambda r: r["host_pid"] == pid)
            host.wait_until(covered, 10, f"a hand-off row of worker {pid}: {agent.stderr}")
        # a pickup is written down after the answer; the counted part must not begin before
        host.wait_until(lambda: len(self.truth()) == len(asked), 10, "the truth is complete")
        return self


class Nginx(Server):
    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(15)

    def __init__(self, directory, upstream):
        port = free_port()
        conf = os.path.join(directory, "nginx.conf")
        with open(conf, "w") as f:
            f.write(NGINX_CONF.format(dir=directory, upstream=upstream, listen=f"127.0.0.1:{port}",
                                      user="user root;" if os.geteuid() == 0 else ""))
        super().__init__(["/usr/sbin/nginx", "-e", "stderr", "-c", conf, "-p", str(directory)])
        self.address = ("127.0.0.1", port)

        def up():
            assert self.process.poll() is None, "\n".join(self.log)
            try:
                socket.create_connection(self.address).close()
                return True
            except OSError:
                return False
        host.wait_until(up, 10, "nginx listens")


def free_port():
    """nginx and several servers cannot listen on port 0; the kernel provides a port just before."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def connect(address, tls=False, timeout=30):
    if isinstance(address, str):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout)
        s.connect(address)
    else:
        s = socket.create_connection(address, timeout=timeout)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        s = context.wrap_socket(s)
    return s


def request(path="/", keepalive=False):
    return (f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: {'keep-alive' if keepalive else 'close'}\r\n"
            "\r\n").encode()


def read_response(s):
    """The JSON body of one response; None after a close without a response."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(re.search(rb"content-length: *(\d+)", head, re.I).group(1))
    while len(body) < length:
        more = s.recv(65536)
        assert more, "the response was cut off"
        body += more
    return json.loads(body)


def get(address, path="/", tls=False):
    """One request on a new connection; returns (body, the connection's local port)."""
    with connect(address, tls) as s:
        port = s.getsockname()[1] if isinstance(address, tuple) else 0
        s.sendall(request(path))
        return read_response(s), port


def get_at_once(address, path, n, timeout=60):
    """n concurrent requests on n connections; returns the local ports. Each must be answered."""
    selector = selectors.DefaultSelector()
    data = request(path)
    ports, answered, deadline = [], 0, time.monotonic() + timeout
    for _ in range(n):
        s = connect(address)
        s.sendall(data)
        s.setblocking(False)
        ports.append(s.getsockname()[1] if isinstance(address, tuple) else 0)
        selector.register(s, selectors.EVENT_READ, bytearray())
    while selector.get_map():
        assert time.monotonic() < deadline, f"{answered} of {n} answered"
        for key, _ in selector.select(1):
            data = key.fileobj.recv(65536)
            key.data.extend(data)
            if not data:
                assert key.data.startswith(b"HTTP/1.1 200"), bytes(key.data[:200])
                answered += 1
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return ports
