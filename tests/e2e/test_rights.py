# SPDX-License-Identifier: Apache-2.0
"""The rights of deploy/doc/guide.md, by the engine's own access control: with exactly the guide's grants the agent delivers, people read
and the owner upgrades; with one grant less each is refused."""
import json
import os
import re
import subprocess
import time

import pytest

import host
from agent import Agent, NO_ENGINE, plain_build
from store_fixture import Store, made, sql_text, underspan

pytestmark = plain_build(NO_ENGINE)
GUIDE = open(os.path.join(host.ROOT, "deploy/doc/guide.md")).read()
# {user: [grant]}, of the database `default`
GRANTS = {}
for right, user in re.findall(r"^GRANT (.*) TO (\w+);$", GUIDE.split("```sql\n")[1].split("```")[0], re.M):
    GRANTS.setdefault(user, []).append("GRANT " + right.replace(" otel.", " default."))
USERS = """<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default><password></password>
<networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota><grants>%s</grants></default></users></clickhouse>"""


class Restricted(Store):
    """The store of a directory, with these rights only for every user."""

    def __init__(self, path, grants):
        # where the engine's user sees the directory: pytest's directories are closed to foreign users
        (path / "engine" / "config.xml").write_text("<clickhouse><users_config>/mnt/users.xml</users_config></clickhouse>")
        (path / "engine" / "users.xml").write_text(USERS % "".join(f"<query>{grant}</query>" for grant in grants))
        super().__init__(path, "--engine_config=config.xml")
        self.environment = {**os.environ, "UNDERSPAN_CLICKHOUSE_PASSWORD": self.password}
        shown = sorted(self.ask("SHOW GRANTS").replace(" TO default", "").split("\n")[:-1])
        assert not [g for g in shown if "*.*" in g], shown

    def run(self, command, *arguments):
        return underspan(command, f"--clickhouse={self.url}", *arguments, env=self.environment)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Tables made by the owner, with the owner's rights."""
    path = made(tmp_path_factory.mktemp("rights") / "db")
    with Store(path) as s:  # spans are the collector's
        for name in "otel_traces", "otel_traces_trace_id_ts":
            s.ask(sql_text(f"sql/otel/{name}.sql"))
    with Restricted(path, GRANTS["underspan_owner"]) as s:
        for _ in range(2):  # the second time is an upgrade
            done = s.run("schema", "--apply")
            assert done.returncode == 0 and "ACCESS_DENIED" not in done.stderr, done.stderr
        done = s.run("schema", "--check")
        assert done.returncode == 0, done.stdout + done.stderr
    return path


def test_the_owner_needs_its_rights(tmp_path):
    path = made(tmp_path / "db")
    with Restricted(path, [g.replace("CREATE TABLE, ", "") for g in GRANTS["underspan_owner"]]) as s:
        done = s.run("schema", "--apply")
        assert done.returncode == 1 and "CREATE TABLE" in done.stderr, done.stderr


def collect(store, until, what):
    """An agent with the store, and a Python that collects, until a condition holds; the agent's log."""
    os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"] = store.password
    agent = Agent(f"--clickhouse={store.url}", "--flush_interval=0.3", trackers=["gc_pause"], stdout=False)
    process = subprocess.Popen([host.DEBIAN_PYTHON, "-c", "import gc, time\nwhile True: gc.collect(); time.sleep(0.05)"])
    try:
        host.wait_until(lambda: until(agent), 25, what)
    finally:
        process.kill()
        process.wait()
        agent.process.terminate()
        agent.process.wait(20)
        del os.environ["UNDERSPAN_CLICKHOUSE_PASSWORD"]
    return agent.stderr


def parts(path):
    with Store(path) as s:
        return int(s.ask("SELECT count() FROM ebpf_gc_pause")), int(s.ask("SELECT count() FROM ebpf_agent"))


def test_the_agent(database):
    before = parts(database)
    with Restricted(database, GRANTS["underspan"]) as s:
        began = time.monotonic()
        log = collect(s, lambda agent: time.monotonic() - began > 10, "ten seconds")
        assert "ACCESS_DENIED" not in log and "privileges" not in log, log
        assert s.request(body=b"SELECT count() FROM ebpf_gc_pause").code == 497
    after = parts(database)
    assert after[0] > before[0] + 20 and after[1] > before[1]


def test_an_agent_without_rights_says_which(database):
    with Restricted(database, ["GRANT SELECT ON system.*"]) as s:
        log = collect(s, lambda agent: "INSERT" in agent.stderr and "privileges" in agent.stderr, "the missing right is logged")
    assert re.search(r"grant INSERT ON \w+\.ebpf_\w+", log), log  # of the table that was asked first


def test_people(database):
    with Restricted(database, GRANTS["underspan_reader"]) as s:
        for command in (["sql", "SELECT count() FROM request_time_parts(from = now() - 60, to = now())"], ["requests", "--since=10m"], ["doctor", "--spans"],
                        ["schema", "--check"], ["explain", "0" * 31 + "1"]):
            done = s.run(*command)
            assert done.returncode in (0, 1) and not re.search("ACCESS_DENIED|privileges", done.stdout + done.stderr), (command, done.stderr)
        done = s.run("sql", "INSERT INTO ebpf_gc_pause (pid) VALUES (1)")
        assert done.returncode == 1 and "INSERT" in done.stderr
        assert json.loads(s.run("sql", "--format=JSON", "SELECT 1 AS one").stdout)["data"] == [{"one": 1}]
