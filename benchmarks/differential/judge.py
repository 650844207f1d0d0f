"""Judges the safe fixes of one program in all its configurations."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.differential.compare import (
    ALLOWED,
    FAILS_ALIKE,
    HARMED,
    UNSTABLE,
    Judgement,
    compare,
    differences,
)
from benchmarks.differential.configurations import configurations
from benchmarks.differential.execute import execute
from benchmarks.differential.fixes import ALL, difference, safe_fixes
from benchmarks.differential.program import Configuration, Fixed, Program
from benchmarks.differential.record import Run
from benchmarks.differential.simulated import with_devices

_OTHER = re.compile(r"# *(pragma|type|noqa|pylint|nosec|fmt|isort|mypy|pyright|ruff)\b[^#\n]*")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the fixes of one rule did to one program in one configuration."""

    program: str
    rule: str
    configuration: str
    judgement: Judgement
    diff: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A program to be judged.

    Attributes:
        rule: a part of the names of the rules to look at.
        fixes: the fixed programs, if not those that fsdplint makes.
        most: how many configurations to run, the most telling ones first; 0 for all.
    """

    program: Program
    rule: str = ""
    fixes: tuple[Fixed, ...] = ()
    most: int = 0


def judge(task: Task) -> list[Verdict]:
    """Run a program before and after its safe fixes, in every configuration that it offers."""
    fixes = [each for each in task.fixes or safe_fixes(task.program) if task.rule in each.rule]
    chosen = configurations(task.program)[: task.most or None] if fixes else []
    verdicts = [lost for each in fixes for lost in _lost(task.program, each)]
    for devices in sorted({configuration.devices for configuration in chosen}, reverse=True):
        alike = [configuration for configuration in chosen if configuration.devices == devices]
        run = partial(_judged, task.program, fixes, alike)
        verdicts += with_devices(devices, lambda run=run: list(run()))  # type: ignore[misc]  # bound
    return verdicts


def _judged(program: Program, fixes: list[Fixed], alike: list[Configuration]) -> Iterator[Verdict]:
    rules = [each.rule for each in fixes if each.rule != ALL]
    for configuration in alike:
        before = execute(program.files, program.entry, configuration)
        lacking = "ModuleNotFoundError" in before.failure()
        for each in fixes:
            judgement = _compared(program, each, rules, configuration, before)
            lacking = lacking and judgement.verdict == FAILS_ALIKE
            harmed = judgement.verdict in (HARMED, ALLOWED)
            diff = difference(program.files, each.files) if harmed else ""
            yield Verdict(program.name, each.rule, str(configuration), judgement, diff)
        if lacking:
            return


def _lost(program: Program, fixed: Fixed) -> Iterator[Verdict]:
    """Yield a harm if words to other tools are gone from a program's comments."""
    lost = _directives(program.files) - _directives(fixed.files)
    if lost:
        details = tuple(f"the comment `{text}` is gone" for text in sorted(lost.elements()))
        diff = difference(program.files, fixed.files)
        yield Verdict(program.name, fixed.rule, "as text", Judgement(HARMED, details), diff)


def _directives(files: Mapping[str, str]) -> Counter[str]:
    return Counter(found[0].strip() for text in files.values() for found in _OTHER.finditer(text))


def _compared(
    program: Program, each: Fixed, rules: list[str], configuration: Configuration, before: Run
) -> Judgement:
    after = execute(each.files, program.entry, configuration)
    facts = _facts(configuration)
    moved = partial(_moved, program, each)
    judgement = compare(rules if each.rule == ALL else [each.rule], before, after, facts, moved)
    if judgement.verdict == HARMED:  # unless it behaves otherwise each time
        again = execute(program.files, program.entry, configuration)
        if (again.ok, again.failure()) != (before.ok, before.failure()) or (
            before.ok and any(differences(before, again))
        ):
            return Judgement(UNSTABLE, judgement.details)
    return judgement


def _moved(program: Program, fixed: Fixed, path: str, line: int) -> tuple[str, int]:
    """Return where a line of a program is once it is fixed, or the line before it."""
    old, new = (files.get(path, "").splitlines() for files in (program.files, fixed.files))
    for tag, start, end, other, _ in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if start <= line - 1 < end:
            return path, other + (line - start if tag == "equal" else 1)
    return path, line


def _facts(configuration: Configuration) -> frozenset[str]:
    found = {"launched"} if configuration.launched else set()
    if configuration.nodes > 1 and configuration.launched:
        found.add("several nodes")
    if "--help" in configuration.arguments:
        found.add("help")
    return frozenset(found)
