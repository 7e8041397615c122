# SPDX-License-Identifier: Apache-2.0
"""A file system in a program: one file, served from memory until SIGUSR1, then not answered until SIGUSR2.
fuse.py [--overlay|--detached|--long] FILE NAME COMMAND...: serves the content of FILE as NAME in a folder of a private mount namespace,
and runs the command there; "{}" is the path of NAME. Ends with the command, or by a signal.
The command has to start {} in a child ("env {} ..."), because fuse.py waits for direct children.
--overlay: the path is in an overlay over the folder, as with container images fetched on demand.
--detached: the file is open and the mount gone (umount -l) when the command begins.
--long: the folder's path is longer than PATH_MAX; the file is open when the command begins.
STALLS_AFTER=SECONDS, STALLS_FOR=PID in the environment: as soon as a reader process of the agent PID has read and closed the file,
the kernel's page cache of the file is dropped, and reads are not answered for so long: the agent's next access hangs.
SAME_NUMBER=PATH in the environment: the inode number makes "device << 40 ^ inode" equal to the value of the file PATH.
SAME_AS=PATH: number, size and times are copied from the file PATH; NUL bytes are appended to the content, or the end is cut off."""
import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 16384, 1 << 18
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, ACCESS, BATCH_FORGET = 1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 34, 42
ENOENT, ENOSYS = 2, 38
FOREVER = 1 << 30
silent = False
stalls_after = float(os.environ.get("STALLS_AFTER", 0))
stalled_until = 0
unanswered = []
inode_of_file = 2
modified_ns = changed_ns = 0


def attributes(node, size):
    mode, links = (0o40755, 2) if node == 1 else (0o100755, 1)
    (modified, modified_rest), (changed, changed_rest) = divmod(modified_ns, 10**9), divmod(changed_ns, 10**9)
    return struct.pack("<6Q10I", node if node == 1 else inode_of_file, size, (size + 511) // 512, 0, modified, changed,
                       0, modified_rest, changed_rest, mode, links, 0, 0, 0, 4096, 0)


def answer(opcode, node, body, name, content):
    """The reply's body, or the number of an error."""
    size = 0 if node == 1 else len(content)
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, *[0] * 8)
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != name:
            return ENOENT
        return struct.pack("<4Q2I", 2, 0, FOREVER, FOREVER, 0, 0) + attributes(2, len(content))
    if opcode == GETATTR:
        return struct.pack("<Q2I", FOREVER, 0, 0) + attributes(node, size)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 1, 0, 0)
    if opcode == STATFS:
        return struct.pack("<5Q4I6I", 1, 0, 0, 1, 0, 4096, 255, 4096, 0, *[0] * 6)
    if opcode == READ:
        offset, length = struct.unpack_from("<8xQI", body)
        return content[offset:offset + length]
    return b"" if opcode in (RELEASE, FLUSH, ACCESS) else ENOSYS


def respond(device, name, content, request):
    _, opcode, unique, node = struct.unpack_from("<2I2Q", request)
    if opcode in (FORGET, BATCH_FORGET):
        return
    reply = answer(opcode, node, request[40:], name, content)
    error, data = (-reply, b"") if isinstance(reply, int) else (0, reply)
    os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[1]
    except OSError:
        return "0"


def is_of_agent(pid):
    return parent_of(parent_of(pid)) == os.environ["STALLS_FOR"]


def forget_pages(device):
    """Drops the file from the kernel's page cache."""
    os.write(device, struct.pack("<IiQ", 16 + 24, 2, 0) + struct.pack("<Qqq", 2, 0, -1))


def begin_to_stall(seconds, device, *flush):
    global stalled_until
    forget_pages(device)  # waits for pages under read
    stalled_until = time.monotonic() + seconds
    respond(device, *flush)


def stall(*request):
    """True: the request is answered later."""
    global stalls_after
    _, opcode, _, _, _, _, pid = struct.unpack_from("<2I2Q3I", request[-1])
    if stalls_after and opcode == FLUSH and is_of_agent(pid):
        threading.Thread(target=begin_to_stall, args=(stalls_after, *request)).start()
        stalls_after = 0  # once
        return True
    later = stalled_until - time.monotonic()
    if opcode == READ and later > 0:
        threading.Timer(later, respond, request).start()
    return opcode == READ and later > 0


def serve(device, name, content):
    while True:
        request = os.read(device, 1 << 20)
        if (stalls_after or stalled_until) and stall(device, name, content, request):
            continue
        if silent:
            unanswered.append(request)
        else:
            respond(device, name, content, request)


def same_number(path, folder):
    other, own = os.stat(path), os.stat(folder).st_dev
    return (other.st_dev << 40 ^ other.st_ino ^ own << 40) & (1 << 64) - 1


def pretend_to_be(path, content):
    """Returns the content in the size of the file `path`."""
    global inode_of_file, modified_ns, changed_ns
    st = os.stat(path)
    inode_of_file, modified_ns, changed_ns = st.st_ino, st.st_mtime_ns, st.st_ctime_ns
    return content[:st.st_size].ljust(st.st_size, b"\0")


def own_mounts():
    """From now on mounts are this process's own, and end with it."""
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        sys.exit("no mount namespace")


def mount(folder):
    """Returns the descriptor on which the kernel asks."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"trap", folder.encode(), b"fuse.trap", 0, options):
        sys.exit("cannot mount: " + os.strerror(ctypes.get_errno()))
    return device


def stop_answering(*_):
    global silent
    silent = True


def go_deep():
    """Changes into a folder with a path longer than the kernel accepts."""
    os.chdir(tempfile.mkdtemp())
    for _ in range(20):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    os.mkdir("m")
    return "m"


def main():
    kind = sys.argv[1] if sys.argv[1].startswith("--") else ""
    overlay = kind == "--overlay"
    file, name, *words = sys.argv[1 + bool(kind):]
    with open(file, "rb") as f:
        content = f.read()
    if "SAME_AS" in os.environ:
        content = pretend_to_be(os.environ["SAME_AS"], content)

    def answer_again(*_):
        global silent
        silent = False
        while unanswered:
            respond(device, name.encode(), content, unanswered.pop(0))

    signal.signal(signal.SIGUSR2, answer_again)
    signal.signal(signal.SIGUSR1, stop_answering)
    own_mounts()
    folder = go_deep() if kind == "--long" else tempfile.mkdtemp()
    device = mount(folder)
    threading.Thread(target=serve, args=(device, name.encode(), content), daemon=True).start()
    global inode_of_file
    if "SAME_NUMBER" in os.environ:
        inode_of_file = same_number(os.environ["SAME_NUMBER"], folder)
    path = f"{folder}/{name}"
    if overlay:
        root, empty = tempfile.mkdtemp(), tempfile.mkdtemp()
        if libc.mount(b"overlay", root.encode(), b"overlay", 0, f"lowerdir={folder}:{empty}".encode()):
            sys.exit("cannot mount an overlay: " + os.strerror(ctypes.get_errno()))
        path = f"{root}/{name}"
    kept = ()
    if kind in ("--detached", "--long"):
        kept = (os.open(path, os.O_RDONLY),)
        if kind == "--detached":
            libc.umount2(folder.encode(), 2)
        path = f"/proc/self/fd/{kept[0]}"
    command = subprocess.Popen([word.replace("{}", path) for word in words], pass_fds=kept, cwd="/" if kind == "--long" else None)
    for fd in kept:  # otherwise the end would wait for an answer from this program
        os.close(fd)
    print(command.pid, flush=True)
    code = command.wait()
    os.close(device)
    if kind in ("", "--detached") and not os.path.ismount(folder):
        os.rmdir(folder)
    os._exit(code & 255)


if __name__ == "__main__":
    main()
