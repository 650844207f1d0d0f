"""Describe in Markdown what the engine knows of a place: models, sharding, optimizers, calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsdplint.engine.inspection.outline import SOME_RANKS, SOME_STEPS, Step
from fsdplint.engine.inspection.summary import Entry, Inspection, Model, Optimizer, Sharding
from fsdplint.files.lexing import logical_lines
from fsdplint.finding import Span
from fsdplint.outcome import Outcome

_GUARDS = {SOME_RANKS: "Only some ranks get here", SOME_STEPS: "Only some steps get here"}
_EVENTS = {
    "backward": "Backward pass",
    "clip": "Clips gradients",
    "forward": "Forward pass",
    "load": "Loads a checkpoint",
    "mesh": "Device mesh",
    "no_sync": "Turns gradient reduction off",
    "optimizer": "Builds an optimizer",
    "repoint": "Replaces an optimizer's parameters",
    "save": "Saves a checkpoint",
    "shard": "Shards a module",
    "state": "State dict",
    "step": "Optimizer step",
    "write": "Writes a file",
    "zero_grad": "Clears gradients",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of the code at ``span``."""

    span: Span
    text: str


def at(inspection: Inspection, outcome: Outcome, path: str, offset: int) -> list[str]:
    """Return what is known of the code at ``offset``, or else of the statement it is in."""
    own = [fact for fact in _facts(inspection, outcome) if fact.span.path == path]
    around = [fact for fact in own if fact.span.start <= offset < fact.span.end]
    if around:
        least = min(fact.span.end - fact.span.start for fact in around)
        chosen = [fact for fact in around if fact.span.end - fact.span.start == least]
    else:
        lines = logical_lines(outcome.sources[path].text)
        line = next((each for each in lines if each.start <= offset < each.end), None)
        chosen = [fact for fact in own if line and line.start <= fact.span.start < line.end]
    return list(dict.fromkeys(fact.text for fact in chosen))


def _facts(inspection: Inspection, outcome: Outcome) -> Iterator[Fact]:
    for entry in inspection.entries:
        yield from _of_entry(entry, outcome)


def _of_entry(entry: Entry, outcome: Outcome) -> Iterator[Fact]:
    for model in entry.models:
        if model.span is not None:
            yield Fact(model.span, _model(model, outcome))
        yield from (Fact(each.span, _sharding(model, each)) for each in model.shardings)
    for setting in entry.settings:
        yield Fact(setting.span, f"**{setting.role}**: `{setting.text}`")
    for optimizer in entry.optimizers:
        yield Fact(optimizer.span, _optimizer(optimizer))
    only = entry.models[0] if len(entry.models) == 1 else None
    for index, step in enumerate(entry.steps):
        text = _step(step, around(entry.steps, index), only, outcome)
        if text and (step.is_event or step.note):
            yield Fact(step.span, text)
    for variant in entry.variants:
        when = " and ".join(f"`{condition}`" for condition in variant.conditions)
        for step in variant.added:
            if step.is_event:
                also = f"\n- When {when}" if when else ""
                yield Fact(step.span, _step(step, [], only, outcome) + also)


def around(steps: Sequence[Step], index: int) -> list[Step]:
    """Return the calls, loops and branches that the step at ``index`` is in, outermost first."""
    found: list[Step] = []
    depth = steps[index].depth
    for step in reversed(steps[:index]):
        if step.depth < depth:
            found.append(step)
            depth = step.depth
    return found[::-1]


def _model(model: Model, outcome: Outcome) -> str:
    lines = [f"**Model** `{model.name}`" + ("" if model.shardings else ", not sharded")]
    for each in model.shardings:
        given = f": `{', '.join(each.arguments)}`" if each.arguments else ""
        place = _place(outcome, each.span)
        lines.append(f"- {_targets(each)}: {each.generation}, {place}{given}")
    lines += [f"- `{path}`: repeated blocks, not sharded" for path in model.unsharded]
    return "\n".join(lines)


def _targets(sharding: Sharding) -> str:
    return ", ".join(f"`{target}`" if target else "the model itself" for target in sharding.targets)


def _sharding(model: Model, sharding: Sharding) -> str:
    unit = "unit" if len(sharding.targets) == 1 else "units"
    lines = [f"**{sharding.generation} {unit}** of `{model.name}`: {_targets(sharding)}"]
    lines += [f"- `{argument}`" for argument in sharding.arguments]
    return "\n".join(lines)


def _optimizer(optimizer: Optimizer) -> str:
    lines = [f"**Optimizer** `{optimizer.name}`"]
    for name, when in optimizer.takes:
        how = when if when == "not sharded" else f"taken {when}"
        lines.append(f"- The parameters of `{name}`, {how}")
    return "\n".join(lines)


def _step(step: Step, outer: Sequence[Step], only: Model | None, outcome: Outcome) -> str:
    """Describe a step; for sharding and optimizers, only what other facts leave out.

    Args:
        outer: the steps around it.
        only: the model of the program, if it has no other one.
    """
    note = f": {step.note}" if step.note else ""
    lines = [f"**{_EVENTS.get(step.kind, step.text)}**{note}"]
    if step.kind in ("mesh", "optimizer", "shard") and not note:
        lines = []
    if step.kind in ("forward", "state") and only is not None:
        units = "; ".join(f"{each.generation}: {_targets(each)}" for each in only.shardings)
        lines.append(f"- Of `{only.name}`, {f'sharded by {units}' if units else 'not sharded'}")
    for each in outer:
        if each.note in _GUARDS:
            place = _place(outcome, each.span)
            lines.append(f"- {_GUARDS[each.note]}: `{each.text}`, {place}")
    lines += [f"- In the loop `{each.text}`" for each in outer if each.kind == "loop"]
    return "\n".join(lines)


def _place(outcome: Outcome, span: Span) -> str:
    source = outcome.sources[span.path]
    line, _ = source.position(span.start)
    return f"{source.line_name(line)} of {PurePosixPath(span.path).name}"
