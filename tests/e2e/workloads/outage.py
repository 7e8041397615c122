# SPDX-License-Identifier: Apache-2.0
"""Events with known times (requests to a server in the program, sleeps), beside threads that hand two locks back and forth
as fast as possible until a word comes. A further word ends the program, which then reports all times."""
import http.client
import http.server
import os
import sys
import threading
import time

from workload import listen, now, tell, warm_up

STORM_PAIRS = 2
storm, running = True, True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


def pair():
    here, there = threading.Lock(), threading.Lock()
    here.acquire(), there.acquire()

    def answer():
        while True:
            there.acquire()
            here.release()

    def ask():
        while storm:
            there.release()
            here.acquire()

    threading.Thread(target=answer, daemon=True).start()
    threading.Thread(target=ask, daemon=True).start()


def request_all(port, times):
    while running:
        begin = now()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"ok"
        times.append((begin, now()))
        connection.close()
        time.sleep(0.02)


def sleep_all(times):
    times.append(threading.get_native_id())
    while running:
        begin = now()
        time.sleep(0.3)
        times.append((begin, now()))


def main():
    global storm, running
    if not warm_up():
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    requests, sleeps = [], []
    others = [threading.Thread(target=request_all, args=[server.server_address[1], requests]),
              threading.Thread(target=sleep_all, args=[sleeps])]
    for thread in others:
        thread.start()
    for _ in range(STORM_PAIRS):
        pair()
    listen()
    storm = False
    listen()
    running = False
    for thread in others:
        thread.join()
    tell(requests=requests, sleeps=sleeps[1:], sleeper=sleeps[0])
    listen()
    sys.stdout.flush()
    os._exit(0)


main()
