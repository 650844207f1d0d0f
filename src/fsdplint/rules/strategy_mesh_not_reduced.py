"""Strategies of Lightning with a mesh of two dimensions that FSDP uses one of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.edits import insertion, new_value
from fsdplint.configs.lightning import StrategySettings
from fsdplint.configs.nodes import Scalar
from fsdplint.engine import ir
from fsdplint.engine.facts.strategies import strategy_calls
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.fsdp import HYBRID_OF, HYBRID_STRATEGIES
from fsdplint.knowledge.lightning_settings import MESH, SHARDING, is_fsdp
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD934",
    summary="a strategy of Lightning averages no gradients over one dimension of its mesh",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Too few public projects give a mesh to judge it by.",
)

_DEFAULT = "FULL_SHARD"


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for made in strategy_calls(program):
        yield from _reports(made.settings, partial(_in_call, Code.of(made.tree), made.call))


def strategy_reports(settings: StrategySettings) -> Iterator[Report]:
    """Yield the report on a file."""
    yield from _reports(settings, partial(_in_file, settings))


def _reports(settings: StrategySettings, fix: partial[Fix | Declined]) -> Iterator[Report]:
    mesh, given = settings.strategy.get(MESH), settings.strategy.get(SHARDING)
    strategy = given.value if given else _DEFAULT
    if mesh is None or not is_fsdp(settings.kind) or not isinstance(strategy, str):
        return
    if given is None and not settings.strategy.is_whole:
        return
    sizes, strategy = mesh.value, strategy.upper()
    if not isinstance(sizes, list) or len(sizes) != 2 or strategy in HYBRID_STRATEGIES:
        return
    if not isinstance(sizes[1], int) or sizes[1] < 2:
        return
    yield Report(
        mesh.span,
        f"`{strategy}` uses only the first dimension of `{mesh.shown}`: gradients are not "
        f"averaged over the second one, so its {sizes[1]} replicas drift apart without a message",
        "has a dimension that is not used",
        (Evidence(given.span, "this shards over one dimension"),) if given else (),
        partial(fix, HYBRID_OF.get(strategy, "")),
    )


@builder
def _in_call(code: Code, call: ir.Call, hybrid: str) -> Fix:
    edit = put_argument(code, call, SHARDING, f'"{_known(hybrid)}"')
    return Fix(f"set `{SHARDING}` to `{hybrid}`", Safety.UNSAFE, (edit,))


@builder
def _in_file(settings: StrategySettings, hybrid: str) -> Fix:
    assert settings.mapping is not None  # the mesh is in it
    path, given = settings.place.path, settings.mapping.get(SHARDING)
    if given is not None and isinstance(given.value, Scalar):
        edit = new_value(path, given.value, _known(hybrid))
    else:
        edit = insertion(path, settings.text, settings.mapping, SHARDING, _known(hybrid))
    return Fix(f"set `{SHARDING}` to `{hybrid}`", Safety.UNSAFE, (edit,))


def _known(hybrid: str) -> str:
    if not hybrid:
        raise NoFixError("no hybrid strategy does the same; choose one by hand")
    return hybrid
