"""The programs that the oracle looks at, by where they are from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from benchmarks.detection.mutators import mutate
from benchmarks.detection.program import load_all
from benchmarks.differential import families
from benchmarks.differential.program import Program
from fsdplint.finding import Safety
from fsdplint.rules import RULES
from tests.fuzz.programs import seeds
from tests.fuzz.rewritten import rewritten, steps
from tests.fuzz.shaped import shaped
from tests.fuzz.trees import Trees

_ROOT = Path(__file__).parents[2]
_ENTRIES = ("train.py", "main.py", "snippet.py")
_MUTANTS = 12
"""Mutants of one rule that are taken, from as many programs as there are."""
_FUZZED = 150


def programs(seed: int, sources: Sequence[str] = ()) -> Iterator[Program]:
    """Yield the programs of some sources, of all if none is named; a seed gives the same ones."""
    for name, source in SOURCES.items():
        if not sources or name in sources:
            yield from source(seed)


def _fixtures(_: int) -> Iterator[Program]:
    for seed in seeds():
        if not seed.name.startswith("benchmark/"):
            yield Program(seed.name, seed.files, _entry(seed.files))


def _examples(_: int) -> Iterator[Program]:
    for path in sorted((_ROOT / "examples").glob("*/*")):
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        texts = {file.name: file.read_text() for file in files}
        if texts:
            yield Program(f"examples/{path.parent.name}/{path.stem}", texts, _entry(texts))


def _benchmark(_: int) -> Iterator[Program]:
    for program in load_all():
        if program.launch:
            yield Program(f"benchmark/{program.name}", program.files, program.entry, program.args)


def _mutants(seed: int) -> Iterator[Program]:
    """Yield mutants, no more of one rule than `_MUTANTS`: rules fix some safely, some not."""
    by_rule: dict[str, list[Program]] = {}
    for program in load_all():
        for made in mutate(program, seed) if program.launch else ():
            name = f"mutants/{made.program}/{made.rule}/{_slug(made.kind)}"
            run = Program(name, made.files, program.entry, program.args)
            by_rule.setdefault(made.rule, []).append(run)
    for rule in sorted(by_rule):
        made_ = sorted(by_rule[rule], key=lambda p: p.name)
        yield from Random(f"{seed} {rule}").sample(made_, min(_MUTANTS, len(made_)))


def _fuzzed(seed: int) -> Iterator[Program]:
    for number in range(_FUZZED):
        made = shaped(Random(f"{seed} shaped {number}"))
        yield Program(f"fuzz/shaped-{number}", made.files, _entry(made.files))


def _rewritten(seed: int) -> Iterator[Program]:
    """Yield the programs of the families, written otherwise with the same meaning."""
    for program in families.programs():
        random = Random(f"{seed} {program.name}")
        trees, done = rewritten(Trees.of(program.files), steps(random, 3))
        files = trees.printed()
        if done and program.entry in files:
            yield Program(f"rewritten/{program.name}", files, program.entry, program.arguments)


def _adversarial(_: int) -> Iterator[Program]:
    yield from families.programs()


SOURCES: Mapping[str, Callable[[int], Iterator[Program]]] = {
    "fixtures": _fixtures,
    "examples": _examples,
    "benchmark": _benchmark,
    "mutants": _mutants,
    "families": _adversarial,
    "rewritten": _rewritten,
    "fuzz": _fuzzed,
}


@cache
def safe_rules() -> frozenset[str]:
    """Return the names of the rules that are declared to fix programs safely.

    What fixes of settings do, the tools show that read them (`tests/configs`).
    """
    safe = (rule for rule in RULES if rule.fix is Safety.SAFE)
    return frozenset(rule.name for rule in safe if not rule.is_of_configs)


def _entry(files: Mapping[str, str]) -> str:
    """Return the file to run: the one so named, or the one with a main, or the last."""
    paths = sorted(files)
    mains = [path for path in paths if "__main__" in files[path]]
    named = [path for path in paths if Path(path).name in _ENTRIES]
    return [*mains, *named, *paths][0]


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text).strip("-")
