# SPDX-License-Identifier: Apache-2.0
"""The result of a seed. One with mismatches is played twice more. Only what is wrong in all three plays is a fault: a shared
machine delays any thread now and then, but not the same one of the same request each time."""
from check import check
from plan import make

PLAYS = 3


class Result:
    """Of a seed. lasting: mismatches of the last play that were in each play; passing: of the first play, and not in each."""

    def __init__(self, stage, seed, kinds=None):
        self.plan = make(seed, kinds)
        self.command = f"make random SEEDS={seed}-{seed}" + (f" KINDS={','.join(kinds)}" if kinds else "")
        first, self.counts = check(stage.play(self.plan))
        last = first
        for _ in range(PLAYS - 1):
            if last:
                again = {mismatch.key: mismatch for mismatch in check(stage.play(self.plan))[0]}
                last = [again[mismatch.key] for mismatch in last if mismatch.key in again]
        self.lasting = last
        lasting = {mismatch.key for mismatch in last}
        self.passing = [mismatch for mismatch in first if mismatch.key not in lasting]

    def line(self):
        plan, counts = self.plan, self.counts
        where = "".join(f", {word}" for word in ("unix" * plan["unix"], plan["proxy"]) if word)
        wrong = f"{len(self.lasting)} MISMATCHES" if self.lasting else "right"
        once = f" ({len(self.passing)} not in each of {PLAYS} plays: {', '.join(sorted({m.aspect for m in self.passing}))})" if self.passing else ""
        return (f"{plan['seed']} {plan['kind']}{where}: {counts['requests']} requests of {len(plan['threads'])} client threads, {counts['rows']} rows, "
                f"{counts['compared']} compared to the step: {wrong}{once}")

    def report(self):
        """What is known of a request once, behind all that is wrong with it."""
        for i, mismatch in enumerate(self.lasting):
            yield f"  {mismatch.aspect}: {mismatch.text}"
            if self.lasting[i + 1:i + 2] and self.lasting[i + 1].lines == mismatch.lines:
                continue
            for name, text in mismatch.lines:
                yield f"    {name:8} {text}"
        if self.lasting:
            yield f"  repeat with: {self.command}"
