# SPDX-License-Identifier: Apache-2.0
"""A server of one thread per connection that reads each connection with a system call of its own choice: a port per call. Answers have a
Content-Length; the one to /open ends with the connection, behind a write of no bytes. On stderr: the ports as JSON, by call."""
import ctypes
import json
import mmap
import os
import re
import socket
import struct
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OPEN = b"HTTP/1.1 200 OK\r\n\r\nok"
ROOM = 65536
IORING_OP_RECV, IORING_ENTER_GETEVENTS = 27, 1
libc = ctypes.CDLL(None, use_errno=True)


class Uring:
    """One operation at a time."""
    SETUP, ENTER = 425, 426

    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.fd = libc.syscall(self.SETUP, 8, params)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "io_uring_setup")
        entries = struct.unpack_from("<2I", params)
        self.sq, self.cq = struct.unpack_from("<10I", params, 40), struct.unpack_from("<10I", params, 80)
        self.submitted = mmap.mmap(self.fd, self.sq[6] + 4 * entries[0], offset=0)
        self.completed = mmap.mmap(self.fd, self.cq[5] + 16 * entries[1], offset=0x8000000)
        self.operations = mmap.mmap(self.fd, 64 * entries[0], offset=0x10000000)

    def receive(self, fd):
        buffer = ctypes.create_string_buffer(ROOM)
        [tail], [mask] = struct.unpack_from("<I", self.submitted, self.sq[1]), struct.unpack_from("<I", self.submitted, self.sq[2])
        at = tail & mask
        self.operations[64 * at:64 * at + 64] = struct.pack("<BBHiQQIIQ24x", IORING_OP_RECV, 0, 0, fd, 0, ctypes.addressof(buffer), ROOM, 0, 1)
        struct.pack_into("<I", self.submitted, self.sq[6] + 4 * at, at)
        struct.pack_into("<I", self.submitted, self.sq[1], tail + 1)
        assert libc.syscall(self.ENTER, self.fd, 1, 1, IORING_ENTER_GETEVENTS, None, 0) == 1
        [head], [mask] = struct.unpack_from("<I", self.completed, self.cq[0]), struct.unpack_from("<I", self.completed, self.cq[2])
        [got] = struct.unpack_from("<i", self.completed, self.cq[5] + 16 * (head & mask) + 8)
        struct.pack_into("<I", self.completed, self.cq[0], head + 1)
        return buffer.raw[:max(got, 0)]


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("n", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_n", ctypes.c_uint), ("pieces", ctypes.POINTER(Iovec)), ("n", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("control_n", ctypes.c_size_t), ("flags", ctypes.c_int), ("pad", ctypes.c_int),
                ("got", ctypes.c_uint)]


def recvmmsg(connection):
    buffer = ctypes.create_string_buffer(ROOM)
    message = Message(pieces=ctypes.pointer(Iovec(ctypes.addressof(buffer), ROOM)), n=1)
    return buffer.raw[:message.got] if libc.recvmmsg(connection.fileno(), ctypes.byref(message), 1, 0, None) == 1 else b""


def preadv2(connection):
    buffer = bytearray(ROOM)
    return bytes(buffer[:os.preadv(connection.fileno(), [buffer], -1, 0)])


def readv(connection):
    buffer = bytearray(ROOM)
    return bytes(buffer[:os.readv(connection.fileno(), [buffer])])


def duplicate(connection):
    with socket.socket(fileno=os.dup(connection.fileno())) as other:
        return other.recv(ROOM)


READS = {
    "recvfrom": lambda connection: connection.recv(ROOM), "read": lambda connection: os.read(connection.fileno(), ROOM), "readv": readv,
    "recvmsg": lambda connection: connection.recvmsg(ROOM)[0], "duplicate": duplicate, "recvmmsg": recvmmsg, "preadv2": preadv2,
}


def serve(connection, read):
    """A body is read with recvmmsg(), whatever the head is read with."""
    got = b""
    while True:
        while b"\r\n\r\n" not in got:
            more = read(connection)
            if not more:
                return connection.close()
            got += more
        head, got = got.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        while length and len(got) < int(length[1]):
            got += recvmmsg(connection)
        got = got[int(length[1]):] if length else got
        if b" /open " not in head:
            connection.sendall(ANSWER)
            continue
        connection.sendall(OPEN)
        connection.send(b"")
        connection.shutdown(socket.SHUT_RDWR)
        return connection.close()


def accept(listener, read):
    if read is None:
        ring = Uring()
        read = lambda connection: ring.receive(connection.fileno())  # noqa: E731
    while True:
        serve(listener.accept()[0], read)


if __name__ == "__main__":
    try:
        os.close(Uring().fd)
        READS["io_uring"] = None
    except OSError as e:
        print(f"no io_uring: {e}", file=sys.stderr)
    ports = {}
    for name, function in READS.items():
        opened = socket.create_server(("127.0.0.1", 0))
        ports[name] = opened.getsockname()[1]
        threading.Thread(target=accept, args=(opened, function), daemon=True).start()
    print("ports:", json.dumps(ports), file=sys.stderr, flush=True)
    threading.Event().wait()
