# SPDX-License-Identifier: Apache-2.0
"""Runs inside the machine of systemd.sh, as a service: the .deb's unit from installation to purge. A line for each step."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request

CONFIG = "/etc/underspan/underspan.json"
# the unit's and no other: SYS_ADMIN, SYS_PTRACE, DAC_READ_SEARCH; SYSLOG is dropped once /proc/kallsyms is read
KEPT = 1 << 21 | 1 << 19 | 1 << 2
COLLECTIONS = 50
TARGET = f"import gc, time\nfor _ in range({COLLECTIONS}): gc.collect(); time.sleep(0.01)\ntime.sleep(600)"


def run(*command, ok=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert not ok or done.returncode == 0, f"{' '.join(command)}: {done.stdout[-600:]}"
    return done.stdout.strip()


def show(name):
    return run("systemctl", "show", "-P", name, "underspan")


def wait(condition, what, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}; " + run("journalctl", "-u", "underspan", "-n", "5", "-o", "cat", ok=False)
        time.sleep(0.5)


def is_active():
    return show("ActiveState") == "active"


def metric(name, tracker):
    try:
        text = urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=10).read().decode()
    except OSError:
        return -1
    found = re.search(rf'^{name}{{tracker="{tracker}"}} (\d+)', text, re.M)
    return int(found[1]) if found else -1


def spooled():
    folder = "/var/lib/private/underspan/spool"
    return sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder)) if os.path.isdir(folder) else 0


def installed():
    run("dpkg", "-i", "/check/underspan.deb")
    run("systemctl", "start", "underspan")
    assert show("ActiveState") == "inactive" and show("ConditionResult") == "no", "started without a configuration"
    return "installed; does not start without /etc/underspan/underspan.json"


def started():
    with open("/check/underspan.json") as f:
        config = json.load(f)
    config.update({"clickhouse": "http://127.0.0.1:8123", "metrics": {"listen": "127.0.0.1:9464"}, "report_interval": 2, "flush_interval": 1})
    with open(CONFIG, "w") as f:
        json.dump(config, f)
    with open("/etc/underspan/clickhouse-password", "w") as f:
        os.fchmod(f.fileno(), 0o600)
    began = time.monotonic()
    run("systemctl", "enable", "--now", "underspan")
    assert is_active(), show("ActiveState")
    seconds = time.monotonic() - began
    with open(f"/proc/{show('MainPID')}/status") as f:
        status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
    uid = int(status["Uid"].split()[0])
    wanted, found = KEPT, int(status["CapEff"], 16)
    assert uid >= 61184, f"user {uid} is not a dynamic one"
    assert found & ~(1 << 34) == wanted, f"capabilities {found:x}, not {wanted:x}"
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1", status
    assert "watching" in show("StatusText"), show("StatusText")
    return f"active after {seconds:.0f} s as user {uid} with the unit's capabilities: {show('StatusText')}"


def sees():
    target = subprocess.Popen([sys.executable, "-c", TARGET])
    try:
        wait(lambda: metric("underspan_seen_total", "gc_pause") >= COLLECTIONS, f"{COLLECTIONS} collections are seen")
        wait(lambda: spooled() > 0, "rows wait in the spool")
        return f"{metric('underspan_seen_total', 'gc_pause')} collections seen of {COLLECTIONS} made, spool of {spooled()} bytes"
    finally:
        target.kill()
        target.wait()


def reloaded():
    pid = show("MainPID")
    with open(CONFIG) as f:
        config = json.load(f)
    config["report_interval"] = 3
    with open(CONFIG, "w") as f:
        json.dump(config, f)
    run("systemctl", "reload", "underspan")
    wait(lambda: "reloaded: report_interval" in run("journalctl", "-u", "underspan", "-o", "cat"), "the reload is logged", 30)
    assert show("MainPID") == pid and is_active()
    return "reloaded in place"


def killed():
    pid = show("MainPID")
    run("systemctl", "kill", "-s", "KILL", "--kill-who=main", "underspan")
    wait(lambda: is_active() and show("MainPID") not in ("0", pid), "a new process")
    assert show("NRestarts") == "1"
    return "killed: started again"


def upgraded():
    pid, waiting = show("MainPID"), spooled()
    run("dpkg", "-i", "/check/newer.deb")
    wait(lambda: is_active() and show("MainPID") not in ("0", pid), "a new process")
    assert os.path.exists(CONFIG) and spooled() >= waiting > 0, (waiting, spooled())
    return f"upgraded to {run('dpkg-query', '-W', '-f', '${Version}', 'underspan')}: a new process, the spool kept"


def stopped():
    began = time.monotonic()
    run("systemctl", "stop", "underspan")
    seconds = time.monotonic() - began
    assert show("Result") == "success" and show("ActiveState") == "inactive", (show("Result"), show("ActiveState"))
    assert seconds < 10, f"{seconds:.1f} s"
    return f"stopped in {seconds:.1f} s"


def purged():
    run("systemctl", "start", "underspan")
    run("dpkg", "-r", "underspan")
    assert not is_active() and os.path.exists(CONFIG)
    run("dpkg", "-P", "underspan")
    shutil.rmtree("/etc/systemd/system/underspan.service.d")  # the test's
    left = run("find", "/etc", "/usr", "/var", "-iname", "*underspan*", "!", "-path", "/var/log/*")
    assert not left, f"left over: {left}"
    assert not run("pgrep", "-a", "underspan", ok=False)
    return "removed while active, purged, nothing left"


for step in installed, started, sees, reloaded, killed, upgraded, stopped, purged:
    try:
        print(f"RESULT {step.__name__}: {step()}", flush=True)
    except Exception as e:  # the next steps depend on this one
        print(f"RESULT {step.__name__}: FAIL {e!r}", flush=True)
        print(run("journalctl", "-u", "underspan", "-n", "40", "-o", "cat", ok=False), flush=True)
        break
print("DONE", flush=True)
