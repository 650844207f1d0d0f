"""The large run: ``python -m tests.fuzz.run --programs 100000 --jobs 2 --seed 1 --out found``.

Program ``n`` of a seed is the same on every machine; ``--first n --programs 1`` makes it again.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from random import Random

from fsdplint.engine.frontend import lower_statements
from fsdplint.engine.frontend.syntax import parse
from fsdplint.fixes import edit_check
from tests.fuzz.grammar import grammatical, spliced
from tests.fuzz.layout import as_is, relaid
from tests.fuzz.programs import Program, seeds
from tests.fuzz.properties import TAKEN_BACK, Failure, failures
from tests.fuzz.rewritten import (
    Found,
    Step,
    difference,
    found,
    found_by_token,
    rewritten,
    silenced,
    steps,
)
from tests.fuzz.shaped import shaped
from tests.fuzz.trees import Trees

CHUNK = 100
VARIANTS = 10
SLOW = 5.0
KINDS = ("grammatical", "spliced", "shaped", "rewritten", "rewritten", "rewritten", "relaid")
# Its findings are about comments, which are not kept when a tree is printed.
_ABOUT_COMMENTS = "pages/unused-suppression"


Failed = tuple[Failure, Mapping[str, str]]


@dataclass
class Result:
    """What became of some programs."""

    first: int
    kinds: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    silenced: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str, Failure, Mapping[str, str]]] = field(default_factory=list)
    slow: list[tuple[int, float]] = field(default_factory=list)
    digest: str = ""


def tried(kind: str, random: Random, base: Base, result: Result) -> Iterator[Failed]:
    """Makes one program and gives back what does not hold for it."""
    if kind == "rewritten":
        yield from _rewritten(base, random, result)
        return
    if kind == "relaid":
        yield from _relaid(base, random)
        return
    make = {"grammatical": grammatical, "spliced": _spliced, "shaped": shaped}[kind]
    program = make(random)
    for failure in failures(program.files):
        yield failure, program.files


def _spliced(random: Random) -> Program:
    return spliced(random, _seeds())


def _seeds() -> tuple[Program, ...]:
    return tuple(seed for seed in seeds() if not seed.name.startswith(_ABOUT_COMMENTS))


@dataclass
class Base:
    """A program with its findings, to be compared with more than one of its rewritings."""

    name: str
    trees: Trees

    @classmethod
    def of(cls, random: Random) -> Base:
        program = shaped(random) if random.random() < 0.5 else random.choice(_seeds())
        return cls(program.name, Trees.of(program.files))

    @cached_property
    def found(self) -> Found:
        return found(self.trees)

    @cached_property
    def found_by_token(self) -> Found:
        return found_by_token({path: as_is(text) for path, text in self.trees.printed().items()})


def _relaid(base: Base, random: Random) -> Iterator[Failed]:
    laid = {path: relaid(text, random) for path, text in base.trees.printed().items()}
    files = {path: each.mark + each.text for path, each in laid.items()}
    if changed := difference(base.found_by_token, found_by_token(laid)):
        yield Failure("layout changes findings", f"{base.name}\n{changed}"), files
    for failure in failures(files) if random.random() < 0.2 else ():
        yield failure, files


def _rewritten(base: Base, random: Random, result: Result) -> Iterator[Failed]:
    new, done = rewritten(base.trees, steps(random, 4))
    result.steps.update(step.name for step in done)
    result.rules.update(rule for rule, _ in base.found)
    now = found(new)
    result.silenced.update(silenced(base.found, now, done))
    if changed := difference(base.found, now, done):
        yield _told(base.trees, base.found, done, changed, base.name), new.printed()


def _told(trees: Trees, before: Found, done: list[Step], changed: str, name: str) -> Failure:
    """The failure of as few steps as show it."""
    for step in list(done):
        fewer = [each for each in done if each is not step]
        new, really = rewritten(trees, fewer)
        if really == fewer and (still := difference(before, found(new), fewer)):
            done, changed = fewer, still
    ways = "+".join(step.name for step in done)
    return Failure(f"rewriting changes findings: {ways}", f"{name}\n{done}\n{changed}")


@cache
def _parse_once() -> None:
    """Keeps the trees of the last texts, which never change: each text is parsed several times."""
    lower_statements.parse = edit_check.parse = lru_cache(maxsize=64)(parse)  # type: ignore[assignment]  # the same to call


def chunk(first: int, seed: int, kinds: tuple[str, ...], last: int) -> Result:
    _parse_once()
    result = Result(first)
    digest = hashlib.sha256()
    gc.disable()  # a program leaves some thousand objects, and there are few programs
    for number in range(first, min(first + CHUNK, last)):
        if number == first or number % VARIANTS == 0:
            base = Base.of(Random(f"{seed}/base/{number // VARIANTS}"))
        random = Random(f"{seed}/{number}")
        kind = random.choice(kinds)
        started = time.process_time()
        try:
            failed = list(tried(kind, random, base, result))
        except Exception:  # a crash is what is looked for
            failed = [(Failure("crash", traceback.format_exc(limit=-6)), {})]
        taken = time.process_time() - started
        if taken > SLOW:
            result.slow.append((number, taken))
        result.kinds[kind] += 1
        result.failed += [(number, kind, failure, files) for failure, files in failed]
        digest.update(repr(sorted(result.rules.items())).encode())
    gc.enable()
    gc.collect()
    result.digest = digest.hexdigest()
    return result


def write(folder: Path, number: int, kind: str, failure: Failure, files: Mapping[str, str]) -> None:
    about = f"{number} {kind}: {failure.kind}\n{failure.detail}\n"
    parts = [f"##### {path}\n{text}" for path, text in files.items()]
    target = folder / f"{number:07}-{failure.kind.split(':')[0].replace(' ', '-')}.txt"
    target.write_text(
        "\n".join([about, *parts]), encoding="utf-8", errors="backslashreplace", newline=""
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=sorted(set(KINDS)))
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    last = given.first + given.programs
    work = partial(chunk, seed=given.seed, kinds=tuple(given.kinds), last=last)
    started, total, kinds = time.monotonic(), Result(given.first), Counter[str]()
    # Fresh processes now and then: the checker keeps what it has seen of each program.
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=10) as pool:
        for result in pool.imap_unordered(work, range(given.first, last, CHUNK)):
            for number, kind, failure, files in result.failed:
                kinds[failure.kind] += 1
                write(given.out, number, kind, failure, files)
            for mine, more in zip(_counts(total), _counts(result), strict=True):
                mine.update(more)
            total.slow += result.slow
            done = total.kinds.total()
            with (given.out / "digests").open("a") as digests:
                digests.write(f"{result.first} {result.digest}\n")
            spent = time.monotonic() - started
            print(f"{done} programs, {spent:.0f} s, failures: {dict(kinds)}", flush=True)
    for counted in _counts(total):
        print(dict(counted.most_common()))
    print("slow:", sorted(total.slow))
    return 1 if kinds.keys() - {TAKEN_BACK} else 0


def _counts(result: Result) -> tuple[Counter[str], ...]:
    return result.kinds, result.rules, result.steps, result.silenced


if __name__ == "__main__":
    sys.exit(main())
