# SPDX-License-Identifier: Apache-2.0
"""Containers as the kubelet and a container runtime run them, here with runc: its namespaces, cgroup, capabilities, seccomp profile,
masked paths and mounts are those of a pod's manifest."""
import json
import os
import re
import subprocess

PROFILE = "/usr/share/containers/seccomp.json"  # RuntimeDefault of podman and CRI-O; Docker's and containerd's for these calls
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
          "/proc/scsi", "/sys/firmware"]
READONLY = ["/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
CAPABILITIES = {"SYS_ADMIN": 21, "SYS_PTRACE": 19, "DAC_READ_SEARCH": 2, "SYSLOG": 34, "SYS_RESOURCE": 24}  # <linux/capability.h>
BYTES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def seccomp(capabilities, machine=os.uname().machine):
    """The profile for a container with these capabilities, in the runtime's form."""
    with open(PROFILE) as f:
        profile = json.load(f)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[machine]
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if set(includes.get("caps", [])) <= set(capabilities) and arch in includes.get("arches", [arch]) \
                and not set(excludes.get("caps", [])) & set(capabilities) and arch not in excludes.get("arches", []):
            rules.append({"names": rule["names"], "action": rule["action"],
                          **({"args": rule["args"]} if rule.get("args") else {}),
                          **({"errnoRet": rule["errnoRet"]} if rule.get("errnoRet") else {})})
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
            "architectures": [f"SCMP_ARCH_{machine.upper()}"], "syscalls": rules}


def grantable(names):
    """Of the capabilities those that this machine has: a CI's machine may lack SYS_RESOURCE, which Linux 5.11 and newer do not ask for."""
    with open("/proc/self/status") as f:
        mine = int(next(line for line in f if line.startswith("CapBnd")).split()[1], 16)
    return [name for name in names if mine >> CAPABILITIES[name] & 1]


def base_mounts():
    options = ["nosuid", "noexec", "nodev"]
    return [{"destination": "/proc", "type": "proc", "source": "proc", "options": options},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*options, "mode=1777", "size=65536k"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*options, "ro"]},
            {"destination": "/sys/fs/cgroup", "type": "bind", "source": "/sys/fs/cgroup", "options": ["rbind", "ro"]}]


def config(args, rootfs, capabilities, host_pid=False, mounts=(), env=(), read_only=True):
    own = ["mount", "ipc", "uts"] + ([] if host_pid else ["pid"])  # the network is the host's, as hostNetwork
    granted = {kind: capabilities for kind in ("bounding", "effective", "permitted")}
    return {
        "ociVersion": "1.0.2", "hostname": "node-1", "root": {"path": rootfs, "readonly": read_only},
        "process": {"user": {"uid": 0, "gid": 0}, "args": args, "cwd": "/", "env": list(env), "capabilities": granted},
        "mounts": [*base_mounts(), *mounts],
        "linux": {"namespaces": [{"type": kind} for kind in own], "seccomp": seccomp(capabilities), "maskedPaths": MASKED,
                  "readonlyPaths": READONLY}}


def memory_limit(container):
    number, unit = re.fullmatch(r"(\d+)(\w+)", container["resources"]["limits"]["memory"]).groups()
    return int(number) * BYTES[unit]


def pod_container(spec, image, rootfs, volumes, variables):
    """The first container of a pod's spec. `image`: the image's config; `volumes`: folders for volumes that are not the host's;
    `variables`: values of the downward API, by field path."""
    container = spec["containers"][0]
    context = container["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"] and spec["hostPID"] and spec["hostNetwork"] and not context["privileged"]
    assert context["seccompProfile"]["type"] == "RuntimeDefault"
    env = {e["name"]: e.get("value") or variables[e["valueFrom"]["fieldRef"]["fieldPath"]] for e in container["env"]}
    # `args` replaces CMD, not ENTRYPOINT
    args = image["Entrypoint"] + [re.sub(r"\$\((\w+)\)", lambda m: env[m[1]], a) for a in container.get("args", image["Cmd"])]
    mounts = []
    for m in container["volumeMounts"]:
        volume = next(v for v in spec["volumes"] if v["name"] == m["name"])
        source = volumes.get(m["name"]) or volume["hostPath"]["path"]
        if volume.get("hostPath", {}).get("type") == "DirectoryOrCreate":
            os.makedirs(source, exist_ok=True)
        mounts.append({"destination": m["mountPath"], "type": "bind", "source": source, "options": ["rbind", "rprivate", "ro" if m.get("readOnly") else "rw"]})
    return config(args, rootfs, ["CAP_" + c for c in grantable(context["capabilities"]["add"])], host_pid=True, mounts=mounts,
                  env=image["Env"] + [f"{k}={v}" for k, v in env.items()], read_only=context["readOnlyRootFilesystem"])


class Container:
    """A running container."""

    def __init__(self, name, folder, spec, cgroup, memory=None):
        spec["linux"]["cgroupsPath"] = cgroup
        spec["linux"]["resources"] = {"devices": [{"allow": False, "access": "rwm"}], **({"memory": {"limit": memory}} if memory else {})}
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/config.json", "w") as f:
            json.dump(spec, f)
        self.name, self.log = name, f"{folder}/log"
        subprocess.run(["runc", "delete", "-f", name], stderr=subprocess.DEVNULL)
        self.out = open(self.log, "w")
        self.process = subprocess.Popen(["runc", "run", "--bundle", folder, name], stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out)

    @property
    def pid(self):
        return json.loads(subprocess.check_output(["runc", "state", self.name]))["pid"]

    def said(self):
        with open(self.log) as f:
            return f.read()

    def stop(self):
        """As the kubelet does; its exit code."""
        for signal in "TERM", "KILL":
            subprocess.run(["runc", "kill", self.name, signal], stderr=subprocess.DEVNULL)
            try:
                code = self.process.wait(20)
                break
            except subprocess.TimeoutExpired:
                pass
        subprocess.run(["runc", "delete", "-f", self.name], stderr=subprocess.DEVNULL)
        return code
