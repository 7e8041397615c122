# SPDX-License-Identifier: Apache-2.0
"""Programs that are cheap to create and expensive to read: sparse files with large segments or tables, symbols that share
long names. Each runs (waits in pause()) and looks like a Python as far as described."""
import os
import struct

PAGE = 4096
MIB = 1 << 20
CODE = {"x86_64": bytes.fromhex("b8220000000f05ebf7"),  # mov $34 (pause), %eax; syscall; jmp back
        # mov x8, #73 (ppoll); mov x0..x4, #0; svc #0; b back
        "aarch64": bytes.fromhex("280980d2000080d2010080d2020080d2030080d2040080d2010000d4f9ffff17")}[os.uname().machine]
MACHINE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
BASE = 0x400000
SYMTAB, STRTAB, PROGBITS, DYNSYM = 2, 3, 1, 11


def segment(flags, offset, address, size):
    return struct.pack("<IIQQQQQQ", 1, flags, offset, address, address, size, size, PAGE)


def section(name, kind, address, offset, size, link=0, entry_size=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, address, offset, size, link, 0, 8, entry_size)


def write(path, segments, sections, size, content=()):
    """`sections`: (name, kind, address, offset, size, link, entry size); `content`: (offset, bytes)."""
    code_at = (64 + 56 * (len(segments) + 1) + 15) & ~15
    names, table = b"\0.shstrtab\0", [section(0, 0, 0, 0, 0)]
    for name, *rest in sections:
        table.append(section(len(names), *rest))
        names += name.encode() + b"\0"
    table_at = code_at + 64
    names_at = table_at + 64 * (len(table) + 1)
    table.append(section(1, STRTAB, 0, names_at, len(names)))
    assert names_at + len(names) <= 2 * PAGE
    with open(path, "wb") as f:
        f.write(struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, MACHINE, 1, BASE + code_at, 64, table_at, 0, 64, 56,
                            len(segments) + 1, 64, len(table), len(table) - 1))
        f.write(segment(5, 0, BASE, 2 * PAGE) + b"".join(segments))
        f.seek(code_at)
        f.write(CODE)
        f.seek(table_at)
        f.write(b"".join(table) + names)
        for at, data in content:
            f.seek(at)
            f.write(data)
        f.truncate(max(size, 2 * PAGE, f.seek(0, os.SEEK_END)))
    os.chmod(path, 0o755)
    return str(path)


def overlapping_segments(path, n=63, size=64 * MIB):
    """All segments are read-only and cover the same bytes; `.PyRuntime` claims a Python."""
    return write(path, [segment(4, 0, 0x10000000 + i * (size + 16 * PAGE), size) for i in range(n)],
                 [(".PyRuntime", PROGBITS, BASE, 0, 64, 0, 0)], size + PAGE)


def many_segments(path, n=63, size=64 * MIB):
    """As overlapping_segments(), each segment with separate bytes: a file of gigabytes with two pages on
    the disk."""
    return write(path, [segment(4, 2 * PAGE + i * size, 0x10000000 + i * (size + 16 * PAGE), size) for i in range(n)],
                 [(".PyRuntime", PROGBITS, BASE, 0, 64, 0, 0)], 2 * PAGE + n * size)


def large_tables(path, size=62 * MIB):
    """Not a Python, with tables of symbols that must be read to decide."""
    size -= size % 24
    tables = [(".dynsym", DYNSYM, 0, 2 * PAGE, size, 2, 24), (".dynstr", STRTAB, 0, 2 * PAGE + size, size, 0, 0),
              (".symtab", SYMTAB, 0, 2 * PAGE, size, 2, 24)]
    return write(path, [], tables, 2 * PAGE + 2 * size)


def long_names(path, symbols=10_000, length=16 * MIB, prefix=b""):
    """Claims CPython 3.13; all functions share a single name of the given length."""
    runtime, table = PAGE + 0x800, 2 * PAGE
    names = (table + 24 * symbols + 7) & ~7
    entry = struct.pack("<IBBHQQ", 1, 2, 0, 1, BASE + 0x400, 9)
    return write(path, [], [(".PyRuntime", PROGBITS, BASE + runtime, runtime, 64, 0, 0),
                            (".symtab", SYMTAB, 0, table, 24 * symbols, 3, 24),
                            (".strtab", STRTAB, 0, names, length + 2, 0, 0)],
                 0, [(runtime, b"xdebugpy" + struct.pack("<QQ", 3 << 24 | 13 << 16 | 5 << 8 | 0xf0, 0)),
                     (table, entry * symbols), (names, b"\0" + prefix + b"a" * (length - len(prefix)) + b"\0")])


def endless_functions(path, symbols=10_000, size=500 * MIB):
    """Says that it is CPython 3.13; each of the functions that are looked for is there a thousand times, and ends with the file."""
    runtime, table, code = PAGE + 0x800, 2 * PAGE, 0x10000000
    wanted = [b"gc_collect_main", b"collect", b"gc_collect_with_callback", b"take_gil", b"drop_gil", b"_PyEval_EvalFrameDefault", b"_PyRuntime_Initialize",
              b"PyGC_Collect", b"gc_collect_main.constprop.0", b"take_gil.isra.0"]
    names = b"\0" + b"\0".join(wanted) + b"\0"
    at = (table + 24 * symbols + 7) & ~7
    begin = (at + len(names) + PAGE - 1) & ~(PAGE - 1)
    entries = b"".join(struct.pack("<IBBHQQ", names.index(b"\0" + wanted[i % 10] + b"\0") + 1, 2, 0, 1, code + 16 * i, size - 16 * i) for i in range(symbols))
    return write(path, [segment(5, begin, code, size)], [(".PyRuntime", PROGBITS, BASE + runtime, runtime, 64, 0, 0),
                                                         (".symtab", SYMTAB, 0, table, 24 * symbols, 3, 24),
                                                         (".strtab", STRTAB, 0, at, len(names), 0, 0)],
                 begin + size, [(runtime, b"xdebugpy" + struct.pack("<QQ", 3 << 24 | 13 << 16 | 5 << 8 | 0xf0, 0)), (table, entries), (at, names)])
