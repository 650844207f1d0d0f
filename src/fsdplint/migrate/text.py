"""The plan of a migration as text: what changes where, what it asks, what it cannot change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fsdplint.migrate.plan import Entry, Plan
from fsdplint.migrate.step import Change, Kept, Question
from fsdplint.process.terminal import printable
from fsdplint.report.places import located, shown

_ONLY_ROOT = (
    "Only the root of the model is sharded: no repeated blocks were found. Each rank holds all of "
    "the model during a step. Call `fully_shard` on large parts of it first, by hand."
)


def plan_as_text(plan: Plan) -> str:
    """Return the plan, one block for each file."""
    lines: list[str] = []
    for path, entries in groupby(plan.entries, key=lambda entry: entry.path):
        lines.append(f"{shown(plan.outcome, path)}")
        for entry, text in _texts(entries):
            lines.append(f"  {_line(plan, entry):>5}  {printable(text)}")
    for finding in plan.new:
        where = located(plan.outcome, finding.span)
        lines.append(f"{where}: new finding after the migration: {finding.rule}: {finding.message}")
    if asked := [entry for entry in plan.entries if isinstance(entry.found, Question)]:
        lines.append("Answer with --yes, or by lines in a file for --answers:")
        lines += [f"  {_answer(entry)}" for entry in asked]
    for path in dict.fromkeys(finding.span.path for finding in plan.late):
        lines.append(f"{shown(plan.outcome, path)}: needs a newer PyTorch than the project admits")
    lines += sorted({f"  {printable(finding.message)}" for finding in plan.late})
    if plan.only_root:
        lines.append(_ONLY_ROOT)
    return "".join(f"{line}\n" for line in lines)


def _line(plan: Plan, entry: Entry) -> str:
    """Return the number of the line, in a notebook that of its cell and the line in there."""
    cell = plan.outcome.sources[entry.path].cell(entry.line)
    return f"{cell[0]}:{cell[1]}" if cell else str(entry.line)


def _texts(entries: Iterator[Entry]) -> Iterator[tuple[Entry, str]]:
    for entry in entries:
        found = entry.found
        if isinstance(found, Change):
            yield entry, found.what + (f" ({found.differs})" if found.differs else "")
        elif isinstance(found, Question):
            yield entry, f"question: {found.text} [{' | '.join(found.choices)}]"
        else:
            yield entry, f"unchanged: {found.what}: {found.reason}"


def _answer(entry: Entry) -> str:
    """Return the line of TOML that gives a question its first answer."""
    assert isinstance(entry.found, Question)
    return f'"{printable(entry.key)}" = "{entry.found.choices[0]}"'


def summary(plan: Plan) -> str:
    """Return one line on what the plan comes to."""
    asked, kept, changes = len(plan.of(Question)), len(plan.of(Kept)), len(plan.of(Change))
    if not plan.entries:
        return "Nothing to migrate."
    if asked:
        return f"{_count(asked, 'question')} to answer before the plan is complete."
    if kept or plan.new:
        places = _count(kept, "place")
        new = f", and {_count(len(plan.new), 'new finding')}" if plan.new else ""
        return f"Not complete: {places} to change by hand{new}."
    return f"Complete: {_count(changes, 'change')} in {_count(len(plan.files), 'file')}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s'[: number != 1]}"
