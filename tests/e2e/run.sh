#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The end-to-end tests: the built agent against real processes on this host. `make e2e` runs this; arguments go to
# pytest (`tests/e2e/run.sh -k gc_pause`, `tests/e2e/run.sh tests/e2e/test_gc_pause.py`). E2E_WORKERS=N: so many tests at
# a time (parallel.py), E2E_TESTS=DIR: other tests, as test_outcomes.py has them; E2E_OUTCOMES=FILE: keeps outcomes and costs
# of each test (`outcomes.py costs FILE`), E2E_SUMMARY=FILE: the last lines.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { printf 'e2e: %s\n' "$*" >&2; exit 1; }

[ -x "${UNDERSPAN:-build/underspan}" ] || fail "build/underspan is missing: run 'make' first"
make -s e2e-programs
/usr/bin/python3 -c 'import pytest, gunicorn' 2>/dev/null ||
    fail "pytest or gunicorn is missing: run 'deploy/dependencies.sh check'"
tests/e2e/roots.sh

if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "the agent needs root: run this as root, or install sudo"
    # pyenv's interpreters belong to this user
    mapfile -t passed < <(env | grep -E '^(UNDERSPAN\w*|E2E_\w+|[A-Z]+SAN_OPTIONS)=')
    exec sudo env PYENV_ROOT="${PYENV_ROOT:-$HOME/.pyenv}" "${passed[@]}" "$PWD/tests/e2e/run.sh" "$@"
fi

# missing in containers and minimal systems; without the right to mount, the agent reports the missing features
if [ ! -e /sys/kernel/tracing/events ] && [ ! -e /sys/kernel/debug/tracing/events ]; then
    mount -t tracefs tracefs /sys/kernel/tracing || echo "e2e: cannot mount tracefs" >&2
fi

export PYTHONDONTWRITEBYTECODE=1
[ $# -gt 0 ] || set -- --durations=5
export UNDERSPAN_PATIENCE=${UNDERSPAN_PATIENCE:-$(/usr/bin/python3 tests/e2e/patience.py)}
# tests mostly wait, but not where everything takes long
workers=${E2E_WORKERS:-$(($(nproc) * (UNDERSPAN_PATIENCE > 1 ? 3 : 4)))}
tests=("${E2E_TESTS:-tests/e2e}")
for argument; do  # files that are named replace the folder
    if [[ $argument == *.py* && -e ${argument%%::*} ]]; then tests=(); fi
done
run() { /usr/bin/python3 -m pytest "${tests[@]}" -o cache_dir="$PWD/build/pytest-cache" -v --tb=short -rs "$@"; }
outcomes() { /usr/bin/python3 tests/e2e/outcomes.py "$@"; }

# Many tests compare times to the millisecond, and shared machines stall at times.
# A failed test is repeated without neighbours, twice at most, and named in the last line if the repetition passes; a test that fails three
# times is broken. So is a test of a broken promise (the marker `promise`, BrokenPromise in agent.py): an end in 5 s, counts that
# add up, no crash.
tries=$(mktemp -d)
trap 'rm -rf "$tries"' EXIT
status=0
run "$@" --workers="$workers" --outcomes="$tries/first" || status=$?
[ $status -le 1 ] && [ -e "$tries/first" ] || exit $status
[ -z "${E2E_OUTCOMES:-}" ] || cp "$tries/first" "$E2E_OUTCOMES"
tried=("$tries/first")
for try in second third; do
    outcomes again "${tried[-1]}" || break
    echo "e2e: once more, only what failed" >&2
    # two tests that compare no times beside each other, any other test alone (parallel.py)
    run "$@" --again="${tried[-1]}" --workers=2 --outcomes="$tries/$try" || [ $? = 1 ]
    [ -e "$tries/$try" ] || break
    tried+=("$tries/$try")
done
outcomes spent "${tried[@]}"
outcomes summary "${tried[@]}" | tee "${E2E_SUMMARY:-/dev/null}"
