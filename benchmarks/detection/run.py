"""How many mutants are found, what correct programs are accused of, and whether fixes cure.

Exits 1 below 95 % found, on a false alarm, on a fix that does not cure, or on an internal error.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.detection.mutators import mutate
from benchmarks.detection.program import Mutant, load_all, mutant
from fsdplint.check import check
from fsdplint.files.file import SourceFile
from fsdplint.finding import Finding
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Outcome
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

GOAL = 0.95


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one mutant, or of a program as it is (``rule`` is "").

    Attributes:
        found: a finding of the rule at one of the places.
        others: findings that nobody asked for, as `path:line rule`.
        fix: "", "clean", "declined: why" or "broken: why".
        failures: what the run could not look at.
    """

    program: str
    rule: str
    kind: str
    places: tuple[str, ...]
    found: bool
    others: tuple[str, ...]
    fix: str
    failures: tuple[str, ...]


def examine(case: Mutant, folder: Path) -> Result:
    """The result of ``case``, written below ``folder``."""
    for path, text in case.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    outcome = _check(folder)
    right = [f for f in outcome.findings if f.rule == case.rule and _at(f, case, outcome, folder)]
    others = [f for f in outcome.findings if f.rule != case.rule]
    return Result(
        program=case.program,
        rule=case.rule,
        kind=case.kind,
        places=tuple(f"{path}:{line}" for path, line in sorted(case.places)),
        found=bool(right),
        others=tuple(_shown(f, outcome, folder) for f in others),
        fix=_fix(right[0], outcome, folder) if right else "",
        failures=tuple(map(str, outcome.failures)),
    )


def _check(folder: Path, overlay: Mapping[str, SourceFile] | None = None) -> Outcome:
    return check([folder], defaults(EVERYTHING), overlay)


def _at(finding: Finding, case: Mutant, outcome: Outcome, folder: Path) -> bool:
    spans = [finding.span, *(evidence.span for evidence in finding.evidence)]
    return any(_line(span.path, span.start, outcome, folder) in case.places for span in spans)


def _line(path: str, offset: int, outcome: Outcome, folder: Path) -> tuple[str, int]:
    relative = Path(path).relative_to(folder).as_posix()
    return relative, outcome.sources[path].position(offset)[0]


def _shown(finding: Finding, outcome: Outcome, folder: Path) -> str:
    path, line = _line(finding.span.path, finding.span.start, outcome, folder)
    return f"{path}:{line} {finding.rule}"


def _fix(finding: Finding, outcome: Outcome, folder: Path) -> str:
    if finding.fix is None:
        return f"declined: {finding.fix_declined or 'no reason given'}"
    changes = fixed(outcome, lambda overlay: _check(folder, overlay), unsafe=True)
    problems = [f"{path}: {note}" for path, note in changes.notes]
    for _, after in changes.files:
        try:
            ast.parse(after.text)
        except SyntaxError as error:
            problems.append(f"does not parse: {error}")
        # Anything the second round would change, it would change in what is read from disk.
        Path(after.path).write_text(after.text)
    again = _check(folder)
    problems += [f"left: {_shown(left, again, folder)}" for left in again.findings]
    if fixed(again, lambda overlay: _check(folder, overlay), unsafe=True).files:
        problems.append("a second round changes it again")
    return f"broken: {'; '.join(problems)}" if problems else "clean"


def cases(seed: int, name: str, rule: str) -> Iterator[Mutant]:
    for program in load_all():
        if name in program.name:
            yield mutant(program, "", "unmutated", {})
            made = mutate(program, seed)
            yield from (one for one in made if rule in one.rule or not one.rule)


def examine_all(todo: Iterable[Mutant], jobs: int) -> list[Result]:
    if jobs == 1:
        return [_examined(case) for case in todo]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return pool.map(_examined, todo, chunksize=1)


def _examined(case: Mutant) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        return examine(case, Path(folder).resolve())


def table(results: list[Result]) -> str:
    """Rule by rule: found, and what came of the fixes."""
    head = f"{'rule':28}{'mutants':>8}{'found':>8}{'%':>8}{'fix clean':>11}{'declined':>10}"
    lines = [head + f"{'broken':>8}"]
    rules = sorted({r.rule for r in results if r.rule})
    for rule in [*rules, "all"]:
        own = [r for r in results if r.rule and rule in (r.rule, "all")]
        fixes = Counter(r.fix.partition(":")[0] for r in own)
        found = sum(r.found for r in own)
        lines.append(
            f"{rule:28}{len(own):8}{found:8}{_percent(found, len(own)):>8}"
            f"{fixes['clean']:11}{fixes['declined']:10}{fixes['broken']:8}"
        )
    return "\n".join(lines)


def matrix(results: list[Result]) -> str:
    """Program by program: found of mutants for each rule, and false alarms."""
    rules = sorted({r.rule for r in results if r.rule})
    lines = [
        f"{'program':22}" + "".join(f"{_short(rule):>14}" for rule in rules) + "  alarms/legal"
    ]
    for name in dict.fromkeys(r.program for r in results):
        own = [r for r in results if r.program == name]
        cells = [_cell([r for r in own if r.rule == rule]) for rule in rules]
        legal = [r for r in own if not r.rule]
        alarms = sum(bool(r.others) for r in legal)
        lines.append(
            f"{name:22}" + "".join(f"{cell:>14}" for cell in cells) + f"{alarms:7}/{len(legal)}"
        )
    return "\n".join(lines)


def _short(rule: str) -> str:
    return rule[:13]


def _cell(results: list[Result]) -> str:
    return f"{sum(r.found for r in results)}/{len(results)}" if results else "-"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _listed(title: str, results: Iterable[Result], said: Callable[[Result], str]) -> str:
    lines = [f"  {r.program}: {r.rule or 'legal'}: {r.kind}: {said(r)}" for r in results]
    return "\n".join([f"\n{title} ({len(lines)})", *lines]) if lines else ""


def report(results: list[Result]) -> str:
    mutants = [r for r in results if r.rule]
    return "\n".join(
        part
        for part in (
            table(results),
            "",
            matrix(results),
            _listed("missed", (r for r in mutants if not r.found), lambda r: ", ".join(r.places)),
            _listed(
                "false alarms in correct programs",
                (r for r in results if not r.rule and r.others),
                lambda r: ", ".join(r.others),
            ),
            _listed(
                "findings of other rules in mutants",
                (r for r in mutants if r.others),
                lambda r: ", ".join(r.others),
            ),
            _listed("broken fixes", (r for r in mutants if "broken" in r.fix), lambda r: r.fix),
            _listed("declined fixes", (r for r in mutants if "declined" in r.fix), lambda r: r.fix),
            _listed("failures", (r for r in results if r.failures), lambda r: str(r.failures)),
        )
        if part or part == ""
    )


def passed(results: list[Result]) -> bool:
    mutants = [r for r in results if r.rule]
    enough = sum(r.found for r in mutants) >= GOAL * len(mutants)
    return enough and not any(r.others or r.failures or r.fix.startswith("broken") for r in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", default="", help="only programs named like this")
    parser.add_argument("--rule", default="", help="only mutants of the rules named like this")
    parser.add_argument("--jobs", type=int, default=1, help="processes, forked when warm")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    start = time.perf_counter()
    results = examine_all(cases(args.seed, args.program, args.rule), args.jobs)
    print(report(results))
    print(f"\n{len(results)} runs in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 0 if passed(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
