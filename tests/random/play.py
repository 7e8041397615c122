# SPDX-License-Identifier: Apache-2.0
"""Plays a plan: starts its server and its proxy, lets client.py act, and collects what client, handlers and agent say of it.

The agent writes its rows to a file: a reader that is slow, on a machine with few processors, loses none.
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "e2e"))

import host  # noqa: E402
from agent import Agent  # noqa: E402
from kinds import KINDS, PYTHON, command_of  # noqa: E402
from proxies import start_proxy  # noqa: E402
from servers import Server, connect, free_port, request  # noqa: E402

AGENT_OPTIONS = ("--request.min_duration_us=0", "--off_cpu.min_duration_us=1000000", "--gil_wait.min_duration_us=1000000")
TRACKERS = ("request", "gc_pause", "gil_wait", "off_cpu")  # which the parts of a request come from
ROW_BEGINS = b'{"table":"ebpf_request",'
COVER_SECONDS, QUIET_SECONDS, CLIENT_SECONDS = 12, .35, 120
UNIX_ROW_SECONDS = 1.3  # a connection that is closed before the answer's end


class Rows:
    """The agent's, in a file."""

    def __init__(self, path):
        self.path = path

    def size(self):
        return os.path.getsize(self.path)

    def since(self, position):
        """Of requests, complete ones."""
        with open(self.path, "rb") as f:
            f.seek(position)
            lines = f.read().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(ROW_BEGINS)]

    def wait_quiet(self, seconds=5):
        deadline, size = time.monotonic() + seconds, None
        while size != self.size() and time.monotonic() < deadline:
            size = self.size()
            time.sleep(QUIET_SECONDS)


class Peer:
    """peer.py, which handlers ask."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "peer")
        self.process = subprocess.Popen([PYTHON, os.path.join(HERE, "peer.py"), self.path], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Stage:
    """What all plays share: a directory, the peer, the agent and its rows."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            # a write to memory never waits for a disk
            self.directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="underspan-random-", dir="/dev/shm"))
            os.chmod(self.directory, 0o755)
            self.peer = Peer(self.directory)
            stack.callback(self.peer.kill)
            self.rows = Rows(os.path.join(self.directory, "rows"))
            self.agent = Agent(*AGENT_OPTIONS, trackers=TRACKERS, prefix=["sh", "-c", 'exec "$0" "$@" >' + self.rows.path])
            stack.callback(self.agent.kill)
            self.agent.wait_ready()
            self.stack = stack.pop_all()
        self.plays = 0

    def play(self, plan):
        self.plays += 1
        directory = os.path.join(self.directory, str(self.plays))
        os.mkdir(directory)
        play = Play(self, plan, directory)
        play.run()
        return play

    def stop(self):
        """Fails if the agent says that rows were dropped."""
        self.agent.stop()

    def kill(self):
        self.stack.close()


def processes_of(pid):
    """Descendants, too."""
    try:
        return {pid}.union(*map(processes_of, host.children_of(pid)))
    except OSError:
        return {pid}


def ask(address):
    """The begin of an answer, empty if there is none."""
    try:
        with connect(address if address.startswith("/") else ("127.0.0.1", int(address)), timeout=5) as s:
            s.sendall(request())
            answer = s.recv(65536)
            while s.recv(65536):
                pass
            return answer
    except OSError:
        return b""


def read_lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


class Play:
    """clients: {number: client.py's facts}, handlers: {number: [truth.py's facts]}, rows: the agent's."""

    def __init__(self, stage, plan, directory):
        self.stage, self.plan, self.directory, self.kind = stage, plan, directory, KINDS[plan["kind"]]
        self.planned = {call["number"]: (call, connection) for thread in plan["threads"] for connection in thread for call in connection["calls"]}
        self.port, self.path = free_port(), os.path.join(directory, "socket") if plan["unix"] else None
        self.own_address = self.path or str(self.port)  # as text, a port or a path
        self.truth_path, self.client_path = os.path.join(directory, "truth"), os.path.join(directory, "client")
        self.pids = set()

    def run(self):
        with contextlib.ExitStack() as stack:
            server = Server(command_of(self.plan["kind"], self.port, self.path), env=self.environment(), cwd=self.directory)
            self.wait_up(stack, server, self.own_address)
            address = self.own_address
            if self.plan["proxy"]:
                proxy = start_proxy(self.plan["proxy"], self.directory, self.own_address)
                address = str(proxy.port)
                self.wait_up(stack, proxy, address)
            self.cover(server)
            self.act(server, address)
        time.sleep(UNIX_ROW_SECONDS if self.path else QUIET_SECONDS)
        self.collect()

    def environment(self):
        """See app.py, steps.py, truth.py."""
        kind, peer = self.kind, self.stage.peer
        return {"PYTHONPATH": HERE, "RANDOM_APP": kind.app, "RANDOM_GEVENT": "1" * kind.gevent, "RANDOM_TRIO": "1" * kind.trio,
                "RANDOM_TRUTH": self.truth_path, "RANDOM_PEER_PORT": str(peer.port), "RANDOM_PEER_PATH": peer.path,
                "RANDOM_OWN_ADDRESS": self.own_address, **dict(kind.environment)}

    @staticmethod
    def wait_up(stack, server, address):
        stack.callback(server.kill)

        def answers():
            assert server.process.poll() is None, "\n".join(server.log[-30:])
            return ask(address)
        host.wait_until(answers, 20, f"{' '.join(server.process.args)} answers")

    def cover(self, server):
        """Until a request has a row in which nothing of the interpreter is missing: the agent has found the process."""
        begin, deadline = self.stage.rows.size(), time.monotonic() + COVER_SECONDS
        while time.monotonic() < deadline:
            for _ in range(4):
                ask(self.own_address)
            time.sleep(.25)
            self.pids |= processes_of(server.pid)
            if any(row["host_pid"] in self.pids and not {"gil", "gc"} & set(row["not_measured"]) for row in self.stage.rows.since(begin)):
                return

    def act(self, server, address):
        plan_path = os.path.join(self.directory, "plan")
        with open(plan_path, "w") as f:
            json.dump(self.plan, f)
        self.position = self.stage.rows.size()
        self.realtime_offset = time.time_ns() - time.perf_counter_ns()
        subprocess.run([PYTHON, os.path.join(HERE, "client.py"), plan_path, address, self.client_path], timeout=CLIENT_SECONDS, check=True)
        time.sleep(QUIET_SECONDS)
        self.pids |= processes_of(server.pid)
        self.stage.rows.wait_quiet()

    def collect(self):
        self.clients = {facts["number"]: facts for facts in read_lines(self.client_path)}
        self.handlers, self.by_thread = {}, {}
        for facts in read_lines(self.truth_path):
            self.handlers.setdefault(facts["number"], []).append(facts)
            self.by_thread.setdefault(facts["tid"], []).append(facts)
            self.pids.add(facts["pid"])
        begin = min((facts["begin"] for facts in self.clients.values() if "begin" in facts), default=0)
        self.rows = [row for row in self.stage.rows.since(self.position) if self.is_own(row) and self.monotonic(row["start_time"]) > begin - 10**9]

    def is_own(self, row):
        """Other programs of this host have rows, too, perhaps those of another play of the same seed. Requests for / have only asked whether the server
        is up."""
        return row["host_pid"] in self.pids and row["path"] != "/"

    def handlers_of_thread(self, tid):
        return self.by_thread.get(tid, [])

    def monotonic(self, microseconds):
        """A row's time stamp on the clock of client and handlers."""
        return microseconds * 1000 - self.realtime_offset
