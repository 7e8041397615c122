# SPDX-License-Identifier: Apache-2.0
"""A real `underspan store` for tests: started, asked over HTTP, stopped or killed."""
import base64
import http.client
import os
import pathlib
import random
import re
import signal
import stat
import subprocess
import urllib.parse

import pytest

from agent import PATIENCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNDERSPAN = os.environ.get("UNDERSPAN", str(ROOT / "build" / "underspan"))
# an engine does not run in a process with a sanitizer: the store is never the build under test then
STORE = str(ROOT / "build" / "underspan") if os.environ.get("UNDERSPAN_SANITIZER") else UNDERSPAN


def sql_text(path):
    """A file of sql/ as embedded in the program: sql/embed.sh replaces the lines `#include "FILE"`."""
    return re.sub(r'(?m)^#include "(.*)"\n', lambda match: (ROOT / "sql" / match[1]).read_text(), (ROOT / path).read_text())


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.broken = False
        try:
            self.body = response.read()
        except http.client.IncompleteRead as e:
            self.body, self.broken = e.partial, True

    @property
    def text(self):
        return self.body.decode()

    @property
    def code(self):
        return int(self.headers.get("X-ClickHouse-Exception-Code", 0))


class Store:
    """`Store(dir)` is serving when the constructor returns, or RuntimeError holds the reason."""

    def __init__(self, path, *arguments, prefix=(), listen="127.0.0.1:0", env=None):
        self.path = pathlib.Path(path)
        there = next(p for p in self.path.parents if p.is_dir())
        self.log = there / (self.path.name + ".log")
        read, write = os.pipe()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*prefix, STORE, "store", f"--path={path}", f"--listen={listen}",
                 f"--ready_fd={write}", *arguments],
                pass_fds=[write], stderr=log, env={**os.environ, **(env or {})},
                start_new_session=True)
        os.close(write)
        with os.fdopen(read) as ready:
            word, _, rest = ready.readline().strip().partition(" ")
        if word != "ready":
            raise RuntimeError(f"exit {self.process.wait(10 * PATIENCE)}: {rest}")
        self.url = rest
        self.address = (urllib.parse.urlsplit(rest).hostname, urllib.parse.urlsplit(rest).port)
        # a process in a private mount namespace shows files through /proc
        seen = pathlib.Path(f"/proc/{self.process.pid}/root{self.path}")
        self.password = (seen / "password").read_text().strip()

    def connect(self, timeout=30 * PATIENCE):
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def request(self, method="POST", path="/", body=None, headers=None, auth=True, connection=None,
                **params):
        headers = dict(headers or {})
        if auth:
            headers.setdefault("X-ClickHouse-User", "default")
            headers.setdefault("X-ClickHouse-Key", self.password)
        if params:
            path += "?" + urllib.parse.urlencode(params)
        c = connection or self.connect()
        try:
            c.request(method, path, body=body, headers=headers)
            return Answer(c.getresponse())
        finally:
            if not connection:
                c.close()

    def ask(self, sql, **params):
        """The answer's text; an exception is a test failure."""
        answer = self.request(body=sql.encode() if isinstance(sql, str) else sql, **params)
        assert answer.status == 200, answer.text
        return answer.text

    def insert(self, sql, data, **more):
        return self.request(query=sql, body=data.encode() if isinstance(data, str) else data,
                            **more)

    def basic(self, user="default", password=None):
        pair = f"{user}:{self.password if password is None else password}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    def stop(self, timeout=10):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


def underspan(*arguments, **more):
    """Runs a command to the end: returncode, stdout, stderr as text."""
    return subprocess.run([UNDERSPAN, *arguments], capture_output=True, text=True, timeout=60 * PATIENCE,
                          **more)


def tree(path):
    """Everything below a directory that a command could have changed: types, modes, owners, times, contents,
    links."""
    found = {}
    for p in [pathlib.Path(path), *pathlib.Path(path).rglob("*")]:
        st = p.lstat()
        content = p.read_bytes() if stat.S_ISREG(st.st_mode) else os.readlink(p) if p.is_symlink() else None
        found[str(p)] = (st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_nlink, st.st_mtime_ns, st.st_ctime_ns, content)
    return found


def made(path):
    """A store in a separate directory, not being served."""
    with Store(path) as s:
        assert s.stop() == 0
    return path


# ---- for tests of the store ----

TABLE = ("CREATE TABLE {} (a UInt64, s String) ENGINE = MergeTree ORDER BY a "
         "SETTINGS non_replicated_deduplication_window = 100")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("store") / "db") as s:
        s.ask(TABLE.format("t"))
        yield s
        assert s.process.poll() is None, s.log.read_text()
        assert s.stop() == 0


@pytest.fixture
def table(store):
    """A fresh table of the shared store."""
    name = f"t{random.getrandbits(40)}"
    store.ask(TABLE.format(name))
    yield name
    store.ask(f"DROP TABLE {name} SYNC")


def rows(name, n, first=0):
    return "".join(f'{{"a":{i},"s":"{name} {i}"}}\n' for i in range(first, first + n))
