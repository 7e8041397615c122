# SPDX-License-Identifier: Apache-2.0
"""A real server with an agent that writes to a real database: `underspan explain` is asked about its requests."""
from agent import Agent
from answers import Answers
from host import wait_until
from store_fixture import Store
from test_request import TRACKERS


def watched(server, directory, cleanup, monkeypatch, ask_server, trackers=()):
    """Answers and the agent. `ask_server` sends a request: it is tried until the server is up, before the agent."""
    cleanup.append(server)
    store = Store(directory / "db")
    cleanup.append(store)
    ask = Answers(store)
    ask.apply()
    monkeypatch.setenv("UNDERSPAN_CLICKHOUSE_PASSWORD", store.password)

    def up():
        try:
            return ask_server()
        except ConnectionRefusedError:
            assert server.process.poll() is None, "\n".join(server.log)
    wait_until(up, 30, "the server answers")
    agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", "--request.min_duration_us=0", stdout=False, trackers=[*TRACKERS, *trackers])
    cleanup.append(agent)
    agent.wait_ready()
    return ask, agent
