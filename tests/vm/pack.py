# SPDX-License-Identifier: Apache-2.0
"""pack.py OUTPUT DIR[=WHERE]...: the directories as one initramfs (cpio, "newc"), each below WHERE; all files are root's."""
import os
import stat
import sys


def entry(out, number, name, mode, data=b"", device=(0, 0)):
    name = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name), 0)
    out.write(b"070701" + b"".join(b"%08X" % f for f in fields) + name)
    out.write(bytes(-(110 + len(name)) % 4) + data + bytes(-len(data) % 4))


def main():
    number = 0
    with open(sys.argv[1], "wb") as out:
        entry(out, number, "dev", 0o40755)
        entry(out, number, "dev/console", 0o20600, device=(5, 1))
        for argument in sys.argv[2:]:
            top, _, where = argument.partition("=")
            parts = where.strip("/").split("/") if where else []
            for i in range(len(parts)):
                entry(out, number, "/".join(parts[:i + 1]), 0o40755)
            for directory, subdirectories, files in os.walk(top):
                subdirectories.sort()
                links = [d for d in subdirectories if os.path.islink(os.path.join(directory, d))]
                for name in sorted(files + subdirectories):
                    path = os.path.join(directory, name)
                    mode = os.lstat(path).st_mode
                    target = "/".join([*parts, os.path.relpath(path, top)])
                    number += 1
                    if name in links or stat.S_ISLNK(mode):
                        entry(out, number, target, 0o120777, os.readlink(path).encode())
                    elif stat.S_ISDIR(mode):
                        entry(out, number, target, 0o40755)
                    elif stat.S_ISREG(mode):
                        with open(path, "rb") as f:
                            entry(out, number, target, mode, f.read())
        entry(out, number, "TRAILER!!!", 0)
        out.write(bytes(-out.tell() % 512))


main()
