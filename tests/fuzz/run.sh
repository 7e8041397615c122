#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz targets, each for so many seconds: tests/fuzz/run.sh SECONDS BINARY...; `make fuzz` does. Inputs to begin with
# are in tests/fuzz/corpus/NAME and made by seeds.sh; what a run finds of new ones is kept in build/fuzz/corpus/NAME, and an
# input that breaks something in build/fuzz/NAME-*, to be given to the binary as its only argument.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=$1
shift
ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-19 llvm-symbolizer || true)
export ASAN_SYMBOLIZER_PATH
made=build/fuzz/made
[ -d $made ] || { rm -rf $made.new; tests/fuzz/seeds.sh $made.new; mv -T $made.new $made; }

failed=()
for binary in "$@"; do
    name=${binary##*/fuzz_}
    mkdir -p "build/fuzz/corpus/$name"
    folders=("build/fuzz/corpus/$name")
    for folder in "tests/fuzz/corpus/$name" "$made/$name"; do [ ! -d "$folder" ] || folders+=("$folder"); done
    log=build/fuzz/$name.log
    # what a reader of untrusted data may cost: a second and some memory
    if ! "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=65536 \
        -artifact_prefix="build/fuzz/$name-" "${folders[@]}" >"$log" 2>&1; then
        failed+=("$name")
        tail -n 60 "$log"
    fi
    printf 'fuzz: %-10s %s\n' "$name" "$(tail -n 1 "$log")"
done
[ ${#failed[@]} = 0 ] || { printf 'fuzz: broken: %s\n' "${failed[*]}" >&2; exit 1; }
