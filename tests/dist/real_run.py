# SPDX-License-Identifier: Apache-2.0
"""Runs in a clean root beside an installed underspan: 40 full collections of a Python are 40 rows."""
import json
import subprocess
import sys
import threading

FULL = 40
TARGET = """
import gc, sys, time
gc.disable()
while not sys.stdin.readline().startswith("go") : gc.collect(0)
for _ in range(%d): gc.collect(); time.sleep(0.005)
print("done", flush=True); time.sleep(60)
""" % FULL

target = subprocess.Popen([sys.executable, "-c", TARGET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
agent = subprocess.Popen(["underspan", "run", "--no-config", "--stdout", "--trackers=gc_pause", f"--pid={target.pid}", "--duration=40"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
rows, seen = [], threading.Event()


def read():
    for line in agent.stdout:
        row = json.loads(line)
        if row.get("table") == "ebpf_gc_pause":
            rows.append(row)
            seen.set()


reader = threading.Thread(target=read)
reader.start()
try:
    for _ in range(300):  # until the agent has found the process
        target.stdin.write("wait\n")
        target.stdin.flush()
        if seen.wait(0.1):
            break
    target.stdin.write("go\n")
    target.stdin.flush()
    target.stdout.readline()
finally:
    agent.terminate()
    reader.join(20)
    target.kill()
errors = agent.stderr.read()
full = [row for row in rows if row["generation"] == 2]
if agent.wait() or len(full) != FULL or any(row["host_pid"] != target.pid for row in rows):
    sys.exit(f"{len(full)} rows of {FULL} collections, exit code {agent.returncode}: {errors}")
