#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz targets, each for so many seconds: tests/fuzz/run.sh SECONDS BINARY...; `make fuzz` does. Inputs to begin with
# are in tests/fuzz/corpus/NAME and made by seeds.sh; new inputs are kept in build/fuzz/corpus/NAME, and an
# input that breaks something in build/fuzz/NAME-*, to be given to the binary as only argument.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=$1
shift
ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-19 llvm-symbolizer || true)
export ASAN_SYMBOLIZER_PATH
made=build/fuzz/made
[ $made -nt tests/fuzz/seeds.sh ] || { rm -rf $made.new $made; tests/fuzz/seeds.sh $made.new; mv -T $made.new $made; }

# a target: output in build/fuzz/NAME.log; prints the last line, or the finding
run() {
    local binary=$1 name=${1##*/fuzz_} folder status=0
    local log=build/fuzz/$name.log folders=("build/fuzz/corpus/$name")
    mkdir -p "${folders[0]}"
    for folder in "tests/fuzz/corpus/$name" "$made/$name"; do [ ! -d "$folder" ] || folders+=("$folder"); done
    # limits for a reader of untrusted data: a second and some memory
    "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=65536 \
        -artifact_prefix="build/fuzz/$name-" "${folders[@]}" >"$log" 2>&1 || status=$?
    [ $status = 0 ] || { tail -n 60 "$log"; echo "fuzz: $name is broken" >&2; }
    printf 'fuzz: %-10s %s\n' "$name" "$(tail -n 1 "$log")"
    return $status
}
export -f run
export seconds made
# as many at a time as there are processors
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" bash -euo pipefail -c 'run "$1"' run
