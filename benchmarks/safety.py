"""How many fixes are safe, unsafe or declined, by rule: `python -m benchmarks.safety [FOLDER …]`.

Counts the findings of all rules in the fixtures, in the examples and, with ``--mutants N``, in N
mutants of each rule; or in the folders that are given. Two versions of fsdplint are compared by
running each on the same folders.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.detection.mutators import mutate
from benchmarks.detection.program import Mutant, load_all
from fsdplint.check import check
from fsdplint.finding import Finding
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

_ROOT = Path(__file__).parents[1]
_KINDS = ("safe", "unsafe", "declined")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.safety", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--mutants", type=int, default=0, help="so many of each rule")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for path in options.folders or _programs():
        counts.update(map(_kind, _findings(path)))
    for mutant in _mutants(options.mutants):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in mutant.files.items():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            counts.update(map(_kind, _findings(Path(folder))))
    _report(counts)


def _programs() -> Iterator[Path]:
    """The programs of the repository, each of which is checked by itself."""
    yield from sorted((_ROOT / "tests/fixtures/scripts").rglob("*.py"))
    yield from sorted(each for each in (_ROOT / "tests/fixtures/projects").iterdir())
    yield from sorted((_ROOT / "examples").glob("*/*"))


def _mutants(number: int) -> list[Mutant]:
    by_rule: dict[str, list[Mutant]] = {}
    for program in load_all() if number else ():
        for made in mutate(program, 0):
            by_rule.setdefault(made.rule, []).append(made)
    chosen = (Random(rule).sample(m, min(number, len(m))) for rule, m in sorted(by_rule.items()))
    return [mutant for mutants in chosen for mutant in mutants]


def _findings(path: Path) -> tuple[Finding, ...]:
    return check([path], defaults(EVERYTHING)).findings


def _kind(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.fix.safety.value if finding.fix else "declined"


def _report(counts: Counter[tuple[str, str]]) -> None:
    print("| rule | " + " | ".join(_KINDS) + " |\n|---|" + "---:|" * len(_KINDS))
    for code in sorted({code for code, _ in counts}):
        print(f"| {code} | " + " | ".join(str(counts[code, kind]) for kind in _KINDS) + " |")
    totals = (sum(n for (_, each), n in counts.items() if each == kind) for kind in _KINDS)
    print("| all | " + " | ".join(map(str, totals)) + " |")


if __name__ == "__main__":
    main()
