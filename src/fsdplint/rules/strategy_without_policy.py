"""Strategies of Lightning that make one unit of the whole model."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.configs.lightning import StrategySettings
from fsdplint.engine.facts.strategies import trainer_calls
from fsdplint.engine.program import Program
from fsdplint.finding import Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.fsdp import HYBRID_STRATEGIES
from fsdplint.knowledge.lightning_settings import POLICY, SHARDING, WRAPS, is_fsdp
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD936",
    summary="a strategy of Lightning has no wrap policy, so the model is one unit",
    severity=Severity.WARNING,
    fix=None,
    since="0.1.0",
    preview="A model that is small as a whole loses little by it.",
)

_NOT_SHARDED = "NO_SHARD"


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in trainer_calls(program):
        yield from strategy_reports(settings)


def strategy_reports(settings: StrategySettings) -> Iterator[Report]:
    """Yield a report if neither the strategy nor code of the project says what the units are."""
    policy, sharding = settings.strategy.get(POLICY), settings.strategy.get(SHARDING)
    lacks = settings.strategy.surely_lacks(POLICY) or (policy is not None and policy.value is None)
    if not is_fsdp(settings.kind) or not lacks:
        return
    # Without a policy, a hybrid strategy needs another argument, which shows other plans.
    shards = sharding.value if sharding else ""
    if not isinstance(shards, str) or shards.upper() in (_NOT_SHARDED, *HYBRID_STRATEGIES):
        return
    if settings.project_has(WRAPS):
        return
    name = settings.name.rpartition(".")[2]
    yield Report(
        settings.place,
        f"`{name}` without `{POLICY}` makes the whole model one unit, which is gathered at once",
        "wraps no module",
        (),
        lambda: Declined(
            f"pass the classes of the model's blocks by hand: `FSDPStrategy({POLICY}={{…}})`"
        ),
    )
