"""FSDP1 models whose gradients are not averaged over one dimension of their mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.coverage import is_replicated, is_synchronized
from fsdplint.engine.facts.meshes import is_of_model, made_by, names_of, sizes_of
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.values import Symbol
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import add_argument, argument_of
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.mesh import swap_sizes
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import (
    HYBRID_OF,
    HYBRID_STRATEGIES,
    SHARDING_STRATEGIES,
    SHARDING_STRATEGY,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD112",
    summary="FSDP1 averages no gradients over one dimension of its mesh",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="no public code examined so far makes this mistake.",
)

_STRATEGY = "sharding_strategy"
_POSITION = 2


@dataclass(frozen=True, slots=True)
class NotReduced:
    """A mesh of two dimensions, of which FSDP1 uses one.

    Attributes:
        strategy: the name of the strategy, without its class.
        dimension: the number of the dimension whose ranks drift apart.
        name: its name, "" if it has none or it is not known.
    """

    shard: Shard
    made: Call
    strategy: str
    dimension: int
    name: str

    @property
    def hybrid(self) -> bool:
        return self.strategy in HYBRID_STRATEGIES


def not_reduced(program: Program) -> Iterator[NotReduced]:
    """Yield wrappers with a mesh of two dimensions whose strategy does not use one of them."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            made = made_by(trace, shard) if shard.generation is Generation.FSDP1 else None
            strategy = _strategy(shard)
            if made is None or strategy is None or made.arguments.open:
                continue
            dimension = _left_alone(made, strategy)
            if dimension is not None and not _reduced_otherwise(program, trace, shard):
                names = names_of(made) or ("", "")
                yield NotReduced(shard, made, strategy, dimension, names[dimension])


def _strategy(shard: Shard) -> str | None:
    """Return the strategy if it is certain, including the default."""
    given = shard.strategy
    if given is None:
        return None if shard.open else "FULL_SHARD"
    known = isinstance(given, Symbol) and given.name.startswith(SHARDING_STRATEGIES)
    return given.name.removeprefix(SHARDING_STRATEGIES) if known else None  # type: ignore[union-attr]  # a Symbol


def _left_alone(made: Call, strategy: str) -> int | None:
    """Return the dimension over which nothing is averaged.

    Without a hybrid strategy it is the second, which is right for tensor parallelism alone. With
    one it is the first where the second has one rank: FSDP1 then falls back to `NO_SHARD`, which
    averages over the second only.
    """
    sizes = sizes_of(made)
    if len(sizes) != 2:
        return None
    if strategy in HYBRID_STRATEGIES:
        return 0 if sizes[1] == 1 and sizes[0] != 1 else None
    return None if sizes[1] == 1 or any(map(is_of_model, names_of(made) or ())) else 1


def _reduced_otherwise(program: Program, trace: Trace, shard: Shard) -> bool:
    """True if something else may average the gradients, or divides the parameters."""
    return is_replicated(trace, shard.module) or is_synchronized(program, trace)


def reports(program: Program) -> Iterator[Report]:
    for fact in not_reduced(program):
        yield Report(
            program.span(fact.shard.site),
            _message(fact),
            "gradients not averaged over one dimension",
            (
                program.evidence(fact.made.site, "mesh is created here"),
                *program.conditions(fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _message(fact: NotReduced) -> str:
    name = f" (`{fact.name}`)" if fact.name else ""
    if fact.hybrid:
        return (
            f"`{fact.strategy}` shards over the second mesh dimension, which has one rank, and "
            f"averages no gradients over the first{name}: every rank trains a different model"
        )
    return (
        f"`{fact.strategy}` uses only the first mesh dimension and averages no gradients over the "
        f"second{name}: the ranks along it train different models"
    )


def _fix(program: Program, fact: NotReduced) -> Fix | Declined:
    if fact.hybrid:
        made = fact.made.site.node
        assert isinstance(made, ir.Call)
        return swap_sizes(Code.of(program.tree(fact.made.site.path)), made)
    if fact.strategy not in HYBRID_OF:
        return Declined(
            f"`{fact.strategy}` may be intended; use a hybrid strategy or a mesh of one dimension "
            "by hand"
        )
    return make_hybrid(Code.of(program.tree(fact.shard.site.path)), fact.shard.call, fact.strategy)


@builder
def make_hybrid(code: Code, call: ir.Call, strategy: str) -> Fix:
    """Make a wrapper shard over the second dimension and replicate over the first."""
    imports = Imports(code, call)
    text = f"{imports.name(*SHARDING_STRATEGY)}.{HYBRID_OF[strategy]}"
    given = argument_of(call, _POSITION, _STRATEGY)
    if given is None and not any(each.star for each in call.args):
        edit = add_argument(code, call, f"{_STRATEGY}={text}")
    elif given is not None and isinstance(given.value, ir.Attribute):
        edit = code.edit(given.value.start, given.value.end, text)
    else:
        raise NoFixError(
            f"`{code.short(call)}` sets its `{_STRATEGY}` elsewhere; use `{HYBRID_OF[strategy]}` "
            "there by hand"
        )
    return Fix(f"use `{HYBRID_OF[strategy]}`", Safety.UNSAFE, (*imports.edits(), edit))
