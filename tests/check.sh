#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `make check`: every stage, the first failure ends it. The last lines have the time of each stage, as the budget of the
# whole is 12 minutes on two processors, and what the end-to-end tests said last.
set -euo pipefail
cd "$(dirname "$0")/.."
BUDGET=720

lines=()
summaries=(build/check-thread.summary build/check-e2e.summary)
rm -f "${summaries[@]}"
report() {
    [ ${#lines[@]} -gt 0 ] || return 0
    printf '%s\n' "${lines[@]}"
    local said=() file
    for file in "${summaries[@]}"; do  # whose last line names the tests that passed only when repeated
        [ ! -e "$file" ] || { cat "$file" && said+=("; $(tail -n 1 "$file")"); }
    done
    printf 'check: %-9s %4d s of %d s%s\n' all $SECONDS $BUDGET "$(printf %s "${said[@]}")"
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
stage build "${make[@]}" all unit-programs e2e-programs
stage format make --no-print-directory fmt-check
# more at a time than processors, as some unit tests wait and the longest would be alone at the end
stage unit make --no-print-directory -j$(($(nproc) * 3)) -O unit

# What computes runs behind what mostly waits: its output comes when it is done, and its failure ends the check then
log=build/check-behind.log
behind() { "$@" >$log 2>&1 3>&1 4>&1 & behind=$!; }
await() {
    local status=0
    wait "$behind" || status=$?
    behind=""
    cat $log
    return $status
}
end() {
    # shellcheck disable=SC2046
    [ -z "${behind-}" ] || kill $(pgrep -P "$behind") "$behind" 2>/dev/null || true
    report
}
trap end EXIT

build_instrumented() {
    trap - EXIT
    renice -n 19 $BASHPID && chrt --idle -p 0 $BASHPID  # processors that no other task wants
    "${make[@]}" fuzz-programs && "${make[@]}" SANITIZE=1 unit-programs && "${make[@]}" SANITIZE=thread all e2e-programs
}
behind build_instrumented
# costs.tsv is made of these outcomes: tests/e2e/outcomes.py table build/check-e2e.outcomes
E2E_OUTCOMES=$PWD/build/check-e2e.outcomes E2E_SUMMARY=$PWD/${summaries[1]} stage e2e make --no-print-directory e2e
await

run_instrumented() {
    local status=0
    trap - EXIT
    lines=()
    renice -n 10 $BASHPID
    { stage fuzz make --no-print-directory fuzz FUZZ_SECONDS=3 && stage address tests/sanitize.sh address unit; } || status=$?
    printf '%s\n' "${lines[@]}" >$log.stages
    return $status
}
behind run_instrumented
E2E_SUMMARY=$PWD/${summaries[0]} stage thread tests/sanitize.sh thread e2e -k "test_reload or test_the_manager or test_reload_loses or test_what_a_reload or goes_away or stops_reading or test_agent_killed"
status=0
await || status=$?
mapfile -t -O ${#lines[@]} lines <$log.stages
exit $status
