# SPDX-License-Identifier: Apache-2.0
"""A pool that is too small for an event loop's requests: which thread worked for which request is not known, and `explain` says
what the pool's threads did meanwhile. A real server, agent and store; the clients and the code are the truth."""
import concurrent.futures
import http.client
import json
import time

import pytest

from agent import Agent, NO_ENGINE, plain_build
from answers import Answers
from ledger_services import lacking
from store_fixture import Store
from test_ledger_pools import SERVERS, start
from test_request import TRACKERS, trace_of

pytestmark = plain_build(NO_ENGINE)
THREADS, WORK_MS = 3, 200


def asked(port, pool, i):
    """{trace: (ms until the answer, ms of the work)}"""
    connection, begun = http.client.HTTPConnection("127.0.0.1", port), time.monotonic()
    connection.request("GET", f"/{pool}/{WORK_MS}", headers={"traceparent": f"00-{trace_of(i)}-{i:016x}-01"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return {trace_of(i): ((time.monotonic() - begun) * 1000, int(answer.headers["X-Ns"]) / 1e6)}


def at_once(port, pool, first, n):
    with concurrent.futures.ThreadPoolExecutor(n) as clients:
        answers = clients.map(lambda i: asked(port, pool, i), range(first, first + n))
        return {trace: times for answer in answers for trace, times in answer.items()}


@pytest.mark.parametrize("pool", ["asleep", "executor"])
@pytest.mark.parametrize("name", SERVERS)
def test_the_pool_is_the_cause_only_of_requests_that_waited_for_it(name, pool, tmp_path, cleanup, debian_python, monkeypatch):
    missing = lacking("FastAPI sync endpoints, uvloop")
    assert not missing, f"{', '.join(missing)} could not be installed: run 'deploy/dependencies.sh servers'"
    server = start(cleanup, debian_python, name, THREADS)
    store = Store(tmp_path / "db")
    cleanup.append(store)
    ask = Answers(store)
    ask.apply()
    monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)
    agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", stdout=False, trackers=[*TRACKERS, "off_cpu"])
    cleanup.append(agent)
    agent.wait_ready()
    time.sleep(1)
    served = at_once(server.port, pool, 1, THREADS)
    time.sleep(1)
    crowd = at_once(server.port, pool, 101, 4 * THREADS)
    agent.stop()
    said = {}
    for trace in [*served, *crowd]:
        done = ask.command("explain", "--json", trace)
        assert done.returncode == 0, done.stderr
        # another test's server on this host may serve the same ids
        [row] = [r for r in json.loads(done.stdout)["requests"] if r["pid"] == server.pid]
        said[trace] = row, {cause["cause"]: cause for cause in row["causes"]}
    longest = max(work for _, work in [*served.values(), *crowd.values()])
    late = []
    for trace, (ms, work) in {**served, **crowd}.items():
        row, causes = said[trace]
        assert abs(row["duration_ms"] - ms) < 100, (row["duration_ms"], ms)
        if row["link"] == "wake":  # its thread is known, and its wait for it
            continue
        if "pool_missing" in causes:
            assert ms > 2 * WORK_MS and trace in crowd, (ms, causes)
            assert f"the {THREADS} such threads waited" in causes["pool_missing"]["said"], causes
            assert "in asleep (workloads/pool_app.py:" in causes["pool_missing"]["said"], causes
            assert causes["pool_missing"]["fix"].startswith("a larger pool"), causes
        late += [causes] * (row["await_ms"] > 2 * longest)
    print(f"{name}, {pool}: {len(late)} of {len(crowd)} requests waited for the pool")
    assert len(late) >= THREADS and all("pool_missing" in causes for causes in late), late
