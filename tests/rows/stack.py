#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The stack of BPF programs, by the rule of the oldest kernels: each function of a chain of calls takes a multiple of 32 bytes, a chain
512 at most, and eight functions (check_max_stack_depth() and MAX_CALL_FRAMES in kernel/bpf/verifier.c). Newer kernels allow more, so a
program that is too deep would be refused only there. Prints the deepest chain.

stack.py OBJECT...
"""
import functools
import os
import struct
import sys

STACK, ROUND, FRAMES = 512, 32, 8
SHT_SYMTAB, SHT_REL, STT_FUNC, PSEUDO_CALL = 2, 9, 2, 1
LOAD_IMMEDIATE, MOVE, ADD, CALL = 0x18, 0xbf, 0x07, 0x85  # opcodes of BPF


def read_elf(path):
    with open(path, "rb") as f:
        data = f.read()
    at = struct.unpack_from("<Q", data, 40)[0]
    size, n, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(n)]

    def name_at(table, offset):
        start = headers[table][4] + offset
        return data[start:data.index(b"\0", start)].decode()
    sections = [{"name": name_at(names, h[0]), "type": h[1], "at": h[4], "size": h[5], "link": h[6], "info": h[7]} for h in headers]
    symbols = []
    for table in (s for s in sections if s["type"] == SHT_SYMTAB):
        for name, info, _, section, value, length in struct.iter_unpack("<IBBHQQ", data[table["at"]:table["at"] + table["size"]]):
            symbols.append({"name": name_at(table["link"], name), "kind": info & 15, "place": (section, value), "size": length})
    return data, sections, symbols


def look_at(function, code, called):
    """Sets the bytes of stack that the function uses, and what it calls: called(offset, immediate)."""
    function["stack"], function["calls"], to_stack, i = 0, set(), set(), 0
    while i < len(code):
        opcode, registers, offset, immediate = struct.unpack_from("<BBhi", code, i)
        to, by, kind = registers & 15, registers >> 4, opcode & 7
        if (kind == 1 and by == 10) or (kind in (2, 3) and to == 10):  # a load from the stack, a store to it
            function["stack"] = max(function["stack"], -offset)
        if opcode == ADD and to in to_stack:  # the address of something on the stack
            function["stack"] = max(function["stack"], -immediate)
        if opcode == MOVE and by == 10:
            to_stack.add(to)
        elif kind in (0, 1, 4, 7):
            to_stack.discard(to)
        if opcode == CALL and by == PSEUDO_CALL:
            function["calls"].add(called(i, immediate))
        i += 16 if opcode == LOAD_IMMEDIATE else 8


def deepest_chains(path):
    """{program: (bytes, [(function, its bytes), ...])}"""
    data, sections, symbols = read_elf(path)
    functions = {s["place"]: s for s in symbols if s["kind"] == STT_FUNC}
    targets = {}
    for table in (s for s in sections if s["type"] == SHT_REL):
        for offset, info in struct.iter_unpack("<QQ", data[table["at"]:table["at"] + table["size"]]):
            targets[table["info"], offset] = symbols[info >> 32]

    def called(place, offset, immediate):
        section, begin = place
        symbol = targets.get((section, begin + offset))
        if symbol is None:
            return section, begin + offset + 8 * (immediate + 1)
        section, value = symbol["place"]
        return section, value + (0 if symbol["kind"] == STT_FUNC else 8 * (immediate + 1))
    for place, function in functions.items():
        start = sections[place[0]]["at"] + place[1]
        look_at(function, data[start:start + function["size"]], functools.partial(called, place))

    @functools.cache
    def deepest(place):
        function = functions[place]
        below = max(map(deepest, function["calls"]), default=(0, []))
        return -(-max(function["stack"], 1) // ROUND) * ROUND + below[0], [(function["name"], function["stack"]), *below[1]]

    @functools.cache
    def frames(place):
        return 1 + max(map(frames, functions[place]["calls"]), default=0)
    return {f["name"]: (*deepest(place), frames(place)) for place, f in functions.items() if sections[place[0]]["name"] != ".text"}


def main():
    found = {(os.path.basename(path), program): chain for path in sys.argv[1:] for program, chain in deepest_chains(path).items()}
    if not found:
        sys.exit("stack: no program found")
    bad = False
    most = max(found.values())
    for (path, program), (stack, chain, frames) in sorted(found.items()):
        if stack > STACK or frames > FRAMES:
            bad = True
            print(f"stack: {path}: {program}: {stack} bytes of {STACK}, {frames} functions of {FRAMES}:", ", ".join(f"{name} {n}" for name, n in chain))
    if bad:
        sys.exit(1)
    print(f"stack: {len(found)} BPF programs, the deepest takes {most[0]} bytes of {STACK}: {', '.join(f'{name} {n}' for name, n in most[1])}")


main()
