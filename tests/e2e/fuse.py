# SPDX-License-Identifier: Apache-2.0
"""A file system that is a program: one file, served from memory until SIGUSR1 comes; then it says no more, until SIGUSR2.
fuse.py [--overlay] FILE NAME COMMAND...: serves the content of FILE as NAME in a folder that only a mount namespace of its own
has, and runs the command there, "{}" being the path of NAME. Ends with the command, or by a signal.
The command has to start {} itself ("env {} ..."), for this program waits for what it starts.
--overlay: the path is in an overlay over that folder, as container images that are fetched while they run have it."""
import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 16384, 1 << 18
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, ACCESS, BATCH_FORGET = 1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 34, 42
ENOENT, ENOSYS = 2, 38
FOREVER = 1 << 30
silent = False
unanswered = []


def attributes(node, size):
    mode, links = (0o40755, 2) if node == 1 else (0o100755, 1)
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


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


def serve(device, name, content):
    while True:
        request = os.read(device, 1 << 20)
        if silent:
            unanswered.append(request)
        else:
            respond(device, name, content, request)


def stop_answering(*_):
    global silent
    silent = True


def main():
    overlay = sys.argv[1] == "--overlay"
    file, name, *words = sys.argv[1 + overlay:]
    with open(file, "rb") as f:
        content = f.read()

    def answer_again(*_):
        global silent
        silent = False
        while unanswered:
            respond(device, name.encode(), content, unanswered.pop(0))

    signal.signal(signal.SIGUSR2, answer_again)
    signal.signal(signal.SIGUSR1, stop_answering)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        sys.exit("no mount namespace")
    folder = tempfile.mkdtemp()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"trap", folder.encode(), b"fuse.trap", 0, options):
        sys.exit("cannot mount: " + os.strerror(ctypes.get_errno()))
    threading.Thread(target=serve, args=(device, name.encode(), content), daemon=True).start()
    path = f"{folder}/{name}"
    if overlay:
        root, empty = tempfile.mkdtemp(), tempfile.mkdtemp()
        if libc.mount(b"overlay", root.encode(), b"overlay", 0, f"lowerdir={folder}:{empty}".encode()):
            sys.exit("cannot mount an overlay: " + os.strerror(ctypes.get_errno()))
        path = f"{root}/{name}"
    command = subprocess.Popen([word.replace("{}", path) for word in words])
    print(command.pid, flush=True)
    code = command.wait()
    os.close(device)
    if not overlay and not os.path.ismount(folder):
        os.rmdir(folder)
    os._exit(code & 255)


if __name__ == "__main__":
    main()
