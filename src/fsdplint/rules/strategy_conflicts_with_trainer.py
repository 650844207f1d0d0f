"""Trainers of Lightning whose other arguments contradict their strategy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.configs.lightning import Arguments, Given, StrategySettings
from fsdplint.engine.facts.strategies import trainer_calls
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.lightning_settings import DATA_SIZE, PRECISIONS, TENSOR_SIZE, is_fsdp
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD935",
    summary="a trainer of Lightning contradicts its strategy for FSDP",
    severity=Severity.ERROR,
    fix=None,
    since="0.1.0",
    preview="Few public strategies for FSDP were found, and hardly a finding in them.",
)

_DEVICES, _NODES, _PRECISION, _PLUGINS = "devices", "num_nodes", "precision", "plugins"
_AUTO = "auto"


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in trainer_calls(program):
        yield from strategy_reports(settings)


def strategy_reports(settings: StrategySettings) -> Iterator[Report]:
    """Yield a report for each argument that every release refuses."""
    if settings.owner is not None:
        yield from _precision(settings, settings.owner)
        if not is_fsdp(settings.kind):
            yield from _sizes(settings, settings.owner)


def _precision(settings: StrategySettings, owner: Arguments) -> Iterator[Report]:
    given = owner.get(_PRECISION)
    value = given.value if given else None
    if given is None or isinstance(value, bool) or not isinstance(value, (str, int)):
        return
    words = settings.releases[-1].takes(PRECISIONS, settings.kind)
    # Other words no strategy takes.
    if words and not settings.takes(PRECISIONS, str(value)) and owner.surely_lacks(_PLUGINS):
        listed = ", ".join(sorted(word for word in words if "-" in word))
        name = settings.name.rpartition(".")[2]
        yield _report(
            settings,
            given,
            f"`{given.shown}` is refused with `{name}`: {settings.lightning} takes {listed}",
        )


def _sizes(settings: StrategySettings, owner: Arguments) -> Iterator[Report]:
    """Yield a report if the sizes of the mesh are not those of the job."""
    nodes, strategy = _size(owner, _NODES, 1), settings.strategy
    data, tensor = (_size(strategy, name, _AUTO) for name in (DATA_SIZE, TENSOR_SIZE))
    devices = _size(owner, _DEVICES, None)
    place = strategy.get(DATA_SIZE) or strategy.get(TENSOR_SIZE)
    if place is None or not isinstance(nodes, int):
        return
    if isinstance(data, int) and tensor == _AUTO and data != nodes:
        text = (
            f"`{TENSOR_SIZE}` is the number of devices of a node if it is not given, so "
            f"`{place.shown}` has to be the number of nodes, {nodes}: it fails when processes meet"
        )
        yield _report(settings, place, text)
        return
    if not (isinstance(data, int) and isinstance(tensor, int) and isinstance(devices, int)):
        return
    if data * tensor != devices * nodes:
        text = (
            f"`{DATA_SIZE}={data}` times `{TENSOR_SIZE}={tensor}` is not the number of "
            f"processes, {devices * nodes}: it fails when processes meet"
        )
        yield _report(settings, place, text)


def _size(arguments: Arguments, name: str, default: object) -> object:
    """Return a size, the default if it is not given, None if it is unknown."""
    given = arguments.get(name)
    if given is None:
        return default if arguments.is_whole else None
    value = given.value
    if isinstance(value, list):
        return len(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value):
        return int(value)
    known = value == _AUTO or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
    return value if known else None


def _report(settings: StrategySettings, given: Given, text: str) -> Report:
    note = Evidence(settings.place, "with this strategy")
    return Report(given.span, text, "is refused", (note,), _unclear)


def _unclear() -> Declined:
    return Declined("which of both is meant is unclear; change one by hand")
