"""What is still found where objects come from elsewhere: ``python -m tests.fuzz.reach``.

Each rewriting that hides something is tried on each program. What is printed is, by rewriting and
rule, how many findings stay, go and come, and the sum of each rewriting with the number of programs
that it rewrote; findings in code that a rewriting leaves out do not count. One that comes is a
failure, and so is one that goes and may not.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from tests.fuzz.programs import Program, seeds
from tests.fuzz.rewriting import HIDING
from tests.fuzz.rewritten import MAY_BE_SILENT, MAY_COME, Found, Step, changed, found, rewritten
from tests.fuzz.trees import Origin, Trees

TRIED = (*HIDING, "by_factory", "by_factory_elsewhere", "into_library", "split")


@dataclass(frozen=True, slots=True)
class Tried:
    """A program by a rewriting: the rules of the findings that stay, that go and that come."""

    program: str
    step: Step
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    new: tuple[str, ...]
    files: dict[str, str]

    @property
    def wrong(self) -> tuple[str, ...]:
        """The rules of findings that may not come, and of those that may not go."""
        silent = MAY_BE_SILENT.get(self.step.name, ())
        known = MAY_COME.get(self.step.name, ())
        come = (rule for rule in self.new if rule not in known)
        return (*come, *(rule for rule in self.lost if rule not in silent))


def tried(programs: Iterable[Program], times: int) -> Iterator[Tried]:
    """Tries each rewriting so many times on each program."""
    for program in programs:
        trees = Trees.of(program.files)
        before = found(trees)
        for name in TRIED:
            steps = [
                Step(name, Random(f"{program.name}/{n}").getrandbits(32)) for n in range(times)
            ]
            made = [(step, *rewritten(trees, [step])) for step in steps]
            yield from (_tried(program, before, step, new) for step, new, done in made if done)


def _tried(program: Program, before: Found, step: Step, new: Trees) -> Tried:
    there = set(_origins(new))
    before = frozenset(each for each in before if each[1] in there)
    gone, come = changed(before, found(new), [step])
    kept = Counter(rule for rule, _ in before) - Counter(rule for rule, _ in gone)
    return Tried(
        program.name,
        step,
        tuple(kept.elements()),
        tuple(sorted(rule for rule, _ in gone)),
        tuple(sorted(rule for rule, _ in come)),
        new.printed(),
    )


def _origins(trees: Trees) -> Iterator[Origin]:
    for module in trees.modules.values():
        yield from (node.origin for node in ast.walk(module) if hasattr(node, "origin"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument("--show", default="", help="print what loses `rewriting: rule`")
    given = parser.parse_args()
    kept, lost, new, wrong = Counter[str](), Counter[str](), Counter[str](), 0
    programs = Counter[str]()
    for each in tried((p for p in seeds() if given.only in p.name), given.times):
        for counted, rules in ((kept, each.kept), (lost, each.lost), (new, each.new)):
            counted.update(f"{each.step.name}: {rule}" for rule in rules)
            counted[each.step.name] += len(rules)
        programs[each.step.name] += 1
        told = [f"{each.step.name}: {rule}" for rule in each.lost]
        wrong += len(each.wrong)
        if each.wrong or (given.show and any(given.show in name for name in told)):
            print(f"##### {each.program} {each.step}: -{each.lost} +{each.new}")
            print(*(f"# {path}\n{text}" for path, text in each.files.items()), sep="\n")
    print(f"{'rewriting: rule':<60} stay   go come")
    for name in sorted({*kept, *lost, *new}, key=lambda name: (name.split(":")[0], -lost[name])):
        whole = f"  of {programs[name]} programs" if name in programs else ""
        print(f"{name:<60} {kept[name]:>4} {lost[name]:>4} {new[name]:>4}{whole}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
