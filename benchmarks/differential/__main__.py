"""Asks runs whether safe fixes harm: `python -m benchmarks.differential`.

Every program of the repository that gets a safe fix, and families of programs made to break such
fixes, run before and after it in each configuration that they offer: with one rank and two, with
and without a launcher, each option and each variable of the environment changed. What ran must run
as before. The exit status is 1 if a fix harmed a program.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.differential.compare import HARMED, TELLING, VERDICTS
from benchmarks.differential.corpus import SOURCES, programs
from benchmarks.differential.fixes import safe_fixes, write
from benchmarks.differential.judge import Task, Verdict
from benchmarks.differential.pool import judged
from benchmarks.differential.program import Program


def main() -> int:
    """Run the command line."""
    options = _options()
    chosen = [
        p
        for p in programs(options.seed, options.source)
        if any(o in p.name for o in options.only or [""])
    ]
    if options.sample:
        order = list(range(len(chosen)))
        Random(options.seed).shuffle(order)
        chosen = [chosen[index] for index in order[: options.sample]]
    if options.keep:
        _keep(chosen, Path(options.keep))
    tasks = [Task(program, options.rule) for program in chosen]
    verdicts: list[Verdict] = []
    for done, each in enumerate(judged(tasks, options.jobs), 1):
        verdicts += each
        _tell(each)
        _progress(done, len(chosen), verdicts)
    _report(verdicts)
    if options.json:
        Path(options.json).write_text(json.dumps(list(map(_as_json, verdicts)), indent=1))
    return int(any(v.judgement.verdict == HARMED for v in verdicts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.differential", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=0, help="only so many programs")
    parser.add_argument("--rule", default="", help="only fixes of the rules named like this")
    parser.add_argument("--only", nargs="+", help="only programs named like this")
    parser.add_argument("--source", nargs="+", default=[], choices=SOURCES)
    parser.add_argument("--keep", help="write the programs, before and after, to this folder")
    parser.add_argument("--json", help="write every verdict to this file")
    return parser.parse_args()


def _keep(chosen: Sequence[Program], folder: Path) -> None:
    for program in chosen:
        write(program.files, folder / program.name / "before")
        for fixed in safe_fixes(program):
            write(fixed.files, folder / program.name / f"after-{fixed.rule}")


def _progress(done: int, of: int, verdicts: Sequence[Verdict]) -> None:
    if sys.stderr.isatty() or done % 50 == 0:
        harms = sum(v.judgement.verdict == HARMED for v in verdicts)
        print(f"{done} of {of} programs, {len(verdicts)} runs, {harms} harms", file=sys.stderr)


def _tell(verdicts: Sequence[Verdict]) -> None:
    """Print the harms of one program, those alike as one, and each diff once."""
    harms = [v for v in verdicts if v.judgement.verdict == HARMED]
    kinds: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for harm in harms:
        key = (harm.rule, harm.diff, harm.judgement.details)
        kinds.setdefault(key, []).append(harm.configuration)
    shown = ""
    for (rule, diff, details), configurations in kinds.items():
        print(f"\n{rule}: {harms[0].program} [{'] ['.join(configurations)}]")
        print("".join(f"    {line}\n" for line in details), end="")
        print("" if diff == shown else diff, flush=True)
        shown = diff


def _report(verdicts: Sequence[Verdict]) -> None:
    rows = Counter((v.rule, v.judgement.verdict) for v in verdicts)
    names = {rule: {v.program for v in verdicts if v.rule == rule} for rule, _ in rows}
    print("\n" + " ".join([f"{'rule':32}", "programs", "not run", "runs", *VERDICTS]))
    for rule in sorted(names):
        _row(rule, [v for v in verdicts if v.rule == rule])
    _row("every rule", verdicts)


def _row(rule: str, verdicts: Sequence[Verdict]) -> None:
    all_ = {v.program for v in verdicts}
    run = {v.program for v in verdicts if v.judgement.verdict in TELLING}
    counts = Counter(v.judgement.verdict for v in verdicts)
    cells = [f"{counts[v]:{len(v)}}" for v in VERDICTS]
    print(" ".join([f"{rule:32}", f"{len(all_):8} {len(all_ - run):7} {len(verdicts):4}", *cells]))


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "program": verdict.program,
        "rule": verdict.rule,
        "configuration": verdict.configuration,
        "verdict": verdict.judgement.verdict,
        "details": verdict.judgement.details,
        "diff": verdict.diff,
    }


if __name__ == "__main__":
    raise SystemExit(main())
