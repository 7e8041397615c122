# SPDX-License-Identifier: Apache-2.0
"""Runs in a clean root: exactly the commands of deploy/README.md's first answer, about an own gunicorn and an own uvicorn that were
started before. Prints the number of commands and the time. quick_start.py README"""
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

WSGI = """
import time
def app(environ, start_response):
    time.sleep(0.15 if environ["PATH_INFO"] == "/orders" else 0)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
ASGI = """
import asyncio
async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only HTTP here")
    await asyncio.sleep(0.15 if scope["path"] == "/basket" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
SERVICES = {18801: ["gunicorn", "-b", "127.0.0.1:18801", "shop:app"], 18802: [sys.executable, "-m", "uvicorn", "--port", "18802", "basket:app"]}
PATHS = {18801: "/orders", 18802: "/basket"}


def commands(readme):
    """The first block of that section, without comments: [(command, is it in the background?)]."""
    with open(readme) as f:
        block = f.read().split("## A first answer about your own service")[1].split("```sh\n")[1].split("```")[0]
    lines = [line.split("#")[0].strip() for line in block.splitlines()]
    return [(line.rstrip("& "), line.endswith("&")) for line in lines if line]


class Shell:
    """One bash for all commands: variables and background jobs stay."""

    def __init__(self):
        self.process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        cwd="/tmp", start_new_session=True)
        self.lines = []
        self.came = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.came:
                self.lines.append(line.rstrip("\n"))
                self.came.notify_all()

    def wait(self, word, after, seconds):
        until = time.monotonic() + seconds
        with self.came:
            while not any(word in line for line in self.lines[after:]):
                if not self.came.wait(until - time.monotonic()) and time.monotonic() > until:
                    sys.exit("no '%s' within %d s:\n%s" % (word, seconds, "\n".join(self.lines[after:])))
            return self.lines[after:]

    def run(self, command, background):
        after = len(self.lines)
        done = "done:" + os.urandom(4).hex()
        self.process.stdin.write(f"{command} &\n" if background else f"{command}\necho {done}$?\n")
        self.process.stdin.flush()
        return after if background else self.wait(done, after, 600)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGTERM)


def ask(port, n=5):
    for _ in range(n):
        urllib.request.urlopen(f"http://127.0.0.1:{port}{PATHS[port]}", timeout=20).read()


def main():
    os.makedirs("/tmp/own", exist_ok=True)
    for name, text in ("shop", WSGI), ("basket", ASGI):
        with open(f"/tmp/own/{name}.py", "w") as f:
            f.write(text)
    services = [subprocess.Popen(argv, cwd="/tmp/own", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for argv in SERVICES.values()]
    shell = Shell()
    try:
        for port in SERVICES:
            for _ in range(100):
                try:
                    ask(port, 1)
                    break
                except OSError:
                    time.sleep(0.2)
        first(shell)
    finally:
        shell.kill()
        for process in services:
            process.terminate()
            process.wait(20)


def first(shell):
    began, counted, ids = time.monotonic(), 0, {}
    for command, background in commands(sys.argv[1]):
        counted += 1
        if command.startswith("underspan requests"):
            for port in SERVICES:
                ask(port)
            time.sleep(7)  # rows are sent every 5 s
        if command.startswith("underspan explain"):
            for path, found in ids.items():
                told = "\n".join(shell.run(command.replace("REQUEST_ID", found), False))
                assert path in told and re.search(r"sleep|await|event loop", told), told
            continue
        told = shell.run(command, background)
        if background:
            shell.wait("ready: watching" if command == "underspan run" else "OTLP at", told, 120)
            continue
        assert told[-1].endswith("0"), f"{command}: {told}"
        if command.startswith("underspan requests"):
            for port, path in PATHS.items():  # a request's id and trace id, port and pid
                found = re.search(rf"^ +(\d+) \S+ :{port} pid", "\n".join(told), re.M)
                assert found, f"no row of {path}:\n" + "\n".join(told)
                ids[path] = found[1]
    print(f"{counted} lines of README, first answers about gunicorn and uvicorn after {time.monotonic() - began:.0f} s")


main()
