# SPDX-License-Identifier: Apache-2.0
"""No root at run time: the agent works under the systemd unit, and drops unneeded privileges."""
import base64
import http.server
import os
import threading

import counts
import sandbox
from host import wait_until

SYS_PTRACE, SYS_ADMIN, DAC_READ_SEARCH, SYSLOG, PERFMON, BPF, CHECKPOINT = 19, 21, 2, 34, 38, 39, 40


def capabilities(task, which):
    with open(f"{task}/status") as f:
        bits = next(int(line.split()[1], 16) for line in f if line.startswith(which))
    return {n for n in range(64) if bits >> n & 1}


def check_threads(pid, allowed, bounding=()):
    tasks = [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
    assert len(tasks) >= 2
    for task in tasks:
        for which in "CapPrm", "CapEff", "CapBnd":
            may = allowed | set(bounding if which == "CapBnd" else ())
            assert capabilities(task, which) <= may, (task, which)
        assert not capabilities(task, "CapInh") and not capabilities(task, "CapAmb")
        with open(f"{task}/status") as f:
            assert "NoNewPrivs:\t1" in f.read()


def test_as_the_unit_runs_it(debian_python, start_agent, start_workload):
    agent = start_agent("--handoff.min_duration_us=0", "--tcp_accept.min_duration_us=0", "--off_cpu.min_duration_us=0",
                        "--gil_wait.min_duration_us=0", prefix=sandbox.prefix())
    assert os.stat(f"/proc/{agent.pid}").st_uid in (0, sandbox.USER)  # root's if not dumpable
    with open(f"/proc/{agent.pid}/status") as f:
        assert f"Uid:\t{sandbox.USER}\t{sandbox.USER}" in f.read()
    # without CAP_SETPCAP the bounding set stays; no new privileges can be gained
    check_threads(agent.pid, {SYS_PTRACE, SYS_ADMIN, DAC_READ_SEARCH}, bounding={SYSLOG})
    workload = start_workload(debian_python, "everything.py", 2).wait_covered(agent)
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    counts.check(agent)
    for table in "handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect":
        assert agent.select("ebpf_" + table, lambda r: r["host_pid"] == workload.pid), table
    sleeps = agent.select("ebpf_off_cpu", lambda r: r["host_pid"] == workload.pid and r["cause"] == "sleep")
    assert any("nanosleep" in frame for r in sleeps for frame in r["kernel_stack"])  # shows that CAP_SYSLOG is effective
    assert any(frame != "[unknown]" for r in sleeps for frame in r["user_stack"])


def test_root_gives_up_what_it_does_not_need(start_agent):
    agent = start_agent("--governor.cpu_percent=1")
    check_threads(agent.pid, {SYS_PTRACE, SYS_ADMIN, DAC_READ_SEARCH, PERFMON, BPF, CHECKPOINT})
    agent.stop()


def test_trackers_without_uprobes_need_no_sys_admin(start_agent):
    agent = start_agent(trackers=["tcp_connect", "tcp_loss"])
    check_threads(agent.pid, {SYS_PTRACE, DAC_READ_SEARCH, PERFMON, BPF, CHECKPOINT})
    agent.stop()


def test_sys_admin_in_place_of_others_stays(start_agent):
    """The unit has no CAP_BPF: SYS_ADMIN is required then, even to attach to tracepoints."""
    start_agent(trackers=["handoff", "tcp_connect"], prefix=sandbox.prefix()).stop()


def test_the_password_comes_as_a_credential(tmp_path, start_agent, monkeypatch):
    """LoadCredential= of systemd; neither arguments nor environment contain the password."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "clickhouse-password").write_text("correct horse\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("UNDERSPAN_CLICKHOUSE_PASSWORD", raising=False)
    agent = start_agent(f"--clickhouse=http://127.0.0.1:{server.server_port}", "--clickhouse_user=agent",
                        "--flush_interval=1", f"--spool.directory={tmp_path}/spool", trackers=["gc_pause"], stdout=False)
    wait_until(lambda: seen, 20, "an insert")
    agent.stop()
    server.shutdown()
    basic = "Basic " + base64.b64encode(b"agent:correct horse").decode()
    assert any(basic == h.get("Authorization") or h.get("X-ClickHouse-Key") == "correct horse" for h in seen), seen[:1]
