# SPDX-License-Identifier: Apache-2.0
"""sandbox.py UNIT COMMAND...: runs the command with the unit's restrictions, without systemd: an unprivileged
user, exactly the capabilities of the unit, a filter of system calls (a violation kills), the socket families, a
read-only file system. As a module: prefix()."""
import ctypes
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = os.path.join(HERE, "..", "..", "deploy", "systemd", "underspan.service")
USER = 61184  # the first of systemd's dynamic users

libc = ctypes.CDLL(None, use_errno=True)


def prefix(unit=UNIT):
    return ["/usr/bin/python3", os.path.abspath(__file__), unit]


def read_unit(path):
    """{key: list of values, split at blanks}"""
    found = {}
    with open(path) as f:
        for line in f:
            match = re.match(r"(\w+)=(.*)", line)
            if match:
                found.setdefault(match[1], []).extend(match[2].split())
    return found


def expand(names):
    """System calls of names and groups (@system-service), as defined by systemd."""
    calls, groups = set(), list(names)
    while groups:
        name = groups.pop()
        if not name.startswith("@"):
            calls.add(name)
            continue
        text = subprocess.run(["systemd-analyze", "syscall-filter", name], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        groups += [line.strip() for line in text.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return calls


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno() or -result, "sandbox.py")


def install_filter(unit):
    """Implements SystemCallFilter, RestrictAddressFamilies and MemoryDenyWriteExecute."""
    class Compare(ctypes.Structure):
        _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]

    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    seccomp.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint,
                                               ctypes.POINTER(Compare)]
    KILL, ALLOW, ERRNO, EQ, MASKED_EQ = 0x80000000, 0x7fff0000, 0x00050000, 4, 7
    context = ctypes.c_void_p(seccomp.seccomp_init(KILL))

    def rule(name, action, *compares):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            check(seccomp.seccomp_rule_add_array(context, action, number, len(compares),
                                                 (Compare * len(compares))(*compares)))

    for name in expand(unit["SystemCallFilter"]) - {"socket", "mmap", "mprotect", "pkey_mprotect"}:
        rule(name, ALLOW)
    import socket
    allowed = {int(getattr(socket, name)) for name in unit["RestrictAddressFamilies"]}
    for family in range(64):
        rule("socket", ALLOW if family in allowed else ERRNO | 97, Compare(0, EQ, family, 0))
    exec_bit, write_exec = 4, 6
    rule("mmap", ERRNO | 1, Compare(2, MASKED_EQ, write_exec, write_exec))
    for bits in 0, 2, 4:
        rule("mmap", ALLOW, Compare(2, MASKED_EQ, write_exec, bits))
    for name in "mprotect", "pkey_mprotect":
        rule(name, ERRNO | 1, Compare(2, MASKED_EQ, exec_bit, exec_bit))
        rule(name, ALLOW, Compare(2, MASKED_EQ, exec_bit, 0))
    check(seccomp.seccomp_load(context))


def close_file_system():
    """ProtectSystem=strict, PrivateTmp=yes."""
    CLONE_NEWNS, MS_REC, MS_PRIVATE, AT_RECURSIVE, RDONLY, mount_setattr = 0x20000, 0x4000, 1 << 18, 0x8000, 1, 442
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    attributes = (ctypes.c_uint64 * 4)(RDONLY, 0, 0, 0)
    if libc.syscall(mount_setattr, -1, b"/", AT_RECURSIVE, ctypes.byref(attributes), 32):
        raise OSError(ctypes.get_errno(), "mount_setattr")
    for path in b"/tmp", b"/var/tmp":
        check(libc.mount(b"tmpfs", path, b"tmpfs", 0, b"mode=1777"))


def main():
    unit = read_unit(sys.argv[1])
    command = sys.argv[2:]
    # the binary and the configuration may lie where the new user cannot go, or in /tmp
    program = os.open(command[0], os.O_RDONLY)
    os.set_inheritable(program, True)
    command[0] = f"/proc/self/fd/{program}"
    # LeakSanitizer stops threads by ptrace(), a system call outside the unit's filter
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    bound = unit["CapabilityBoundingSet"]
    ambient = unit["AmbientCapabilities"]
    close_file_system()
    install_filter(unit)
    caps = {what: ",".join(["-all"] + ["+" + name.lower().replace("cap_", "") for name in names])
            for what, names in (("bounding", bound), ("ambient", ambient))}
    os.execvp("setpriv", ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                          f"--inh-caps={caps['ambient']}", f"--ambient-caps={caps['ambient']}",
                          f"--bounding-set={caps['bounding']}", "--no-new-privs", "--", *command])


if __name__ == "__main__":
    main()
