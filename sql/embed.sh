#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints assembly that carries the given sql/ files inside the program: a table of
# {path, text, length} that src/clickhouse/sql_files.h declares. The build calls it.
set -eu

echo '.section .note.GNU-stack,"",%progbits'
echo '.section .rodata'
i=0
for file in "$@"; do
    printf '.Lname%d: .asciz "%s"\n' "$i" "${file#sql/}"
    printf '.Ltext%d: .incbin "%s"\n.Lend%d: .byte 0\n' "$i" "$file" "$i"
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
