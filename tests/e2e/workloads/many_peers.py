# SPDX-License-Identifier: Apache-2.0
"""An HTTP server whose handler waits for services: /PORT/PORT/... connects to each in turn and reads a byte. The answer is JSON: the nanoseconds
of each port, all its waits together."""
import collections
import http.server
import json
import socket
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        waited = collections.Counter()
        for port in map(int, self.path.strip("/").split("/")):
            with socket.create_connection(("127.0.0.1", port)) as s:
                begin = time.monotonic_ns()
                s.recv(1)
                waited[port] += time.monotonic_ns() - begin
        body = json.dumps(waited).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"running on http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
server.serve_forever()
