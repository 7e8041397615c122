#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints assembly with the given sql/ files for the program: a table of
# {path, text, length} declared in src/clickhouse/sql_files.h. Called by the build.
# A line `#include "FILE"` stands for the lines of sql/FILE; columns of sql/tables/ get their COMMENT from
# sql/comments.txt, unless the column has a COMMENT.
# The expanded files are written below OUT.
# usage: embed.sh OUT FILE...
set -eu
out=$1
shift

for file in "$@"; do
    dirname "$out/$file"
done | sort -u | xargs mkdir -p
awk -v out="$out" '
# "pid UInt32 CODEC(ZSTD)," with COMMENT: before the codec, otherwise at the end
function commented(line,    column, text, at) {
    if (!table || line !~ /^    [a-z_]+ [A-Z]/ || line ~ / COMMENT \047/) return line
    column = substr(line, 5, index(substr(line, 5), " ") - 1)
    text = (table "." column in comments) ? comments[table "." column] : comments[column]
    if (text == "") return line
    at = index(line, " CODEC(")
    if (!at) at = length(line) + (line !~ /,$/)
    return substr(line, 1, at - 1) " COMMENT \047" text "\047" substr(line, at)
}
FILENAME == "sql/comments.txt" {
    if (/^[a-z]/) comments[$1] = substr($0, length($1) + 2)
    next
}
FNR == 1 {
    close(expanded); expanded = out "/" FILENAME; printf "" > expanded
    table = FILENAME
    if (!sub(/^sql\/tables\//, "", table)) table = ""
    sub(/\.sql$/, "", table)
}
/^#include "/ {
    split($0, part, "\"")
    included = "sql/" part[2]
    while ((read = (getline line < included)) > 0)
        print commented(line) > expanded
    if (read < 0) { print FILENAME ": cannot read " included > "/dev/stderr"; exit 1 }
    close(included)
    next
}
{ print commented($0) > expanded }' sql/comments.txt "$@"

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
