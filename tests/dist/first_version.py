#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first version and this one take turns over one spool and one database, under load: `first_version.py FIRST THIS DIRECTORY`,
two programs and a new directory. In every second turn the database is away, so that the other version finds the rows in the spool. Every
row that the agents counted is there once, and none is lost between kernel and database. `tests/dist/run.sh first` builds the first
version from the history and runs this."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

WORK = """
import gc, threading, time
def collect():
    while True:
        gc.collect()
        time.sleep(0.002)
for _ in range(4):
    threading.Thread(target=collect, daemon=True).start()
time.sleep(3600)
"""
TRACKERS = "gc_pause", "gil_wait"
PORT = 18777
FATES = "filtered + sampled + lost_ring + lost_state + bad_event + rows"
LOST = "lost_ring + bad_event + dropped_memory + dropped_spool + dropped_corrupt + dropped_refused"


class Turns:
    def __init__(self, program, directory):
        self.program, self.directory, self.times = program, directory, []
        self.log = open(directory / "log", "a")
        self.url = f"http://127.0.0.1:{PORT}"
        self.start_store()
        self.password = (directory / "store/password").read_text().strip()
        self.env = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": self.password}

    def start_store(self):
        self.store = subprocess.Popen([self.program, "store", f"--path={self.directory}/store", f"--listen=127.0.0.1:{PORT}"], stderr=self.log)
        until = time.monotonic() + 60
        while True:
            try:
                return urllib.request.urlopen(self.url + "/ping", timeout=1)
            except OSError:
                assert self.store.poll() is None and time.monotonic() < until, "the store does not start"
                time.sleep(0.2)

    def stop_store(self):
        self.store.send_signal(signal.SIGTERM)
        self.store.wait(60)

    def ask(self, query):
        request = urllib.request.Request(self.url, data=query.encode(), headers={"X-ClickHouse-Key": self.password})
        return [int(n) for n in urllib.request.urlopen(request, timeout=60).read().split()]

    def apply(self, program):
        done = subprocess.run([program, "schema", f"--clickhouse={self.url}", "--apply"], env=self.env, stderr=self.log)
        assert done.returncode == 0, "schema --apply"

    def turn(self, program, seconds, away=False):
        if away:
            self.stop_store()
        begin = time.time()
        agent = subprocess.Popen([program, "run", f"--clickhouse={self.url}", f"--spool.directory={self.directory}/spool", "--report_interval=2",
                                  "--flush_interval=1", f"--trackers={','.join(TRACKERS)}"], env=self.env, stderr=self.log)
        time.sleep(seconds)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(30) == 0, "the agent's end"
        self.times.append((program, begin, time.time()))
        left = sum(1 for f in (self.directory / "spool").rglob("*") if f.is_file())
        assert not away or left > 2, "no row waits in the spool"
        if away:
            self.start_store()

    def check_ends_not_seen(self, first):
        """The kernel side counts in `lost_state` what it could make no row of, as the end was not seen. Some virtual machines do not trace
        each return of a thread to a CPU. The first version knows no end of a wait for the GIL if such a thread drops the GIL before its
        next switch out: two or three in ten thousand waits, at any time of a turn; one in a hundred is the limit. This version finds
        the end at that switch out, so only a wait can lack it whose thread is still on a CPU when the agent stops: one for each CPU.
        Collections have probes at both ends. Returns how many waits each version counted."""
        unseen = {True: 0, False: 0}
        for program, begin, end in self.times:
            for tracker in TRACKERS:
                seen, fates, rows, lost = self.ask(f"SELECT sum(seen), sum({FATES}), sum(rows), sum(lost_state) FROM ebpf_agent WHERE tracker = '{tracker}' "
                                                   f"AND end_time BETWEEN toDateTime64({begin:.6f}, 6) AND toDateTime64({end:.6f}, 6)")
                allowed = 0 if tracker == "gc_pause" else rows // 100 if program == first else os.cpu_count()
                assert rows and seen == fates and lost <= allowed, (program, tracker, seen, fates, rows, lost)
                unseen[program == first] += lost
        counted, = self.ask("SELECT sum(lost_state) FROM ebpf_agent WHERE tracker IN ('gc_pause', 'gil_wait')")
        assert counted == sum(unseen.values()), (counted, unseen)  # no turn's counts are missing
        return unseen[True], unseen[False]


def main(first, this, directory):
    directory = pathlib.Path(directory)
    (directory / "spool").mkdir(parents=True)
    turns = Turns(this, directory)
    work = subprocess.Popen([sys.executable, "-c", WORK])
    try:
        turns.apply(first)
        turns.turn(first, 10)
        turns.turn(first, 8, away=True)
        turns.apply(this)
        for program in this, first, this:
            turns.turn(program, 10)
            turns.turn(program, 8, away=True)
        turns.turn(this, 8)
        total = 0
        for tracker in TRACKERS:
            rows, different = turns.ask(f"SELECT count(), uniqExact(host_pid, host_tid, start_time, duration_ns) FROM ebpf_{tracker}")
            counted, lost = turns.ask(f"SELECT sum(rows), sum({LOST}) FROM ebpf_agent WHERE tracker = '{tracker}'")
            assert rows == different == counted > 1000 and not lost, (tracker, rows, different, counted, lost)
            total += rows
        old, new = turns.ask("SELECT countIf(boot_id = ''), countIf(boot_id != '') FROM ebpf_gc_pause")
        assert old and new, "only one version wrote"
        unseen = turns.check_ends_not_seen(first)
        print(f"{total} rows of nine turns of the first version and this one, each there once, none lost; waits for the GIL whose end was not seen, "
              f"and which are counted: {unseen[0]} by the first version, {unseen[1]} by this one")
    finally:
        work.kill()
        turns.stop_store()


if __name__ == "__main__":
    main(*sys.argv[1:])
