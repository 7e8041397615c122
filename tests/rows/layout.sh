#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wire format between BPF programs and agent, and values of maps: the structs in include/ have no byte of
# undeclared padding, consist of __u8..__u64, char and structs of these, and have the same layout on both sides, on every
# machine. Padding would leak the kernel's stack; a different layout would make every number wrong.
#     CLANG=clang tests/rows/layout.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
clang=${CLANG:-clang}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

headers=$(cd include && find . -name '*.h' | sort | sed 's|^\./||')
for header in $headers; do echo "#include \"$header\""; done > "$work/all.c"

# The compiler's layout of the structs of include/, by name: "offset | type member" a line.
layout() { # TARGET
    "$clang" --target="$1" -std=gnu11 -Iinclude -idirafter "/usr/include/$(uname -m)-linux-gnu" -Wpadded -Werror=padded \
        -fsyntax-only -Xclang -fdump-record-layouts-complete "$work/all.c" > "$work/dump.$1" ||
        { echo "layout: $1: padding that is not written down" >&2; return 1; }
    # a record is a paragraph, with the name in the second line
    awk -v names="$work/names" 'BEGIN { while ((getline n < names) > 0) wanted["struct " n] = 1; RS = ""; FS = "\n" }
        { head = $2; sub(/^ *0 \| /, "", head); if (head in wanted) print $0 "\n" }' "$work/dump.$1" > "$work/$1"
}

(cd include && sed -n 's/^struct \([a-z_0-9]*\) {.*/\1/p' $headers) | sort > "$work/names"
for target in bpf x86_64-linux-gnu aarch64-linux-gnu; do
    layout $target
    while read -r name; do
        grep -q "^ *0 | struct $name\$" "$work/$target" || { echo "layout: $target: no struct $name" >&2; exit 1; }
    done < "$work/names"
    cmp -s "$work/bpf" "$work/$target" || { echo "layout: bpf and $target differ:" >&2; diff "$work/bpf" "$work/$target" >&2; exit 1; }
done

# "  8 |   __u32 n": indented once is a member of the struct itself
wrong=$(awk '/^struct|^ *0 \| struct/ { of = $NF } /^ *[0-9]+ \|   [^ ]/ && !/\|   (__[us](8|16|32|64)|char|struct [a-z_0-9]+)(\[[0-9]+\])* [a-z_0-9]+$/ { print "struct " of ": " $0 }' \
    "$work/bpf")
[ -z "$wrong" ] || { echo "layout: neither a number of a fixed size nor bytes:" >&2; echo "$wrong" >&2; exit 1; }
echo "layout: $(wc -l < "$work/names") structs of include/ lie alike for bpf, x86_64 and aarch64, without padding"
