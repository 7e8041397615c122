# SPDX-License-Identifier: Apache-2.0
"""A server whose requests compute in two functions, as many ms of CPU time in each as the path says: /GRIND/POLISH. on_cpu_app.py
PORT"""
import http.server
import sys
import time


def spend(until):
    while time.thread_time() < until:
        pass


def grind(ms):
    spend(time.thread_time() + ms / 1000)


def polish(ms):
    spend(time.thread_time() + ms / 1000)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        grind_ms, polish_ms = map(int, self.path[1:].split("/"))
        grind(grind_ms)
        polish(polish_ms)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
