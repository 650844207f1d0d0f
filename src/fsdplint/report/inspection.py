"""The analysis of a script, for a terminal or for other programs.

The JSON document is an object: ``version`` (1), ``path``, ``entries`` and ``unresolved``, with the
members that the modules of `fsdplint.engine.inspection` describe. A ``span`` is null or an object
of ``path``, ``line`` and ``column``, which count from 1; in a notebook ``cell`` is there too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import PurePosixPath

from fsdplint.engine.inspection.outline import Step
from fsdplint.engine.inspection.summary import (
    Entry,
    Inspection,
    Model,
    Optimizer,
    Sharding,
)
from fsdplint.engine.inspection.unresolved import Unresolved
from fsdplint.engine.inspection.variants import Variant
from fsdplint.finding import TOP_LEVEL, Span
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable
from fsdplint.report.json import place_as_json
from fsdplint.report.places import place, relative, shown
from fsdplint.report.style import Style

_WIDTH = 100
_PLACE_WIDTH = 30
_MAX_VARIANT_STEPS = 6
_MAX_ITEMS = 12


@dataclass(frozen=True, slots=True)
class _Line:
    """A line: where it points to, and the text beside that, indented."""

    depth: int
    text: str
    span: Span | None = None


def inspection_as_json(inspection: Inspection, outcome: Outcome) -> str:
    """Return the document that the module describes."""
    document = {"version": 1, **_members(inspection, outcome)}
    document["path"] = relative(outcome, inspection.path)
    return json.dumps(document, indent=2) + "\n"


def _members(value: object, outcome: Outcome) -> dict[str, object]:
    assert is_dataclass(value)
    return {f.name: _plain(getattr(value, f.name), outcome) for f in fields(value)}


def _plain(value: object, outcome: Outcome) -> object:
    if isinstance(value, Span):
        where = place_as_json(outcome, value.path, value.start)
        return {"path": relative(outcome, value.path), **where}
    if isinstance(value, Entry):
        return {**_members(value, outcome), "path": relative(outcome, value.path)}
    if is_dataclass(value):
        return _members(value, outcome)
    if isinstance(value, tuple):
        return [_plain(item, outcome) for item in value]
    return value


# Text


def inspection_as_text(inspection: Inspection, outcome: Outcome, style: Style) -> str:
    """Return each entry with models, optimizers and execution order, and what is unresolved."""
    sections = [_lines_of_entry(entry) for entry in inspection.entries]
    rest = list(_unresolved(inspection.unresolved))
    places = _Places(outcome, [*(line for lines in sections for line in lines), *rest])
    parts = [_none(inspection, outcome)] if not sections else []
    paths = [PurePosixPath(entry.path) for entry in inspection.entries]
    own = sum(path.is_relative_to(inspection.path) for path in paths)
    for number, (entry, lines) in enumerate(zip(inspection.entries, sections, strict=True)):
        if number == own:
            parts.append(_from_elsewhere(inspection, outcome, also=own > 0))
        parts.append(style(_heading(entry, outcome), "path") + "\n" + places.drawn(lines, style))
    if rest:
        parts.append(style("unresolved", "path") + "\n" + places.drawn(rest, style))
    return "\n".join(parts)


def _none(inspection: Inspection, outcome: Outcome) -> str:
    return f"no sharding call is reachable from {shown(outcome, inspection.path)}\n"


def _from_elsewhere(inspection: Inspection, outcome: Outcome, also: bool) -> str:
    name = shown(outcome, inspection.path)
    if also:
        return f"{name} is also reached from:\n"
    return f"no program starts in {name}; it is reached from:\n"


def _heading(entry: Entry, outcome: Outcome) -> str:
    return f"{shown(outcome, entry.path)}: {_entry_name(entry.name)}"


def _entry_name(name: str) -> str:
    return "top level" if name == TOP_LEVEL else f"{name}()"


class _Places:
    """The column of places: file names are as short as they can be without becoming ambiguous."""

    def __init__(self, outcome: Outcome, lines: Iterable[_Line]) -> None:
        self.outcome = outcome
        spans = [line.span for line in lines if line.span is not None]
        self.names = _short_names({span.path for span in spans})
        self.width = min(max((len(self.of(span)) for span in spans), default=0), _PLACE_WIDTH)

    def of(self, span: Span) -> str:
        where = place(self.outcome, span.path, span.start)
        cell = f"cell {where.cell}:" if where.cell is not None else ""
        return f"{self.names[span.path]}:{cell}{where.line}"

    def drawn(self, lines: Iterable[_Line], style: Style) -> str:
        return "".join(f"{self._line(line, style)}\n" for line in lines)

    def _line(self, line: _Line, style: Style) -> str:
        if line.depth == 0:
            return _cut(f"  {printable(line.text)}", _WIDTH)
        where = "" if line.span is None else printable(self.of(line.span))
        where = f"…{where[1 - self.width :]}" if len(where) > self.width else where
        text = _cut("  " * (line.depth - 1) + printable(line.text), _WIDTH - 6 - self.width)
        return f"    {style(where.ljust(self.width), 'gutter')}  {text}".rstrip()


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the shortest end of each path that no other path has."""
    paths = set(paths)
    names = {}
    for path in paths:
        parts = PurePosixPath(path).parts
        for count in range(1, len(parts) + 1):
            end = parts[-count:]
            if sum(PurePosixPath(other).parts[-count:] == end for other in paths) == 1:
                break
        names[path] = "/".join(end).replace("//", "/")
    return names


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


# Sections


def _lines_of_entry(entry: Entry) -> list[_Line]:
    """Return the sections of one entry: models, policies, optimizers, order and variants."""
    lines = [_Line(0, "models" if entry.models else "no model found")]
    for model in entry.models:
        lines.extend(_model(model))
    if entry.settings:
        lines.append(_Line(0, "meshes and policies"))
        lines.extend(_Line(1, f"{each.role}: {each.text}", each.span) for each in entry.settings)
    lines.append(_Line(0, "optimizers" if entry.optimizers else "no optimizer found"))
    lines.extend(_optimizer(optimizer) for optimizer in entry.optimizers)
    lines.append(
        _Line(0, "execution order" if not entry.variants else "execution order on the first path")
    )
    lines.extend(_order(entry.steps))
    for variant in entry.variants:
        lines.extend(_variant(variant))
    return lines


def _model(model: Model) -> Iterator[_Line]:
    more = f": {model.built}" if model.built else ""
    yield _Line(1, f"{model.name}{more}", model.span)
    names = [_targets(sharding) for sharding in model.shardings]
    width = max(map(len, [*names, *model.unsharded]), default=0)
    for name, sharding in zip(names, model.shardings, strict=True):
        text = f"{name:<{width}}  {sharding.generation}  {', '.join(sharding.arguments)}"
        yield _Line(2, text.rstrip(), sharding.span)
    for path in model.unsharded:
        yield _Line(2, f"{path:<{width}}  repeated blocks, not sharded")
    if not model.shardings:
        yield _Line(2, "not sharded")


def _targets(sharding: Sharding) -> str:
    names = [target or "itself" for target in sharding.targets]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _optimizer(optimizer: Optimizer) -> _Line:
    takes = "; ".join(_take(name, when) for name, when in optimizer.takes)
    return _Line(1, f"{optimizer.name} with {takes or 'unknown parameters'}", optimizer.span)


def _take(name: str, when: str) -> str:
    return f"{name}'s parameters, {when if when == 'not sharded' else f'taken {when}'}"


def _order(steps: Iterable[Step]) -> Iterator[_Line]:
    for step in steps:
        yield _Line(step.depth + 1, _step(step), step.span)


def _step(step: Step) -> str:
    text = f"{step.kind}: {step.text}" if step.is_event else step.text
    return f"[{step.note}] {text}" if step.note else text


def _variant(variant: Variant) -> Iterator[_Line]:
    when = " and ".join(variant.conditions)
    yield _Line(0, f"when {when}" if when else "on another path")
    for sign, steps in (("+", variant.added), ("-", variant.removed)):
        for step in steps[:_MAX_VARIANT_STEPS]:
            yield _Line(1, f"{sign} {_step(step)}", step.span)
        if len(steps) > _MAX_VARIANT_STEPS:
            yield _Line(1, f"{sign} {len(steps) - _MAX_VARIANT_STEPS} more")


def _unresolved(unresolved: Unresolved) -> Iterator[_Line]:
    for broken in unresolved.files:
        yield _Line(1, f"does not parse: {broken.reason}", broken.span)
    for each in unresolved.entries:
        yield _Line(1, f"{_entry_name(each.entry)} is not fully analyzed: {each.reason}")
    for found in unresolved.imports:
        yield _Line(1, f"import of `{found.module}` cannot be resolved", found.span)
    for call in unresolved.calls[:_MAX_ITEMS]:
        yield _Line(
            1, f"unknown code gets the {' and the '.join(call.given)}: {call.text}", call.span
        )
    if len(unresolved.calls) > _MAX_ITEMS:
        yield _Line(1, f"{len(unresolved.calls) - _MAX_ITEMS} more such calls")
