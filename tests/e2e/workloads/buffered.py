# SPDX-License-Identifier: Apache-2.0
"""The standard library's server, which reads 8 KB at a time and answers what it has before it reads on. On stderr: the port."""
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"Listening at: http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
