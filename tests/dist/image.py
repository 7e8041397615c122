# SPDX-License-Identifier: Apache-2.0
"""image.py ARCHIVE DIGEST PYTHON_ROOT UNDERSPAN: runs the image of `make image` as the DaemonSet of deploy/k8s is run on a node, beside a
Python in a container of another pod, and asks the store for that container's rows. Needs root, runc, umoci; leaves nothing behind."""
import hashlib
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import kubelet  # noqa: E402
import pod  # noqa: E402

REQUESTS, ID = 30, "5a" * 32
UID, OWN_UID = "0f0e0d0c-1111-2222-3333-444455556666", "0f0e0d0c-1111-2222-3333-777788889999"
NAMES = {"pod": "shop-7d9f-x2x", "namespace": "prod", "container": "web"}
SERVICE = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.03)
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", %d), Handler).serve_forever()
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, timeout=5):
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return 0


def wait(what, check, seconds=60):
    until = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.2)
    return found


def unpack(archive, digest, work):
    """The root file system and the image's configuration, read by umoci; and the digest is the manifest's."""
    with tarfile.open(archive) as tar:
        tar.extractall(f"{work}/layout")
    with open(f"{work}/layout/index.json") as f:
        (found,) = json.load(f)["manifests"]
    assert found["digest"] == digest, found
    blob = lambda d: f"{work}/layout/blobs/{d.replace(':', '/')}"  # noqa: E731
    with open(blob(digest), "rb") as f:
        manifest = f.read()
    assert "sha256:" + hashlib.sha256(manifest).hexdigest() == digest
    with open(blob(json.loads(manifest)["config"]["digest"])) as f:
        image = json.load(f)["config"]
    tag = found["annotations"]["org.opencontainers.image.ref.name"]
    subprocess.run(["umoci", "unpack", "--image", f"{work}/layout:{tag}", f"{work}/bundle"], check=True, stdout=subprocess.DEVNULL)
    return f"{work}/bundle/rootfs", image


def start_store(underspan, work):
    port, output = free_port(), open(f"{work}/store.log", "w")
    store = subprocess.Popen([underspan, "store", "--no-config", f"--path={work}/store", f"--listen=127.0.0.1:{port}"], stdout=output, stderr=output)
    wait("the store", lambda: os.path.exists(f"{work}/store/endpoint") and get(f"http://127.0.0.1:{port}/ping"))
    subprocess.run([underspan, "schema", "--no-config", f"--store={work}/store", "--apply"], check=True, stdout=subprocess.DEVNULL)
    return store, port


def volumes(work, store_port):
    """What the operator makes once: configuration and password; and the node's folders that the tests must not touch."""
    for name in "config", "password", "state", "containers":
        os.mkdir(f"{work}/{name}")
    with open(f"{work}/config/underspan.json", "w") as f:
        json.dump({"clickhouse": f"http://127.0.0.1:{store_port}", "clickhouse_user": "default", "flush_interval": "1s",
                   "clickhouse_password_file": "/run/secrets/underspan/clickhouse-password",
                   "spool": {"directory": "/var/lib/underspan/spool"}}, f)
    with open(f"{work}/store/password") as f, open(f"{work}/password/clickhouse-password", "w") as to:
        to.write(f.read())
    os.chmod(f"{work}/password/clickhouse-password", 0o400)
    open(f"{work}/containers/{NAMES['pod']}_{NAMES['namespace']}_{NAMES['container']}-{ID}.log", "w").close()
    return {name: f"{work}/{name}" for name in ("config", "password", "state", "containers")}


def check_confinement(agent):
    """The agent's process is as the manifest says."""
    with open(f"/proc/{agent.pid}/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    assert int(status["CapBnd"], 16) & ~sum(1 << n for n in kubelet.CAPABILITIES.values()) == 0, status["CapBnd"]
    assert status["Seccomp"].strip() == "2"
    with open(f"/proc/{agent.pid}/mountinfo") as f:
        mounts = {line.split()[4]: line.split()[5].split(",") for line in f}
    for path in "/", "/sys", "/sys/kernel/tracing", "/sys/fs/bpf", "/etc/underspan", "/run/secrets/underspan", "/var/log/containers":
        assert "ro" in mounts[path], (path, mounts.get(path))
    assert "rw" in mounts["/var/lib/underspan"]
    for kind, same in ("pid", True), ("net", True), ("mnt", False), ("uts", False):
        assert (os.readlink(f"/proc/{agent.pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")) == same, kind


def main():
    archive, digest, python_root, underspan = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        os.chmod(work, 0o755)
        rootfs, image = unpack(archive, digest, work)
        store, store_port = start_store(underspan, work)
        started = []
        try:
            run(work, rootfs, image, python_root, underspan, store_port, started)
        except BaseException:
            for container in started:
                print(f"---- {container.name}\n{container.said()}", file=sys.stderr)
            raise
        finally:
            for container in started:
                container.stop()
            store.terminate()
            store.wait(30)


def run(work, rootfs, image, python_root, underspan, store_port, started):
    port, metrics = free_port(), free_port()
    web = kubelet.Container("underspan-test-web", f"{work}/web", kubelet.config(
        ["/usr/bin/python3", "-c", SERVICE % port], python_root, [], env=["PATH=/usr/bin:/bin", "OTEL_SERVICE_NAME=shop"]),
        f"/kubepods/burstable/pod{UID}/{ID}")
    started.append(web)
    wait("the service", lambda: web.process.poll() is not None or get(f"http://127.0.0.1:{port}/") == 200)
    spec = pod.daemonset()
    container = spec["containers"][0]
    container["args"] = [a.replace(":9464", f":{metrics}") for a in container["args"]]
    agent = kubelet.Container("underspan-test-agent", f"{work}/agent", kubelet.pod_container(
        spec, image, rootfs, volumes(work, store_port), {"spec.nodeName": "node-1", "status.hostIP": "127.0.0.1"}),
        f"/kubepods/burstable/pod{OWN_UID}/{'6b' * 32}", kubelet.memory_limit(container))
    started.append(agent)
    for probe in "startupProbe", "livenessProbe", "readinessProbe":
        wait(probe, lambda: agent.process.poll() is not None or get(f"http://127.0.0.1:{metrics}{container[probe]['httpGet']['path']}") == 200)
    check_confinement(agent)

    def rows(path):
        query = f"SELECT service, namespace, pod, container, host, pod_uid, count() AS n FROM ebpf_request WHERE path = '{path}' GROUP BY ALL"
        told = subprocess.run([underspan, "sql", "--no-config", f"--store={work}/store", "--format=JSONEachRow", query], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
        return [json.loads(line) for line in told.splitlines()]

    # until the service is watched, and its names are known
    wait("a named row", lambda: get(f"http://127.0.0.1:{port}/first") and any(r["service"] == "shop" for r in rows("/first")))
    threads = [threading.Thread(target=lambda: [get(f"http://127.0.0.1:{port}/counted") for _ in range(REQUESTS // 5)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = wait("a row for each request", lambda: (r := rows("/counted")) and sum(int(x["n"]) for x in r) >= REQUESTS and r)
    expected = {"service": "shop", **NAMES, "host": "node-1", "pod_uid": UID, "n": REQUESTS}
    assert [{**r, "n": int(r["n"])} for r in found] == [expected], found
    assert agent.stop() == 0, agent.said()
    started.remove(agent)
    capabilities = container["securityContext"]["capabilities"]["add"]
    missing = set(capabilities) - set(kubelet.grantable(capabilities))
    print(f"{REQUESTS} requests of a container are {REQUESTS} rows of {NAMES['namespace']}/{NAMES['pod']}; read-only root, seccomp, 256Mi, "
          f"capabilities of the manifest{' but ' + ', '.join(missing) + ', which this machine cannot grant' if missing else ''}")


main()
