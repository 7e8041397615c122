# SPDX-License-Identifier: Apache-2.0
"""Servers that take a connection and answer nothing, and proxies that answer in their place: each command ends with a sentence."""
import concurrent.futures
import http.server
import os
import re
import socket
import subprocess
import threading
import time

import pytest

import fault_proxy as fault
from agent import NO_ENGINE, PATIENCE, UNDERSPAN, plain_build, run_underspan
from store_fixture import Store
from test_errors import FAILED, check_sentence

pytestmark = pytest.mark.light
SERVER = "http://clickhouse.example:8123"
QUESTIONS = [["sql", "SELECT 1"], ["explain", "5"], ["requests"], ["gil", "--since=1h"], ["offcpu", "--since=1h"], ["top", "--once"],
             ["timeline", "--since=1h", "-o", "/dev/null"], ["schema", "--check"], ["schema", "--apply"], ["doctor", "--spans"], ["doctor"]]


def test_a_server_that_answers_nothing():
    """It takes connections and requests. Silent to a second request, too, it is given up, long before a user is."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        at = f"--clickhouse=http://127.0.0.1:{server.getsockname()[1]}"

        def ask(command):
            start = time.monotonic()
            return command, run_underspan(command[0], at, *command[1:], timeout=100), time.monotonic() - start

        with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
            for command, result, seconds in pool.map(ask, QUESTIONS):
                assert result.returncode == FAILED and seconds < 25 * PATIENCE, (command, result, seconds)
                said = result.stdout if command[0] == "doctor" else result.stderr
                assert f"{at[13:]} takes connections, and does not answer, not even GET /ping in 10 s: is that ClickHouse?" in said, result
                if command[0] != "doctor":
                    check_sentence(result, FAILED, "the server hangs: see its log")


@plain_build(NO_ENGINE)
def test_a_long_silence_is_no_failure(tmp_path):
    """Of a server that has answered: 40 s without a byte, and without an answer to the second request."""
    silent = threading.Lock()

    def answer_late(proxy, request):
        time.sleep(40)
        return fault.deliver(proxy, request)

    def hold(proxy, request):
        time.sleep(40)
        return False

    def plan(request):
        if request.path.startswith("/ping"):
            return hold
        is_late = b"ebpf_off_cpu" in request.read() and b"CREATE TABLE" in request.body
        return answer_late if is_late and silent.acquire(blocking=False) else None

    with Store(tmp_path / "db") as store:
        proxy = fault.FaultProxy(store.address, plan)
        at = [f"--clickhouse={proxy.url}", f"--clickhouse_password_file={tmp_path}/db/password"]
        start = time.monotonic()
        result = run_underspan("schema", "--apply", *at, timeout=200)
        assert result.returncode == 0 and time.monotonic() - start > 40, result
        assert [r for r in proxy.requests if r.path.startswith("/ping")]
        proxy.close()


def ask_by(proxy, url=SERVER, command=("sql", "SELECT 1"), **more):
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return subprocess.run([UNDERSPAN, command[0], f"--clickhouse={url}", *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**environment, **({"http_proxy": proxy, "https_proxy": proxy} if proxy else {}), **more}, timeout=60)


@pytest.fixture(scope="module")
def proxies():
    """answer(status, body): the address of a proxy that answers so to each request, CONNECT included."""
    servers = []

    def answer(status, body=b""):
        class Handler(http.server.BaseHTTPRequestHandler):
            def reply(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                if status == 407:
                    self.send_header("Proxy-Authenticate", 'Basic realm="office"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_CONNECT = reply

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield answer
    for server in servers:
        server.shutdown()


SAID = {
    407: "wants a user and a password, as in {}=http://USER:PASSWORD@PROXY:PORT",
    502: "cannot reach ClickHouse: is ClickHouse running, and is its address right there?",
    503: "cannot reach ClickHouse",
    504: "had no answer of ClickHouse in the proxy's own time",
    403: "refuses that address",
}


@pytest.mark.parametrize("status", SAID)
@pytest.mark.parametrize("page", [b"", b"<html><h1>Bad Gateway</h1></html>"], ids=["empty", "page"])
def test_the_proxy_of_the_environment(proxies, status, page):
    """Named with its variable, for http:// and for the tunnel of https://; no password of it is printed."""
    proxy = proxies(status, page).replace("//", "//me:secret@")
    for url, variable in (SERVER, "http_proxy"), (SERVER.replace("http:", "https:"), "https_proxy"):
        result = ask_by(proxy, url)
        words = f"ClickHouse at {url}: the proxy of ${variable} answered HTTP {status}: it {SAID[status].format(variable)}"
        check_sentence(result, FAILED, re.escape(words), "without the proxy name ClickHouse's host in \\$no_proxy")
        assert "secret" not in result.stderr and "(no text)" not in result.stderr


@pytest.mark.parametrize("status, words", [(502, "cannot reach ClickHouse"), (503, "cannot reach ClickHouse"), (504, "the proxy's own time"),
                                           (401, "wants a login of its own, which underspan does not have"), (407, "as in http_proxy=")])
def test_a_proxy_before_the_server(proxies, status, words):
    for page in b"", b"<html>nginx</html>":
        for command in ("sql", "SELECT 1"), ("requests",), ("schema", "--check"):
            result = ask_by(None, proxies(status, page), command)
            check_sentence(result, FAILED, f"a proxy before ClickHouse answered HTTP {status}: it .*{words}")
            assert "no_proxy" not in result.stderr


def test_what_a_server_says_is_kept(proxies):
    """A text of the answer says more than its number; other numbers are no proxy's."""
    check_sentence(ask_by(None, proxies(503, b"upstream connect error")), FAILED, "answered HTTP 503: upstream connect error")
    check_sentence(ask_by(None, proxies(403, b"<html>")), FAILED, "HTTP 403 with a web page: is that ClickHouse")


def test_a_proxy_that_is_not_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{free.getsockname()[1]}"
        check_sentence(ask_by(proxy), FAILED, r"this is the proxy of \$http_proxy: is it right\?.*\$no_proxy")
        assert "proxy" not in ask_by(proxy, "http://127.0.0.2:1").stderr  # never by a proxy
    check_sentence(ask_by("http://no-such-proxy.invalid:3128"), FAILED, r"the proxy of \$http_proxy")
