# SPDX-License-Identifier: Apache-2.0
"""The Helm chart of deploy/k8s: the Kustomize base is made of it; its values change what they say and nothing else."""
import json
import os
import re
import subprocess

import pytest
import yaml

import host
import pod
from agent import ROOT, UNDERSPAN
from test_kubernetes import BASE, FOLDER, VERSION, UniqueKeys, check_object, kustomize

pytestmark = pytest.mark.light

CHART = f"{FOLDER}/chart"
HELM = f"{host.CACHE}/kubernetes/helm"
DIGEST = "sha256:" + "0" * 64
CONFIG = {"clickhouse": "https://clickhouse.example.com:8443", "clickhouse_user": "underspan", "clickhouse_database": "otel",
          "clickhouse_password_file": "/run/secrets/underspan/clickhouse-password", "spool": {"directory": "/var/lib/underspan/spool"}}

if not os.path.exists(HELM):
    pytest.skip("tests/e2e/helm.sh has no helm for this machine", allow_module_level=True)


def helm(*args, values=None):
    return subprocess.run([HELM, *args, "-f", "-"], input=json.dumps(values or {}), capture_output=True, text=True)


def template(values=None, namespace="underspan"):
    """{(kind, name): object}, as sent by `helm install`; fields checked."""
    done = helm("template", "any-name", CHART, "--namespace", namespace, values=values)
    assert done.returncode == 0, done.stderr
    found = {(d["kind"], d["metadata"]["name"]): d for d in yaml.load_all(done.stdout, UniqueKeys) if d}
    for d in found.values():
        check_object(d, "rendered")
        assert d["kind"] == "Namespace" or d["metadata"]["namespace"] == namespace
    return found


def pod_template(objects):
    return objects["DaemonSet", "underspan"]["spec"]["template"]


def test_the_base_is_made_of_the_chart(tmp_path):
    made = tmp_path / "daemonset.yaml"
    subprocess.run([f"{FOLDER}/render.sh", made], env={**os.environ, "HELM": HELM}, check=True)
    with open(f"{BASE}/daemonset.yaml") as f:
        assert f.read() == made.read_text(), "run deploy/k8s/render.sh"
    assert template({"namespace": {"create": True}}) == kustomize(BASE)


def test_the_chart_is_of_this_version():
    with open(f"{CHART}/Chart.yaml") as f:
        chart = yaml.safe_load(f)
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_values_and_the_example_make_the_same():
    """deploy/k8s/example, said in values."""
    mine = template({"namespace": {"create": True}, "image": {"repository": "registry.example.com/underspan", "digest": DIGEST},
                     "nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
                     "resources": {"limits": {"memory": "512Mi"}}, "podMonitor": {"enabled": True}})
    example = kustomize(f"{FOLDER}/example")
    assert pod_template(mine)["spec"]["containers"][0].pop("image") == f"registry.example.com/underspan:{VERSION}@{DIGEST}"
    assert pod_template(example)["spec"]["containers"][0].pop("image") == f"registry.example.com/underspan@{DIGEST}"
    assert not pod_template(example)["metadata"].pop("annotations")
    assert mine == example


def test_nothing_makes_a_secret_and_no_configuration_of_its_own():
    """So neither an upgrade nor an uninstallation changes them."""
    for values in {}, {"podMonitor": {"enabled": True}}:
        assert not {kind for kind, _ in template(values)} & {"Secret", "ConfigMap", "Namespace"}
    assert {kind for kind, _ in template({"config": CONFIG})} == {"ConfigMap", "DaemonSet"}
    done = helm("template", "x", CHART, values={"config": {**CONFIG, "clickhouse_password": "secret"}})
    assert done.returncode and "config" in done.stderr


def test_keys_of_the_tables(tmp_path):
    """Database, prefix, cluster and spans' table reach the agent and `schema` by the same file; the schema has no key that they lack."""
    with open(f"{CHART}/values.schema.json") as f:
        known = json.load(f)["properties"]["config"]["properties"]
    keys = {"table_prefix": "prod_", "traces": "spans.otel_traces", "cluster": "main"}
    assert set(known) == {*CONFIG, *keys}
    with open(f"{CHART}/values.yaml") as f:
        text = f.read()
    assert all(re.search(rf"(?m)^#   {key}: ", text) for key in known)
    found = template({"config": {**CONFIG, **keys}})
    (tmp_path / "clickhouse-password").write_text("secret")
    path = tmp_path / "underspan.json"
    path.write_text(found["ConfigMap", "underspan"]["data"]["underspan.json"].replace("/run/secrets/underspan", str(tmp_path)))
    agent = subprocess.run([UNDERSPAN, "run", "-c", path, "--check"], capture_output=True, text=True)
    assert agent.returncode == 0 and "table_prefix = prod_ " in agent.stdout and "database otel" in agent.stdout, agent.stderr
    schema = subprocess.run([UNDERSPAN, "schema", "-c", path], capture_output=True, text=True)
    assert schema.returncode == 0, schema.stderr
    for words in "CREATE DATABASE IF NOT EXISTS `otel` ON CLUSTER 'main'", "prod_ebpf_request ON CLUSTER 'main'", "spans`.`otel_traces":
        assert words in schema.stdout, words
    path.write_text(path.read_text().replace("table_prefix", "table_prefixx"))
    wrong = subprocess.run([UNDERSPAN, "run", "-c", path, "--check"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "table_prefix" in wrong.stderr


def test_configuration_is_the_agents(tmp_path):
    """The agent reads the file that the chart makes, with the arguments that the chart gives; a change restarts the pods."""
    found = template({"config": CONFIG, "extraArgs": ["--log_level=debug"], "metricsPort": 9999}, namespace="monitoring")
    config = found["ConfigMap", "underspan"]["data"]["underspan.json"]
    assert json.loads(config) == CONFIG
    (tmp_path / "underspan.json").write_text(config.replace("/run/secrets/underspan", str(tmp_path)))
    (tmp_path / "clickhouse-password").write_text("secret")
    spec = pod_template(found)["spec"]
    container = spec["containers"][0]
    assert [v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v] == ["underspan"]
    assert [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v] == ["underspan"]
    args = [a.replace("$(NODE_NAME)", "node-1").replace("$(NODE_IP)", "127.0.0.1").replace("/etc/underspan", str(tmp_path))
            for a in container["args"]]
    done = subprocess.run([UNDERSPAN, *args, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in "clickhouse = https://clickhouse.example.com:8443 ", "metrics.listen = 127.0.0.1:9999 ", "log_level = debug ", "host = node-1 ":
        assert line in done.stdout, line
    assert container["ports"][0]["containerPort"] == 9999
    assert pod_template(found)["metadata"]["annotations"]["prometheus.io/port"] == "9999"
    hashes = {pod_template(template({"config": {**CONFIG, "log_level": level}}))["metadata"]["annotations"]["underspan/config"]
              for level in ("info", "info", "debug")}
    assert len(hashes) == 2


@pytest.mark.parametrize("values,where,expected", [
    ({"imagePullSecrets": [{"name": "login"}]}, ["imagePullSecrets"], [{"name": "login"}]),
    ({"priorityClassName": "high"}, ["priorityClassName"], "high"),
    ({"priorityClassName": ""}, ["priorityClassName"], None),
    ({"tolerations": []}, ["tolerations"], None),
    ({"affinity": {"nodeAffinity": {}}}, ["affinity"], {"nodeAffinity": {}}),
    ({"image": {"tag": "1.2.3"}}, ["containers", 0, "image"], "underspan:1.2.3"),
    ({"image": {"tag": "1.2.3", "digest": DIGEST}}, ["containers", 0, "image"], f"underspan:1.2.3@{DIGEST}"),
    ({"ipv6": True}, ["containers", 0, "args", 4], "--metrics.listen=[$(NODE_IP)]:9464"),
    ({"extraEnv": [{"name": "UNDERSPAN_LOG_LEVEL", "value": "debug"}]}, ["containers", 0, "env", 2],
     {"name": "UNDERSPAN_LOG_LEVEL", "value": "debug"}),
    ({"spoolPath": "/data/underspan"}, ["volumes", 2, "hostPath", "path"], "/data/underspan"),
    ({"secret": "mine"}, ["volumes", 1, "secret", "secretName"], "mine"),
])
def test_a_value_changes_one_field(values, where, expected):
    base, mine = pod_template(template()), pod_template(template(values))

    def take(spec, default=None):
        for key in where[:-1]:
            spec = spec[key]
        if isinstance(where[-1], int):
            return spec.pop(where[-1]) if len(spec) > where[-1] else default
        return spec.pop(where[-1], default)

    take(base["spec"])
    assert take(mine["spec"]) == expected
    assert mine == base


@pytest.mark.parametrize("values,said", [
    ({"nodeSelectors": {}}, "nodeSelectors"), ({"image": {"digest": "sha256:1"}}, "digest"), ({"image": {"tag": "a b"}}, "tag"),
    ({"metricsPort": 0}, "metricsPort"), ({"config": {"clickhouse": "clickhouse:9000"}}, "clickhouse"), ({"podMonitor": True}, "podMonitor"),
    ({"config": {"table_prefix": "a-b"}}, "table_prefix"), ({"config": {"table_prefix": "1a"}}, "table_prefix"), ({"config": {"Cluster": "x"}}, "Cluster"),
    ({"config": {"clickhouse_database": ""}}, "clickhouse_database"), ({"config": {"cluster": 1}}, "cluster"),
    ({"image": {"repository": ""}}, "repository"), ({"extraArgs": ["debug"]}, "extraArgs"), ({"resources": {"memory": "1Gi"}}, "memory"),
])
def test_wrong_values_are_refused(values, said):
    done = helm("template", "x", CHART, values=values)
    assert done.returncode and said in done.stderr, done.stderr


def test_rights_and_mounts_have_reasons():
    """Each capability and each mount of the host has a word why, in the file that people apply."""
    with open(pod.MANIFEST) as f:
        text = f.read()
    container = pod.daemonset()["containers"][0]
    for name in container["securityContext"]["capabilities"]["add"]:
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if line.strip().split(" #")[0] == f"- {name}")
        assert "#" in lines[at] or lines[at - 1].strip().startswith("#"), name
    assert {m["mountPath"] for m in container["volumeMounts"]} >= {"/sys/kernel/tracing", "/sys/fs/bpf", "/var/log/containers"}
    assert re.search(r"bpffs\b", text) and os.path.exists(f"{ROOT}/deploy/k8s/render.sh")
