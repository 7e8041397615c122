#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes binary inputs for fuzz targets: small programs that look like a Python, for x86-64, and the memory of
# one. $1: folder, one subfolder a target.
set -euo pipefail
to=$1
mkdir -p "$to"/{elf,remote,sparse,names}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/old.c" <<'END'
long _PyRuntime[64] = { 1 };
const char *const texts[] = { "3.9.18", "lib/python3.9" };
__attribute__((noinline)) int use(const char *s, int n)
{
	__asm__ volatile("" : "+r"(s), "+r"(n));
	return s[n];
}
static __attribute__((noinline)) int collect(int n, int debug)
{
	if (debug)
		use("gc: collecting generation %d...\n", n);
	for (int i = 0; i < n; i++)
		debug += use("many", i);
	return debug;
}
int PyGC_Collect(int n) { return collect(n, texts[0][0]) + 1; }
void _start(void) { PyGC_Collect(2); collect(1, 0); }
END
cat >"$work/new.c" <<'END'
__attribute__((section(".PyRuntime"))) unsigned long _PyRuntime[128] = {
	0x7970677562656478, 0x030d00f0, 0, 40, 8, 632, 40, 8, 7264, 7344, 7400, 7656, 16, 24, 16, 1, 1, 1, 1, 1, 8,
};
const unsigned long Py_Version = 0x030d00f0;
__asm__(".section .note.stapsdt,\"\",@note\n"
	".balign 4\n.4byte 8, 9f-8f, 3\n.asciz \"stapsdt\"\n.balign 4\n"
	"8: .8byte 1f, 0, 0\n.asciz \"python\"\n.asciz \"gc__start\"\n.asciz \"-4@%edi\"\n9: .balign 4\n"
	".4byte 8, 9f-8f, 3\n.asciz \"stapsdt\"\n.balign 4\n"
	"8: .8byte 1f, 0, 0\n.asciz \"python\"\n.asciz \"gc__done\"\n.asciz \"-8@-16(%rbp)\"\n9: .balign 4\n"
	".text\n1: nop\n");
void _start(void) {}
END
small=(-O1 -nostdlib -fno-stack-protector -fcf-protection=none -Wl,-z,separate-code,-z,max-page-size=512,-z,norelro,--eh-frame-hdr)
for source in old new; do
    "${CC:-clang-19}" "${small[@]}" -static -fno-pie -o "$to/elf/$source-static" "$work/$source.c"
    "${CC:-clang-19}" "${small[@]}" -shared -fPIC -Wl,--build-id -o "$to/elf/$source-shared" "$work/$source.c"
    strip -o "$to/elf/$source-static-stripped" "$to/elf/$source-static"
    strip -o "$to/elf/$source-shared-stripped" "$to/elf/$source-shared"
done

# sys.modules["threading"]._active of a 3.12 that starts at 0x10000, as fuzz_remote.c lays it out
python3 - "$to/remote/threads" <<'END'
import struct, sys
BASE, memory = 0x10000, bytearray(0x1000)
INTERP, TSTATE, TYPE = 0x100, 0x80, 0xa0

def put(at, value, size=8):
    memory[at:at + size] = value.to_bytes(size, "little")

def text(at, value):
    put(at + 8, BASE + TYPE)
    put(at + 16, len(value))
    put(at + 32, 1 << 2 | 1 << 5 | 1 << 6, 4)
    memory[at + 40:at + 40 + len(value)] = value.encode()

def dict_of(at, keys, key, value):
    put(at + 16, 1)
    put(at + 32, BASE + keys)
    put(keys + 8, 0x00010303, 4)
    put(keys + 24, 1)
    put(keys + 40, BASE + key)
    put(keys + 48, BASE + value)

put(40, BASE + INTERP)
put(INTERP + 72, BASE + TSTATE)
put(TSTATE + 16, BASE + INTERP)
put(INTERP + 944, BASE + 0x600)
text(0x700, "threading")
dict_of(0x600, 0x780, 0x700, 0x800)
put(0x810, BASE + 0x880)
text(0x900, "_active")
dict_of(0x880, 0x980, 0x900, 0xa00)
dict_of(0xa00, 0xa80, 0xb00, 0xc00)
open(sys.argv[1], "wb").write(bytes([4]) + memory)
END

# symbols that are compressed in the file, as in mini debug information
strip --strip-debug -o "$work/mini" "$to/elf/old-static"
xz -c "$work/mini" >"$work/mini.xz"
objcopy --add-section .gnu_debugdata="$work/mini.xz" "$to/elf/old-static-stripped" "$to/elf/old-static-mini"

# small files that are expensive to read, as in the end-to-end tests: the size in KiB, then how they begin
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/e2e python3 - "$work" "$to/sparse" "$to/names" <<'END'
import os, struct, sys
import elf_bombs
work, sparse, names = sys.argv[1:]
for make in elf_bombs.overlapping_segments, elf_bombs.many_segments, elf_bombs.large_tables:
    path = make(f"{work}/{make.__name__}")
    with open(path, "rb") as f:
        open(f"{sparse}/{make.__name__}", "wb").write(struct.pack("<I", os.stat(path).st_size >> 10) + f.read(8192))
for name in b"a", b"collect.", b"gc_collect_main.", b"take_gil.", b".cold.", b"_PyRuntime":
    for step in 0, 1, 17:
        open(f"{names}/{name.decode().strip('.')}-{step}", "wb").write(struct.pack("<HBB", 10000, 5, step) + name)
END
