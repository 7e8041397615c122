# SPDX-License-Identifier: Apache-2.0
"""A server behind a load balancer: reads a head of the PROXY protocol, of version 1 or 2, before the first request. On stderr: the port."""
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        first = self.rfile.read(12)
        if first == b"\r\n\r\n\0\r\nQUIT\n":
            self.rfile.read(int.from_bytes(self.rfile.read(4)[2:], "big"))
        elif first:
            self.rfile.readline()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"Listening at: http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()
