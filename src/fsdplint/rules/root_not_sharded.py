from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.coverage import UnshardedRoot, unsharded_roots
from fsdplint.engine.program import Program
from fsdplint.engine.values import ClassValue, Object, Symbol
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report

_SHOWN = 3


def root_not_sharded(program: Program) -> Iterator[Report]:
    for fact in unsharded_roots(program):
        names = list(dict.fromkeys(filter(None, map(_name, fact.outside))))
        left = ", ".join(f"`{name}`" for name in names[:_SHOWN]) or "the parameters around them"
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield Report(
            program.span(fact.last.site),
            f"parts of `{_class(fact.model)}` are sharded and its root is not: no rank reduces "
            f"the gradients of {left}{more}, so the ranks train different models",
            "nothing shards the model around it",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _name(part: Object) -> str:
    """Where a part is below its model, as far as that has a name."""
    return part.path().partition("[")[0].strip(".")


def _class(model: Object) -> str:
    if isinstance(model.cls, ClassValue):
        return model.cls.node.name
    return model.cls.name.rpartition(".")[2] if isinstance(model.cls, Symbol) else "the model"


def _evidence(program: Program, fact: UnshardedRoot) -> tuple[Evidence, ...]:
    made = [part.site for part in fact.outside[:_SHOWN] if part.site is not None]
    return (
        *(program.evidence(site, "is in no unit") for site in made),
        program.evidence(fact.training, "trains all parameters of the model"),
        *program.conditions(fact.last.site),
    )


def _fix(program: Program, fact: UnshardedRoot) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.last.site.path))
    return fixes.shard_root.shard_root(code, fact.last.call, fact.last.module.path())
