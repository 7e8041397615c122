# SPDX-License-Identifier: Apache-2.0
"""A container without a container runtime: container.py ID LOWER BIND... -- COMMAND... runs the command in new user,
mount, PID and cgroup namespaces, in a cgroup named as Docker does, with a private overlay over LOWER as root. The
folders BIND have the same paths inside. Prints nothing; exits as the command does."""
import ctypes
import glob
import os
import shutil
import signal
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x2000000, 0x10000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH, PR_SET_PDEATHSIG = 4096, 16384, 1 << 18, 2, 1
SYS_PIVOT_ROOT = 155 if os.uname().machine == "x86_64" else 41


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source, target, kind=None, flags=0, data=None):
    check(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data and data.encode()))


def cgroups(name):
    """The folder with the given name in each hierarchy: version 1 and 2."""
    found = []
    if os.path.exists("/sys/fs/cgroup/cgroup.procs"):
        return ["/sys/fs/cgroup/" + name]
    for hierarchy in glob.glob("/sys/fs/cgroup/*/cgroup.procs"):
        if "cpuset" not in hierarchy:  # in this hierarchy, a group needs CPUs before the first process
            found.append(os.path.join(os.path.dirname(hierarchy), name))
    return found


def enter_cgroup(name):
    for folder in cgroups(name):
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/cgroup.procs", "w") as f:
            f.write("0")


def leave_cgroup(name):
    for folder in cgroups(name):
        try:
            os.rmdir(folder)
        except OSError:
            pass


def make_root(lower, binds, work):
    for name in "upper", "work", "root":
        os.mkdir(f"{work}/{name}")
    root = work + "/root"
    mount("overlay", root, "overlay", 0, f"lowerdir={lower},upperdir={work}/upper,workdir={work}/work,userxattr")
    for folder in binds:
        os.makedirs(root + folder, exist_ok=True)
        mount(folder, root + folder, None, MS_BIND | MS_REC)
    mount("/dev", root + "/dev", None, MS_BIND | MS_REC)
    mount("proc", root + "/proc", "proc")
    os.mkdir(root + "/old")
    check(libc.syscall(SYS_PIVOT_ROOT, root.encode(), (root + "/old").encode()))
    os.chdir("/")
    check(libc.umount2(b"/old", MNT_DETACH))


def run(command, lower, binds, work):
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setgid(0)
    os.setuid(0)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    make_root(lower, binds, work)
    os.execv(command[0], command)


def main():
    container_id, lower = sys.argv[1:3]
    binds, command = sys.argv[3:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
    cgroup = f"docker-{container_id}.scope"
    # on a disk, as with a runtime: the kernel does not distinguish a copy in a tmpfs from a FUSE, and such a copy is
    # refused
    work = tempfile.mkdtemp(dir="/var/tmp", prefix="underspan-container-")
    go_read, go = os.pipe()
    made_read, made = os.pipe()
    middle = os.fork()
    if middle == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        enter_cgroup(cgroup)
        check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWCGROUP))
        os.write(made, b"x")
        os.read(go_read, 1)  # the ids are mapped
        child = os.fork()
        if child == 0:
            run(command, lower, binds, work)
        os.close(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    os.close(made)
    if not os.read(made_read, 1):
        sys.exit("no namespaces of its own")  # the child has said why
    for kind in "uid_map", "gid_map":
        with open(f"/proc/{middle}/{kind}", "w") as f:
            f.write("0 0 65536")
    os.write(go, b"x")
    os.close(0)
    status = os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1])
    leave_cgroup(cgroup)
    shutil.rmtree(work, ignore_errors=True)
    sys.exit(status & 255)


main()
