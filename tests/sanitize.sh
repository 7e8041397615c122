#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tests with an agent built with the compiler's sanitizers. `make sanitize` runs all tests, `make check` a part:
#     tests/sanitize.sh address|thread [unit|e2e] [PYTEST ARGUMENTS]
# address: AddressSanitizer, LeakSanitizer at the end of each agent, UndefinedBehaviorSanitizer; thread: ThreadSanitizer.
# A report of any process fails the test, even if the test expects an agent to fail. Nothing is suppressed. The embedded
# store is the ordinary build throughout: libchdb has a separate memory allocator, which AddressSanitizer does not
# support. Tests that cannot pass are marked with a reason (`plain_build` in tests/e2e/agent.py).
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1-}" in
address) value=1 build=build/sanitize ;;
thread) value=thread build=build/thread ;;
*) echo "usage: tests/sanitize.sh address|thread [unit|e2e] [PYTEST ARGUMENTS]" >&2; exit 2 ;;
esac
kind=$1
shift
which="unit e2e"
case "${1-}" in unit | e2e) which=$1; shift ;; esac

# outside of the agent's sandbox in a test, and writable for any user
reports=$(mktemp -d)
chmod 1777 "$reports"
trap 'rm -rf "$reports"' EXIT
options=log_path=$reports/report:print_stacktrace=1:external_symbolizer_path=$(command -v llvm-symbolizer-19 llvm-symbolizer | head -1 || true)
# preloaded libraries come before a sanitizer's: the tests' libraries are harmless
export ASAN_OPTIONS=$options:detect_leaks=1:verify_asan_link_order=0 UBSAN_OPTIONS=$options TSAN_OPTIONS=$options
export UNDERSPAN_SANITIZER=$kind UNDERSPAN=$PWD/$build/underspan UNDERSPAN_E2E_PROGRAMS=$PWD/$build/tests/e2e
export UNDERSPAN_PATIENCE=${UNDERSPAN_PATIENCE:-4}

status=0
if [[ $which == *unit* ]]; then
    make --no-print-directory -j"$(nproc)" SANITIZE=$value unit-programs
    make --no-print-directory -j$(($(nproc) * 3)) -O SANITIZE=$value unit || status=1
fi
if [[ $which == *e2e* ]]; then
    make -s -j"$(nproc)" all
    make --no-print-directory -j"$(nproc)" SANITIZE=$value all e2e-programs
    tests/e2e/run.sh "$@" || status=1
fi
for report in "$reports"/*; do
    [ -e "$report" ] || continue
    cat "$report" >&2
    status=1
done
[ $status = 0 ] || echo "sanitize: $kind: see above" >&2
exit $status
