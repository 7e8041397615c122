#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make check`: every stage, the first failure ends it. The last lines have the time of each stage, as the budget of the
# whole is 12 minutes on two processors.
set -euo pipefail
cd "$(dirname "$0")/.."
BUDGET=720

lines=()
report() {
    [ ${#lines[@]} -gt 0 ] || return 0
    printf '%s\n' "${lines[@]}"
    printf 'check: %-9s %4d s of %d s\n' all $SECONDS $BUDGET
}
trap report EXIT

# stage NAME COMMAND...: seconds, and how many of the processors' seconds the stage used
stage() {
    local name=$1 status=0 used real user sys TIMEFORMAT='%R %U %S'
    shift
    used=$({ time "$@" >&3 2>&4; } 2>&1) || status=$?
    read -r real user sys <<<"$used"
    lines+=("$(awk -v name="$name" -v real="$real" -v user="$user" -v sys="$sys" -v n="$(nproc)" -v failed=$status 'BEGIN {
        printf "check: %-9s %4d s, %3d %% of the processors%s", name, real, 100 * (user + sys) / (real * n + 0.001), failed ? ", failed" : "" }')")
    return $status
}
exec 3>&1 4>&2

make=(make --no-print-directory -j"$(nproc)")
stage packages deploy/dependencies.sh build check
deploy/dependencies.sh servers || echo "check: the tests of the servers that are missing will fail" >&2
stage build "${make[@]}" all unit-programs fuzz-programs e2e-programs
stage format make --no-print-directory fmt-check
# more at a time than processors, as some unit tests wait and the longest would be alone at the end
stage unit make --no-print-directory -j$(($(nproc) * 3)) -O unit
stage fuzz make --no-print-directory fuzz FUZZ_SECONDS=3
stage address tests/sanitize.sh address unit
stage thread tests/sanitize.sh thread e2e -k "test_reload or test_the_manager or test_reload_loses or test_what_a_reload or goes_away or stops_reading or test_agent_killed"
stage e2e make --no-print-directory e2e
