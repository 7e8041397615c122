# SPDX-License-Identifier: Apache-2.0
"""A new tracker consists of new files and one line: sample_tracker/ is added to a copy of the tree, built, counted,
removed."""
import ctypes
import json
import os
import shutil
import subprocess
import threading

import agent as agents
import counts
from agent import ROOT, known_trackers, plain_build

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample_tracker")
LIST = "src/trackers/all.h"
LAST = "	X(cpu_throttle)\n"
PR_SET_NAME = 15


def make(tree, *targets):
    done = subprocess.run(["make", "-j2", *targets], cwd=tree, capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")})
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def copy_tree(to):
    """The sources with the build: only files affected by the new tracker are compiled."""
    subprocess.run(["cp", "-a", "--parents", "Makefile", "src", "bpf", "include", "sql", "vmlinux", "tests/unit",
                    "build/src", "build/bpf", "build/include", "build/sql_files.S", "build/sql_files.o", "build/underspan",
                    to], cwd=ROOT, check=True)
    return to


def files_of(tree):
    return {os.path.relpath(os.path.join(folder, name), tree) for folder, _, names in os.walk(tree) for name in names}


def edit_list(tree, old, new):
    with open(tree / LIST) as f:
        text = f.read()
    assert text.count(old) == 1
    (tree / LIST).write_text(text.replace(old, new))


def listed(tree):
    out = subprocess.run([tree / "build/underspan", "run", "--list"], capture_output=True, text=True, check=True).stdout
    return [json.loads(line)["tracker"] for line in out.splitlines()]


def rename_often(n, ids):
    ids.append(threading.get_native_id())
    for i in range(n):
        assert ctypes.CDLL(None).prctl(PR_SET_NAME, f"name-{i}".encode(), 0, 0, 0) == 0


@plain_build("it is not the program that is built here")
def test_a_tracker_is_new_files_and_one_line(tmp_path, start_agent, monkeypatch):
    tree = copy_tree(tmp_path)
    make(tree)  # nothing is left to do for any clocks of the copies
    before = listed(tree)
    assert before == list(known_trackers())
    shutil.copytree(SAMPLE, tree, dirs_exist_ok=True, copy_function=shutil.copy)  # with the current time, as for an author
    edit_list(tree, LAST, LAST.rstrip("\n") + " \\\n	X(thread_rename)\n")
    compiled = {words[1] for words in make(tree) if words[0] in ("CC", "BPF")}
    assert compiled == {"src/trackers/trackers.c", "src/trackers/thread_rename.c", "bpf/thread_rename.bpf.c"}
    assert listed(tree) == [*before, "thread_rename"]
    make(tree, "build/tests/unit/test_columns")
    subprocess.run(["build/tests/unit/test_columns"], cwd=tree, check=True, capture_output=True)

    monkeypatch.setattr(agents, "UNDERSPAN", str(tree / "build/underspan"))
    agent = start_agent(trackers=["thread_rename"])
    ids = []
    thread = threading.Thread(target=rename_often, args=(50, ids))
    thread.start()
    thread.join()
    agent.wait_rows("ebpf_thread_rename", lambda r: r["host_tid"] == ids[0], n=50)
    agent.stop()
    rows = agent.select("ebpf_thread_rename", lambda r: r["host_tid"] == ids[0])
    assert [r["new_comm"] for r in rows] == [f"name-{i}" for i in range(50)]
    assert [r["comm"] for r in rows[1:]] == [f"name-{i}" for i in range(49)]
    assert counts.check(agent)["thread_rename"]["rows"] >= 50

    for name in files_of(SAMPLE):
        os.remove(tree / name)
    edit_list(tree, " \\\n	X(thread_rename)\n", "\n")
    make(tree)
    assert listed(tree) == before
