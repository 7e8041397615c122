#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run.py FROM-TO [KIND,KIND...]: random requests to random servers; each row of the request ledger is compared with the clocks of its client and
of its handler. `make random` runs this. Prints a line for each seed.

The exit status is 1 if a mismatch lasts (result.py), or a seed could not be played."""
import os
import subprocess
import sys

os.environ.setdefault("UNDERSPAN_PATIENCE", "4")  # agent.py: how long to wait for what takes long on a busy machine

from kinds import KINDS  # noqa: E402
from plan import make  # noqa: E402
from play import Stage  # noqa: E402
from result import Result  # noqa: E402


def stop(stage):
    """What has failed with it: rows that were dropped cannot be compared."""
    try:
        stage.stop()
        return []
    except AssertionError as e:
        print(f"the agent: {e}")
        return ["the agent"]


def main():
    first, _, last = sys.argv[1].partition("-")
    kinds = [kind for kind in sys.argv[2].split(",") if kind] if len(sys.argv) > 2 else []
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    seeds, failed, passing = range(int(first), int(last or first) + 1), [], 0
    stage = Stage()
    try:
        for seed in seeds:
            try:
                result = Result(stage, seed, kinds)
            except (AssertionError, OSError, subprocess.SubprocessError) as e:
                print(f"{seed} {make(seed, kinds)['kind']}: could not be played: {e}", flush=True)
                failed.append(seed)
                continue
            print(result.line(), *result.report(), sep="\n", flush=True)
            failed += [seed] * bool(result.lasting)
            passing += len(result.passing)
        failed += stop(stage)
    finally:
        stage.kill()
    print(f"{len(seeds)} seeds, {len(failed)} with mismatches{': ' if failed else ''}{', '.join(map(str, failed))}; {passing} mismatches did not last")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
