# SPDX-License-Identifier: Apache-2.0
"""`underspan offcpu` in formats of further tools: each file is read by the tool's reader, pprof's by protoc with pprof's definition
and by speedscope, speedscope's by the schema and by speedscope; the sums equal the sleeps counted by the program."""
import gzip
import json
import re
import subprocess

import jsonschema
import pytest

from agent import UNDERSPAN
from store_fixture import ROOT

PPROF = "/usr/share/gocode/src/github.com/google/pprof/proto"
RELEASE = ROOT / "build/cache/speedscope/node_modules/speedscope/dist/release"
PROGRAM = """
import queue, threading, time
jobs = queue.Queue()
def take():
    while True:
        try: jobs.get(timeout=0.2)
        except queue.Empty: pass
threading.Thread(target=take, name="taker", daemon=True).start()
def nap(): time.sleep(0.03)
def work():
    while True: nap()
def grind():
    until = time.thread_time() + 0.01
    while time.thread_time() < until: pass
def compute():
    while True: grind(); time.sleep(0.01)
threading.Thread(target=compute, daemon=True).start()
threading.Thread(target=work, name="worker", daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


NAP_LINE = PROGRAM.splitlines().index("def nap(): time.sleep(0.03)") + 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("formats")
    process = subprocess.Popen(["/usr/bin/python3", "-c", PROGRAM], stdout=subprocess.PIPE)
    process.stdout.readline()
    try:
        for name in "x.pb.gz", "x.speedscope.json":
            done = subprocess.run([UNDERSPAN, "offcpu", f"-p{process.pid}", "-d2", "--cpu", "-o", directory / name], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    finally:
        process.kill()
        process.wait()
    return directory


def check_nap(ns):
    assert 1.4e9 < ns < 4e9  # most of two seconds and more, however late the end


def test_pprof_is_what_protoc_reads(files):
    packed = (files / "x.pb.gz").read_bytes()
    decoded = subprocess.run(["protoc", f"--proto_path={PPROF}", "--decode=perftools.profiles.Profile", f"{PPROF}/profile.proto"],
                             input=gzip.decompress(packed), capture_output=True, check=True).stdout.decode()
    top = dict(re.findall(r"^(\w+): (\d+)$", decoded, re.M))
    strings = [json.loads(s) for s in re.findall(r'^string_table: (".*")$', decoded, re.M)]
    functions = {int(i): strings[int(n)] for i, n in re.findall(r"^function \{\n  id: (\d+)\n  name: (\d+)", decoded, re.M)}
    files_of = {int(i): strings[int(f)] for i, f in re.findall(r"^function \{\n  id: (\d+)\n  name: \d+\n  filename: (\d+)", decoded, re.M)}
    lines = {int(i): int(n) for i, n in re.findall(r"^location \{\n  id: (\d+)\n  line \{\n    function_id: \d+\n    line: (\d+)", decoded, re.M)}
    samples = [([int(i) for i in re.findall(r"location_id: (\d+)", s)], [int(v) for v in re.findall(r"value: (\d+)", s)],
                {strings[int(k)]: strings[int(v)] for k, v in re.findall(r"key: (\d+)\n\s+str: (\d+)", s)})
               for s in re.findall(r"^sample \{\n(.*?)^\}", decoded, re.M | re.S)]
    types = [(strings[int(t)], strings[int(u)]) for t, u in re.findall(r"^sample_type \{\n  type: (\d+)\n  unit: (\d+)", decoded, re.M)]
    assert types == [(name, "nanoseconds") for name in ("off_cpu", "gil", "lock", "cpu")] and strings[0] == ""
    assert strings[int(top["default_sample_type"])] == "off_cpu"
    for _, (off_cpu, gil, lock, cpu), labels in samples:
        cause = labels["cause"]
        assert bool(off_cpu) == (cause != "cpu") and gil == off_cpu * (cause == "gil") and lock == off_cpu * (cause == "lock"), (cause, off_cpu, gil, lock)
        assert bool(cpu) == (cause == "cpu"), (cause, cpu)
    naps = [s for s in samples if any(functions[i] == "nap" for i in s[0])]
    check_nap(sum(values[0] for _, values, _ in naps))
    labels = {(labels["thread"], labels["cause"]) for _, _, labels in naps}
    assert labels <= {("worker", cause) for cause in ("sleep", "preempt", "gil", "lock", "cpu")}, labels  # lock: a mutex within the GIL
    computed = [values[3] for ids, values, labels in samples if any(functions[i] == "grind" for i in ids)]
    assert 0.5e9 < sum(computed) < 2e9, computed  # half of two seconds
    [nap] = {i for s in naps for i in s[0] if functions[i] == "nap"}
    assert (files_of[nap], lines[nap]) == ("<string>", NAP_LINE)
    taken = [(labels["cause"], labels.get("idle"), sum(values)) for ids, values, labels in samples if labels["thread"] == "taker" and any(functions[i] == "take" for i in ids)]
    assert sum(ns for _, idle, ns in taken if idle == "yes") > 0.9 * sum(ns for *_, ns in taken) > 1e9, taken
    assert not any("idle" in labels for _, _, labels in naps)
    assert [functions[i] for i in naps[0][0]][-2:] == ["Thread._bootstrap_inner", "Thread._bootstrap"]  # leaf first
    assert 1.9e9 < int(top["duration_nanos"]) < 6e9


def test_pprof_of_go_reads_it(files):
    """Sums by function of each type, and choices by label."""
    def top(kind, *options):
        done = subprocess.run(["go", "tool", "pprof", f"-sample_index={kind}", "-top", "-nodefraction=0", "-unit=ms", *options, files / "x.pb.gz"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.partition("cum%\n")[2].splitlines()]
        return {line[5]: float(line[3].removesuffix("ms")) * 1e6 for line in lines}  # cumulative
    check_nap(top("off_cpu")["nap"])
    assert 0.5e9 < top("cpu")["grind"] < 2e9
    assert top("lock")["take"] > 1e9 and "take" not in top("lock", "-tagignore=idle=yes")
    assert set(top("off_cpu", "-tagfocus=thread=worker", "-tagfocus=cause=sleep")) >= {"nap", "work"}


def test_speedscope_has_the_same_sums(files):
    profile = json.loads((files / "x.speedscope.json").read_text())
    schema = json.loads((RELEASE / "file-format-schema.json").read_text())
    jsonschema.validate(profile, schema)
    [samples] = profile["profiles"]
    frames = profile["shared"]["frames"]
    assert samples["endValue"] == sum(samples["weights"])
    check_nap(1000 * sum(w for s, w in zip(samples["samples"], samples["weights"]) if any(frames[i]["name"] == "nap" for i in s)))
    assert {"name": "nap", "file": "<string>", "line": NAP_LINE} in frames
    assert frames[samples["samples"][0][0]]["name"] in ("worker", "MainThread", "taker", "Thread-1 (compute)")


def test_speedscope_opens_both(files, browser):
    for name in "x.speedscope.json", "x.pb.gz":
        browser.driver.get(f"file://{RELEASE}/index.html")
        browser.one("input[type=file]").send_keys(str(files / name))
        deadline = browser.script("return Date.now() + 20000")
        while "speedscope" == browser.script("return document.title").strip() and browser.script("return Date.now()") < deadline:
            pass
        title = browser.script("return document.title")
        assert "on and off the CPU" in title or "x.pb.gz" in title or "off_cpu" in title, title
        assert not [e for e in browser.driver.get_log("browser") if e["level"] == "SEVERE"]
