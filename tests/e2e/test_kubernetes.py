# SPDX-License-Identifier: Apache-2.0
"""The manifest of deploy/k8s: fields valid in Kubernetes, effects of an upgrade, and the agent as run by the kubelet."""
import glob
import json
import os
import re
import subprocess
import urllib.request

import pytest
import yaml

import host
import pod
import servers
from agent import ROOT
from bpf_maps import BPFTOOL

pytestmark = pytest.mark.light

BASE = os.path.dirname(pod.MANIFEST)
FOLDER = os.path.dirname(BASE)
VERSION = re.search(r'UNDERSPAN_VERSION "(.*)"', open(f"{ROOT}/src/base/version.h").read())[1]

# Fields of the used objects, by the API's reference; "!" are required. A dict: of one object; a list: of each of a list;
# None: any value.
METADATA = {"!name": None, "namespace": None, "labels": None, "annotations": None}
PROBE = {"httpGet": {"path": None, "!port": None, "host": None, "scheme": None, "httpHeaders": None}, "initialDelaySeconds": None,
         "periodSeconds": None, "timeoutSeconds": None, "successThreshold": None, "failureThreshold": None}
CONTAINER = {
    "!name": None, "!image": None, "imagePullPolicy": None, "command": None, "args": None, "startupProbe": PROBE,
    "livenessProbe": PROBE, "readinessProbe": PROBE, "lifecycle": None,
    "env": [{"!name": None, "value": None, "valueFrom": {"fieldRef": {"!fieldPath": None}}}],
    "ports": [{"name": None, "!containerPort": None, "hostPort": None, "protocol": None}],
    "resources": {"requests": {"cpu": None, "memory": None}, "limits": {"cpu": None, "memory": None}},
    "volumeMounts": [{"!name": None, "!mountPath": None, "readOnly": None, "mountPropagation": None, "subPath": None}],
    "securityContext": {"privileged": None, "readOnlyRootFilesystem": None, "runAsUser": None, "allowPrivilegeEscalation": None,
                        "seccompProfile": {"!type": None}, "appArmorProfile": {"!type": None},
                        "capabilities": {"add": None, "drop": None}}}
POD = {
    "hostPID": None, "hostNetwork": None, "dnsPolicy": None, "automountServiceAccountToken": None, "priorityClassName": None,
    "terminationGracePeriodSeconds": None, "tolerations": [{"operator": None, "key": None, "effect": None, "value": None}],
    "nodeSelector": None, "affinity": None, "imagePullSecrets": [{"!name": None}], "!containers": [CONTAINER],
    "volumes": [{"!name": None, "configMap": {"!name": None}, "secret": {"!secretName": None, "defaultMode": None},
                 "hostPath": {"!path": None, "type": None}}]}
KINDS = {
    ("v1", "Namespace"): {},
    ("v1", "Secret"): {"stringData": None, "type": None},
    ("v1", "ConfigMap"): {"data": None},
    ("monitoring.coreos.com/v1", "PodMonitor"): {"!spec": {
        "!selector": {"!matchLabels": None},
        "!podMetricsEndpoints": [{"port": None, "path": None, "interval": None,
                                  "relabelings": [{"sourceLabels": None, "targetLabel": None}]}]}},
    ("apps/v1", "DaemonSet"): {"!spec": {
        "!selector": {"!matchLabels": None},
        "updateStrategy": {"type": None, "rollingUpdate": {"maxUnavailable": None, "maxSurge": None}},
        "!template": {"!metadata": {"!labels": None, "annotations": None}, "!spec": POD}}}}


class UniqueKeys(yaml.SafeLoader):
    """A duplicate key is a mistake; YAML would take the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), (node.start_mark, keys)
        return super().construct_mapping(node, deep)


def load(path):
    with open(path) as f:
        return list(yaml.load_all(f, UniqueKeys))


def check_fields(value, schema, where):
    if schema is None:
        assert value is not None, where
    elif isinstance(schema, list):
        assert isinstance(value, list) and value, where
        for i, item in enumerate(value):
            check_fields(item, schema[0], f"{where}[{i}]")
    else:
        assert isinstance(value, dict), where
        known = {name.lstrip("!"): of for name, of in schema.items()}
        assert set(value) <= set(known), f"{where}: no such field: {set(value) - set(known)}"
        missing = {name[1:] for name in schema if name[0] == "!"} - set(value)
        assert not missing, f"{where}: missing {missing}"
        for name, of in value.items():
            check_fields(of, known[name], f"{where}.{name}")


def documents():
    """Objects of the cluster: all files except the kustomizations and the chart."""
    for path in glob.glob(f"{FOLDER}/**/*.yaml", recursive=True):
        if os.path.basename(path) != "kustomization.yaml" and not path.startswith(f"{FOLDER}/chart/"):
            for d in load(path):
                yield os.path.relpath(path, FOLDER), d


def check_object(d, where):
    schema = {"!apiVersion": None, "!kind": None, "!metadata": METADATA, **KINDS[d["apiVersion"], d["kind"]]}
    check_fields(d, schema, f"{where} {d['kind']}")


def test_fields_are_those_of_kubernetes():
    for path, d in documents():
        check_object(d, path)


def test_references_hold():
    there = {(d["kind"], d["metadata"]["name"]): d for _, d in documents()}
    spec = pod.daemonset()
    container = spec["containers"][0]
    volumes = {v["name"]: v for v in spec["volumes"]}
    assert {m["name"] for m in container["volumeMounts"]} == set(volumes)
    for v in volumes.values():
        assert "configMap" not in v or ("ConfigMap", v["configMap"]["name"]) in there
        assert "secret" not in v or ("Secret", v["secret"]["secretName"]) in there
    daemonset = there["DaemonSet", "underspan"]
    template = daemonset["spec"]["template"]
    assert template["metadata"]["labels"] == daemonset["spec"]["selector"]["matchLabels"]
    port = template["metadata"]["annotations"]["prometheus.io/port"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    names = {e["name"] for e in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= names
    assert f"--metrics.listen=$(NODE_IP):{port}" in container["args"]
    for probe, path in ("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/healthz"):
        get = container[probe]["httpGet"]
        assert get["path"] == path and str(ports[get["port"]]) == port
    config = json.loads(there["ConfigMap", "underspan"]["data"]["underspan.json"])
    mounts = {m["mountPath"]: volumes[m["name"]] for m in container["volumeMounts"]}
    folder, name = os.path.split(config["clickhouse_password_file"])
    assert "secret" in mounts[folder] and name in there["Secret", "underspan"]["stringData"]
    assert "hostPath" in mounts[os.path.dirname(config["spool"]["directory"])]
    assert f"{os.path.dirname(container['args'][2])}" in mounts and os.path.basename(container["args"][2]) == "underspan.json"


def test_an_upgrade_changes_nothing_that_is_the_users():
    """`kubectl apply -k`: no kustomization names an object that is created once, or makes such an object."""
    paths = glob.glob(f"{FOLDER}/**/kustomization.yaml", recursive=True)
    assert len(paths) == 3
    for path in paths:
        (k,) = load(path)
        assert not {"secretGenerator", "configMapGenerator"} & set(k)
        for name in k.get("resources", []):
            found = os.path.normpath(os.path.join(os.path.dirname(path), name))
            files = [found] if os.path.isfile(found) else [f"{found}/kustomization.yaml"]
            assert "once" not in found and not {d["kind"] for f in files for d in load(f)} & {"Secret", "ConfigMap"}, path
    image = pod.daemonset()["containers"][0]["image"]
    assert image.split("@")[0].endswith(f":{VERSION}")
    assert pod.daemonset()["priorityClassName"]


# ---- output of Kustomize ----

def kustomize(folder):
    """{(kind, name): object}, as sent by `kubectl apply -k`."""
    program = f"{host.CACHE}/kubernetes/kubectl"
    if not os.path.exists(program):
        pytest.skip("tests/e2e/helm.sh has no kubectl for this machine")
    done = subprocess.run([program, "kustomize", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(done.stdout)}


def test_the_base_is_the_manifest():
    assert kustomize(BASE) == {(d["kind"], d["metadata"]["name"]): d for d in load(pod.MANIFEST)}


def test_the_example_changes_what_it_says():
    """Image, nodes, memory and the operator's scraping; the rest, above all the rights, comes from the base."""
    base, found = kustomize(BASE), kustomize(f"{FOLDER}/example")
    monitor = found.pop(("PodMonitor", "underspan"))
    assert [monitor] == load(f"{FOLDER}/pod-monitor/pod-monitor.yaml")
    template, mine = (d["DaemonSet", "underspan"]["spec"]["template"] for d in (base, found))
    assert monitor["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] in {p["name"] for p in template["spec"]["containers"][0]["ports"]}
    assert not mine["metadata"].pop("annotations") and template["metadata"].pop("annotations")  # scraped once
    container, other = template["spec"]["containers"][0], mine["spec"]["containers"][0]
    assert re.fullmatch(r"registry\.example\.com/underspan@sha256:[0-9a-f]{64}", other.pop("image")) and container.pop("image")
    assert (container["resources"]["limits"].pop("memory"), other["resources"]["limits"].pop("memory")) == ("256Mi", "512Mi")
    assert mine["spec"].pop("nodeSelector") == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    assert found == base


# ---- the agent, as run by the kubelet ----

def programs_of_all_system_calls():
    """Names in the kernel, truncated to 15 characters."""
    found = set()
    for path in glob.glob(f"{ROOT}/bpf/**/*.[ch]", recursive=True):
        with open(path) as f:
            found |= {name[:15] for name in re.findall(r'SEC\("\??(?:tp_btf|raw_tp)/sys_(?:enter|exit)"\)\s*int BPF_PROG\((\w+)',
                                                       f.read())}
    assert len(found) >= 4
    return found


def attached(pid):
    """Names of the programs with links held by the process."""
    names = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{fd}", errors="replace") as f:  # paths of watched files have any bytes
                fields = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
        except FileNotFoundError:
            continue
        if "link_id" in fields:
            names.add(json.loads(subprocess.check_output([BPFTOOL, "-j", "prog", "show", "id", fields["prog_id"]]))["name"])
    return names


@pytest.fixture
def pod_agent(start_agent):
    """With the manifest's arguments, but for the file."""
    port = servers.free_port()

    def start(volumes=None, *more):
        args = [a.replace("$(NODE_NAME)", "node-1").replace("$(NODE_IP):9464", f"127.0.0.1:{port}")
                for a in pod.daemonset()["containers"][0]["args"] if a.startswith("--")]
        agent = start_agent(*args, *more, prefix=pod.prefix(volumes))
        agent.port = port
        return agent

    return start


def test_no_program_runs_on_all_system_calls(pod_agent, debian_python, start_workload):
    agent = pod_agent()
    workload = start_workload(debian_python, "everything.py", 2).wait_covered(agent)
    names = attached(agent.pid)
    assert len(names) > 20 and not names & programs_of_all_system_calls(), names
    with open(f"/proc/{agent.pid}/mountinfo") as f:
        mounts = {line.split()[4]: line.split()[5] for line in f}
    assert "ro" in mounts["/sys/kernel/tracing"].split(",") and "ro" in mounts["/sys"].split(",")
    container = pod.daemonset()["containers"][0]
    for probe in "startupProbe", "livenessProbe", "readinessProbe":
        path = container[probe]["httpGet"]["path"]
        with urllib.request.urlopen(f"http://127.0.0.1:{agent.port}{path}", timeout=5) as answer:
            assert answer.status == 200
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    for table in "handoff", "gc_pause", "gil_wait", "off_cpu", "tcp_accept", "tcp_connect":
        rows = agent.select("ebpf_" + table, lambda r: r["host_pid"] == workload.pid)
        assert rows and {r["host"] for r in rows} == {"node-1"}, table


WITHOUT_TRACEFS = [v for v in pod.host_volumes(pod.daemonset()) if v not in ("tracefs", "debugfs")]


def test_without_tracefs_the_agent_has_a_mount_of_its_own(pod_agent, debian_python, start_workload):
    """Which no path leads to; and the tracepoints found there are attached to and right."""
    agent = pod_agent(WITHOUT_TRACEFS)
    workload = start_workload(debian_python, "everything.py", 2).wait_covered(agent)
    assert not attached(agent.pid) & programs_of_all_system_calls()
    with open(f"/proc/{agent.pid}/mountinfo") as f:
        assert "tracefs" not in f.read()
    workload.say()
    workload.read()
    workload.finish()
    agent.stop()
    for table in "handoff", "tcp_accept", "tcp_connect":
        assert agent.select("ebpf_" + table, lambda r: r["host_pid"] == workload.pid), table


def test_without_the_right_to_mount_tracefs_they_do(pod_agent):
    """The tests above can fail."""
    agent = pod_agent(WITHOUT_TRACEFS, "--degrade=private_tracefs")
    assert attached(agent.pid) & programs_of_all_system_calls()
    agent.stop()


@pytest.mark.alone  # mounts debugfs, where an agent beside it would find tracefs
def test_where_tracefs_is_in_debugfs_only(pod_agent):
    """Amazon Linux 2."""
    mounted = subprocess.run(["mountpoint", "-q", "/sys/kernel/debug"]).returncode != 0 and \
        subprocess.run(["mount", "-t", "debugfs", "none", "/sys/kernel/debug"], stderr=subprocess.DEVNULL).returncode == 0
    try:
        if not os.path.exists("/sys/kernel/debug/tracing/events"):
            pytest.skip("this kernel has no tracefs in debugfs")
        agent = pod_agent([v for v in pod.host_volumes(pod.daemonset()) if v != "tracefs"])
        assert not attached(agent.pid) & programs_of_all_system_calls()
        agent.stop()
    finally:
        if mounted:
            subprocess.run(["umount", "/sys/kernel/debug"], check=True)
