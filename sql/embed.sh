#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints assembly that carries the given sql/ files inside the program: a table of
# {path, text, length} that src/clickhouse/sql_files.h declares. The build calls it.
# A line `#include "FILE"` stands for the lines of sql/FILE; the expanded files are written below OUT.
# usage: embed.sh OUT FILE...
set -eu
out=$1
shift

for file in "$@"; do
    dirname "$out/$file"
done | sort -u | xargs mkdir -p
awk -v out="$out" '
FNR == 1 { close(expanded); expanded = out "/" FILENAME; printf "" > expanded }
/^#include "/ {
    split($0, part, "\"")
    included = "sql/" part[2]
    while ((read = (getline line < included)) > 0)
        print line > expanded
    if (read < 0) { print FILENAME ": cannot read " included > "/dev/stderr"; exit 1 }
    close(included)
    next
}
{ print > expanded }' "$@"

echo '.section .note.GNU-stack,"",%progbits'
echo '.section .rodata'
i=0
for file in "$@"; do
    printf '.Lname%d: .asciz "%s"\n' "$i" "${file#sql/}"
    printf '.Ltext%d: .incbin "%s"\n.Lend%d: .byte 0\n' "$i" "$out/$file" "$i"
    i=$((i + 1))
done
echo '.section .data.rel.ro,"aw"'
echo '.balign 8'
echo '.global sql_files'
echo 'sql_files:'
n=$i
i=0
while [ "$i" -lt "$n" ]; do
    printf '.quad .Lname%d, .Ltext%d, .Lend%d - .Ltext%d\n' "$i" "$i" "$i" "$i"
    i=$((i + 1))
done
echo '.quad 0, 0, 0'
