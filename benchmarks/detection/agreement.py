"""Asks `fsdplint verify`: runs the programs and their mutants on two CPU ranks and judges them.

A correct program must violate nothing; a mutant must violate the clause that its rule names, and
no other. What the linter says plays no part. Some mistakes lie where this run does not come to, or
need a package that is not installed: they are listed with what was seen, and none of them makes the
exit status 1; a clause violated wrongly does. Needs torch.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.detection.oracle import Run, runs, write
from fsdplint.rules import RULES
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Verification
from fsdplint.verify.warm_launcher import Warm

CLAUSES = {rule.name: rule.clause for rule in RULES}
UNSHARDED = "nothing to verify"
TIMEOUT = 90.0


def sampled(found: Iterable[Run], most: int) -> list[Run]:
    """Up to `most` mutants of each rule, drawn so that they spread over the programs."""
    drawn = list(found)
    random.Random(0).shuffle(drawn)
    seen: Counter[str] = Counter()
    kept = []
    for run in drawn:
        seen[run.rule] += 1
        if seen[run.rule] <= most:
            kept.append(run)
    return kept


def verified(run: Run, launcher: Warm) -> Verification:
    with tempfile.TemporaryDirectory() as folder:
        write(run.files, Path(folder))
        request = Request(run.program.entry, run.args, steps=None, device="cpu", timeout=TIMEOUT)
        return verify(request, Path(folder), launcher=launcher)


def outcome(run: Run, result: Verification) -> str:
    """ "agrees", "silent" (nothing violated, though there is a mistake), "wrong" or "failed"."""
    violated = [verdict.clause for verdict in result.violated]
    wanted = [CLAUSES[run.rule]] if run.rule else []
    if violated == wanted:
        unsharded = result.failure.startswith(UNSHARDED)
        return "agrees" if violated or unsharded or not result.failure else "failed"
    if violated:
        return "wrong"
    return "failed" if result.failure else "silent"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=0, metavar="N", help="of each rule")
    parser.add_argument("--program", default="")
    parser.add_argument("--rule", default="")
    options = parser.parse_args()
    correct = [run for run in runs(0, False, "", options.program) if not options.rule]
    broken = [r for r in runs(0, bool(options.mutants), options.rule, options.program) if r.rule]
    tally: Counter[tuple[str, str]] = Counter()
    with Warm() as launcher:
        for run in [*correct, *sampled(broken, options.mutants)]:
            result = verified(run, launcher)
            how = outcome(run, result)
            tally[run.rule or "correct", how] += 1
            if how != "agrees":
                said = [f"{v.clause}: {v.figures}" for v in result.violated]
                last = (result.failure.strip().splitlines() or [""])[-1]
                print(f"{how}: {run.name}: {'; '.join(said) or last}", flush=True)
    for (kind, how), count in sorted(tally.items()):
        print(f"{kind:<28} {how:<8} {count}")
    return int(any(how == "wrong" for _, how in tally))


if __name__ == "__main__":
    sys.exit(main())
