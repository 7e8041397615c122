# SPDX-License-Identifier: Apache-2.0
"""pod.py MANIFEST VOLUME,... COMMAND...: runs the command as the kubelet and the container runtime would run the
DaemonSet: a mount namespace with a separate /sys without tracefs, the hostPath volumes named here, the read-only root
and the capabilities of the manifest. PID and network namespace are the host's, as in the manifest. As a module:
prefix(), daemonset()."""
import ctypes
import os
import subprocess
import sys
import tempfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
MANIFEST = os.path.abspath(os.path.join(HERE, "..", "..", "deploy", "k8s", "base", "daemonset.yaml"))

CLONE_NEWNS, MNT_DETACH, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 2, 1, 32, 4096, 0x4000, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def daemonset(path=MANIFEST):
    with open(path) as f:
        return next(d for d in yaml.safe_load_all(f) if d["kind"] == "DaemonSet")["spec"]["template"]["spec"]


def host_volumes(spec):
    return [v["name"] for v in spec["volumes"] if "hostPath" in v]


def prefix(volumes=None, path=MANIFEST):
    """`volumes`: a choice among the hostPath volumes of the manifest."""
    volumes = host_volumes(daemonset(path)) if volumes is None else volumes
    return ["/usr/bin/python3", os.path.abspath(__file__), path, ",".join(volumes)]


def mount(source, target, kind, flags, data=None):
    if libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data):
        raise OSError(ctypes.get_errno(), f"mount {target}")


def mount_volume(container, name, source):
    for m in container["volumeMounts"]:
        if m["name"] == name:
            os.makedirs(m["mountPath"], exist_ok=True)
            mount(source, m["mountPath"], None, MS_BIND | MS_REC)
            if m.get("readOnly"):
                mount("none", m["mountPath"], None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def make_mounts(spec, container, volumes):
    sources = {v["name"]: v["hostPath"] for v in spec["volumes"] if v["name"] in volumes}
    assert libc.unshare(CLONE_NEWNS) == 0
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    stage = tempfile.mkdtemp()
    mount("tmpfs", stage, "tmpfs", 0)
    # opens the volumes' sources on the host, and the cgroups, present in every container, before /sys is
    # replaced
    for name, source in [*sources.items(), ("cgroup", {"path": "/sys/fs/cgroup"})]:
        if source.get("type") == "DirectoryOrCreate":
            os.makedirs(source["path"], exist_ok=True)
        os.mkdir(f"{stage}/{name}")
        mount(source["path"], f"{stage}/{name}", None, MS_BIND | MS_REC)
    if libc.umount2(b"/sys", MNT_DETACH):
        raise OSError(ctypes.get_errno(), "umount /sys")
    mount("sysfs", "/sys", "sysfs", MS_RDONLY)
    mount(f"{stage}/cgroup", "/sys/fs/cgroup", None, MS_BIND | MS_REC)
    for name in sources:
        mount_volume(container, name, f"{stage}/{name}")
    libc.umount2(stage.encode(), MNT_DETACH)
    os.rmdir(stage)
    if container["securityContext"]["readOnlyRootFilesystem"]:
        mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def main():
    spec = daemonset(sys.argv[1])
    container = spec["containers"][0]
    make_mounts(spec, container, sys.argv[2].split(",") if sys.argv[2] else [])
    context = container["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"] and context["runAsUser"] == 0
    caps = ",".join(["-all"] + ["+" + name.lower() for name in context["capabilities"]["add"]])
    os.execvp("setpriv", ["setpriv", f"--bounding-set={caps}", "--inh-caps=-all", "--", *sys.argv[3:]])


if __name__ == "__main__":
    main()
