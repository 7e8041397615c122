# SPDX-License-Identifier: Apache-2.0
"""Runs in a clean root: exactly the commands of deploy/README.md's first answer, about an own gunicorn and an own uvicorn that were
started before, then with spans of each. Prints the number of commands and the time. `quick_start.py README [tarball]`; for
spans: SDK=DIR, OpenTelemetry's packages as pip would have installed them, with the wheel."""
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
    time.sleep(0.15 if environ["PATH_INFO"] == "/own/orders" else 0)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
try:  # a bare application is instrumented by itself, a framework's by opentelemetry-instrument
    from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
    app = OpenTelemetryMiddleware(app)
except ImportError:
    pass
"""
ASGI = """
import asyncio
async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only HTTP here")
    await asyncio.sleep(0.15 if scope["path"] == "/own/basket" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
try:  # what OpenTelemetry's instrumentation of ASGI does; Debian's packages here lack that one
    from opentelemetry import propagate, trace
    handler = app
    async def app(scope, receive, send):
        if scope["type"] != "http":
            return await handler(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        with trace.get_tracer("asgi").start_as_current_span(scope["path"], propagate.extract(headers), trace.SpanKind.SERVER):
            await handler(scope, receive, send)
except ImportError:
    pass
"""
SERVICES = {18801: ["gunicorn", "-b", "127.0.0.1:18801", "shop:app"], 18802: [sys.executable, "-m", "uvicorn", "--port", "18802", "basket:app"]}
PATHS = {18801: "/own/orders", 18802: "/own/basket"}  # not those of others' services on this host


def commands(readme, tarball):
    """The blocks of that section, without comments: [(command, is it in the background?)], and the service's start with spans."""
    with open(readme) as f:
        blocks = f.read().split("## A first answer about your own service")[1].split("```sh\n")[1:4]
    package, archive, spans = ([line.split("#")[0].strip() for line in block.split("```")[0].replace("\\\n", "").splitlines()] for block in blocks)
    lines = [*archive, *package[2:]] if tarball else package
    return [(line.rstrip("& "), line.endswith("&")) for line in lines if line], spans[-1]


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


def ask(port, n=5, **headers):
    for _ in range(n):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{PATHS[port]}", headers=headers)
        urllib.request.urlopen(request, timeout=20).read()


def wait_for(port):
    for _ in range(150):
        try:
            return ask(port, 1)
        except OSError:
            time.sleep(0.2)
    sys.exit(f"no answer at port {port}")


def main():
    os.makedirs("/tmp/own", exist_ok=True)
    for name, text in ("shop", WSGI), ("basket", ASGI):
        with open(f"/tmp/own/{name}.py", "w") as f:
            f.write(text)
    services = [subprocess.Popen(argv, cwd="/tmp/own", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for argv in SERVICES.values()]
    shell = Shell()
    try:
        for port in SERVICES:
            wait_for(port)
        lines, with_spans = commands(sys.argv[1], "tarball" in sys.argv[2:])
        told = first(shell, lines)
        if os.environ.get("SDK"):
            told += spans(shell, services, with_spans)
        print(told)
    finally:
        shell.kill()
        for process in services:
            process.terminate()
            process.wait(20)


def spans(shell, services, command):
    """Both services again, by README's last line: an answer about a trace id of each."""
    began, told = time.monotonic(), ""
    for old, (port, argv) in zip(list(services), SERVICES.items()):
        old.terminate()
        old.wait(20)
        log = open(f"/tmp/own/service-{port}.log", "w+")
        services.append(subprocess.Popen(["bash", "-c", "exec env " + command.replace("gunicorn app:app", " ".join(argv))], cwd="/tmp/own",
                                         stdout=log, stderr=log,
                                         env={**os.environ, "PYTHONPATH": os.environ["SDK"], "PATH": os.environ["SDK"] + "/bin:" + os.environ["PATH"],
                                              "OTEL_TRACES_EXPORTER": "otlp"}))  # which opentelemetry-distro makes the default
        wait_for(port)
        time.sleep(3)  # until its worker is watched
        ask(port, 1, traceparent=f"00-{port:032x}-{'0' * 15}1-01")
        answer = explained(shell, f"{port:032x}", log)
        assert PATHS[port] in answer and re.search(r"sleep|await|event loop", answer) and "span" in answer, answer
        told += f", {argv[-1].split(':')[0]} {time.monotonic() - began:.0f} s later"
    return f"; with spans, by trace id: {told[2:]}"


def explained(shell, trace, log):
    """`explain` as soon as rows and spans are there, which come every 5 s; `doctor --spans` says that all join."""
    for _ in range(30):
        time.sleep(1)
        answer = shell.run(f"underspan explain {trace}", False)
        joined = "\n".join(shell.run("underspan doctor --spans", False))
        if answer[-1].endswith("0") and re.search(r"([1-9]\d*) of \1 server spans? joins?", joined):
            return "\n".join(answer)
    log.seek(0)
    sys.exit(f"not explained: {answer}, or no span joins: {joined}\nthe service said: {log.read()}")


def first(shell, lines):
    began, counted, ids = time.monotonic(), 0, {}
    for command, background in lines:
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
                if path not in "\n".join(told):  # slower requests of others on this host fill the list
                    told += shell.run(f"{command} --path={path}", False)
                found = re.search(rf"^ +(\d+) \S+ :{port} pid", "\n".join(told), re.M)
                assert found, f"no row of {path}:\n" + "\n".join(told)
                ids[path] = found[1]
    return f"{counted} lines of README, first answers about gunicorn and uvicorn after {time.monotonic() - began:.0f} s"


main()
