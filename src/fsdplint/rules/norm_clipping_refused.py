"""Trainers of Lightning that are to clip the norm of FSDP's gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.configs.lightning import Arguments, StrategySettings
from fsdplint.engine.facts.strategies import trainer_calls
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.lightning_settings import (
    BY_NORM,
    CLIP,
    CLIP_ALGORITHM,
    CLIP_VALUE,
    CLIPS,
    MODULE,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD933",
    summary="a trainer of Lightning clips by norm, which its strategy for FSDP refuses",
    severity=Severity.ERROR,
    fix=None,
    since="0.1.0",
    preview="Few public strategies for FSDP were found, and hardly a finding in them.",
)

_PLUGINS = "plugins"
_HAS_MODULE = re.compile(rf"\b{MODULE}\b")
_CLIPS = re.compile(rf"\b{CLIPS}\b")


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in trainer_calls(program):
        yield from strategy_reports(settings)


def strategy_reports(settings: StrategySettings) -> Iterator[Report]:
    """Yield a report if the first step of the optimizer fails in every release."""
    owner = settings.owner
    if owner is None or not _clips_by_norm(settings, owner):
        return
    if settings.project_has(_CLIPS) or not settings.project_has(_HAS_MODULE):
        return
    value = owner.given[CLIP_VALUE]
    yield Report(
        value.span,
        f"`{value.shown}` fails in the first step: {settings.lightning} cannot clip the norm of "
        "gradients that FSDP shards",
        "clips by norm",
        (Evidence(settings.place, "this strategy shards with FSDP"),),
        lambda: Declined(
            f"clip by hand: call `self.trainer.model.clip_grad_norm_` in `{CLIPS}` of the module"
        ),
    )


def _clips_by_norm(settings: StrategySettings, owner: Arguments) -> bool:
    clip, by = owner.get(CLIP_VALUE), owner.get(CLIP_ALGORITHM)
    if clip is None or not clip.number or clip.number < 0 or not owner.surely_lacks(_PLUGINS):
        return False
    algorithm = by.value if by else BY_NORM
    if algorithm is None:
        algorithm = BY_NORM
    refused = any(release.takes(CLIP, settings.kind) for release in settings.releases)
    return refused and algorithm == BY_NORM and not settings.takes(CLIP, BY_NORM)
