"""Training arguments that a `Trainer` refuses beside others, once the model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.edits import new_value
from fsdplint.configs.nodes import Entry, Scalar
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.frameworks import SHARDED_STATE, STATE_TYPE, WHOLE_STATE
from fsdplint.knowledge.transformers_settings import (
    CHECKPOINTING,
    CHECKPOINTS,
    LOADS_BEST,
    ONLY_MODEL,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD928",
    summary="two training arguments exclude each other under FSDP",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Few findings in public code were read.",
)


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in training_arguments(program):
        yield from trainer_reports(settings)


def trainer_reports(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report for each pair that every release of the project refuses."""
    if not settings.shards or settings.is_for_xla:
        return
    inner, states = settings.get(CHECKPOINTING), settings.get(STATE_TYPE)
    outer = next((entry for name in CHECKPOINTS if (entry := settings.turns_on(name))), None)
    if outer and inner and inner.word == "TRUE" and _has_effect(settings, CHECKPOINTING):
        yield _report(settings, outer, inner.entry, partial(_turn_off, settings, outer))
    only, best = settings.turns_on(ONLY_MODEL), settings.turns_on(LOADS_BEST)
    if only and best:
        yield _report(settings, only, best, partial(_turn_off, settings, only))
    elif only and states and states.word == SHARDED_STATE and _has_effect(settings, STATE_TYPE):
        yield _report(settings, only, states.entry, partial(_gather, settings, states))


def _has_effect(settings: TrainerSettings, name: str) -> bool:
    return settings.all(lambda release, version: release.has_effect(name, version))


def _report(
    settings: TrainerSettings, entry: Entry, other: Entry, fix: Callable[[], Fix | Declined]
) -> Report:
    return Report(
        settings.span(entry),
        f"`Trainer` refuses `{settings.shown(entry)}` with `{settings.shown(other)}` under FSDP: "
        "training stops after the model is loaded",
        "is refused",
        (Evidence(settings.span(other), "beside this"),),
        fix,
    )


def _turn_off(settings: TrainerSettings, entry: Entry) -> Fix | Declined:
    value = settings.text[entry.value.start : entry.value.end]
    if not isinstance(entry.value, Scalar) or value.lower() != "true":
        return Declined(f"`{entry.name}` is a variable; correct it by hand")
    text = "False" if settings.is_python else "false"
    edit = new_value(settings.path, entry.value, text)
    return Fix(f"turn `{entry.name}` off", Safety.UNSAFE, (edit,))


def _gather(settings: TrainerSettings, states: Setting) -> Fix | Declined:
    value = states.entry.value
    if not isinstance(value, Scalar) or (settings.is_python and not value.quote):
        return Declined(f"`{STATE_TYPE}` is a variable; correct it by hand")
    edit = new_value(settings.path, value, WHOLE_STATE)
    return Fix(f"save with `{WHOLE_STATE}`", Safety.UNSAFE, (edit,))
