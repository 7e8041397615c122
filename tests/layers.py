#!/usr/bin/env python3
# Checks the order of src's folders, includes without cycles, and that named files exist.
#
# A file includes only files of the same folder and of earlier folders in ORDER. A source file and the
# header are a unit: includes must not lead from a unit back to the same unit. `make fmt-check` runs this.

import os
import re
import subprocess
import sys

ORDER = (
    "base", "host", "workers", "elf", "cpython", "process", "rows", "clickhouse", "store",
    "pipeline", "trackers", "agent", "html", "commands", "main",
)  # fmt: skip
NAMED = re.compile(r"\b(src/[\w/]+\.(?:c|h|md))\b")
EXAMPLES = ("src/trackers/dns.c", "src/trackers/thread_rename.c")  # examples of new trackers, and of the tests
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def sources(root):
    for folder, _, names in os.walk(root):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(folder, name), root)


def folder_of(path):
    return path.split("/")[0] if "/" in path else "main"


def includes(root):
    """{file: [included files of src]}; include/ and generated files have no folder"""
    known = set(sources(root))
    return {
        path: [i for i in INCLUDE.findall(open(os.path.join(root, path)).read()) if i in known]
        for path in known
    }


def back_arrows(graph):
    for path, included in sorted(graph.items()):
        if folder_of(path) not in ORDER:
            yield f"src/{path}: its folder is not in ORDER of tests/layers.py"
            continue
        for other in included:
            if folder_of(other) not in ORDER or ORDER.index(folder_of(other)) > ORDER.index(folder_of(path)):
                yield f"src/{path} includes {other}: {folder_of(path)}/ stands before {folder_of(other)}/"


def cycles(graph):
    """Strongly connected sets of more than one unit (Tarjan)."""
    units = {}
    for path, included in graph.items():
        unit = units.setdefault(path[:-2], set())
        unit.update(i[:-2] for i in included if i[:-2] != path[:-2])
    index, low, stack, found = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in units[unit]:
            if other not in index:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], index[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for unit in sorted(units):
        if unit not in index:
            visit(unit)
    return found


def missing_files():
    """Files of src named in documents, comments and scripts that do not exist."""
    out = subprocess.run(["git", "ls-files", "*.md", "*.c", "*.h", "*.py", "*.sh", "*.sql", "Makefile"],
                         capture_output=True, text=True)  # fmt: skip
    for path in out.stdout.split():
        if not os.path.exists(path):
            continue  # removed, but not committed
        with open(path, errors="replace") as f:
            for name in NAMED.findall(f.read()):
                if name not in EXAMPLES and not os.path.exists(name):
                    yield f"{path} names {name}, which is no file"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "src")
    graph = includes(root)
    wrong = list(back_arrows(graph))
    wrong += [f"these files need each other: {', '.join(c)}" for c in cycles(graph)]
    if len(sys.argv) == 1:
        wrong += missing_files()
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


sys.exit(main())
