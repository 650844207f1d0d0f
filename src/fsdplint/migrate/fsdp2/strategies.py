"""The sharding strategies that a program may select when it runs."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES
from fsdplint.migrate.step import Context

_ENUM = SHARDING_STRATEGIES.rstrip(".")
HYBRID = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
# Those that keep parameters gathered after the forward pass, and those that need a 2-D mesh.
KEEPING = frozenset({"SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"})
TWO_DIMENSIONAL = HYBRID | {"NO_SHARD"}


def mentioned(context: Context) -> frozenset[str] | None:
    """Return the strategies that the program names, None if it may select others, too."""
    found = set()
    for code in context.codes("ShardingStrategy"):
        for node in ir.walk(code.module):
            if not isinstance(node, (ir.Name, ir.Attribute)):
                continue
            name = context.name(code, node)
            if name.startswith(SHARDING_STRATEGIES):
                found.add(name.removeprefix(SHARDING_STRATEGIES))
            elif name == _ENUM and isinstance(code.parent(node), (ir.Argument, ir.Call)):
                return None  # `getattr(ShardingStrategy, name)`, `ShardingStrategy(number)`
            elif name == _ENUM and isinstance(code.parent(node), ir.Subscript):
                return None
    return frozenset(found) or None


def enumeration(imports: Imports) -> str:
    """Return the name of the enumeration where `imports` are used."""
    return imports.name(*_ENUM.rsplit(".", 1))


def is_one_of(value: str, enum: str, kinds: Sequence[str], *, negated: bool = False) -> str:
    """Return the condition that a strategy is one of ``kinds``."""
    members = [f"{enum}.{kind}" for kind in kinds]
    if len(members) == 1:
        return f"{value} is {'not ' * negated}{members[0]}"
    return f"{value} {'not ' * negated}in ({', '.join(members)})"
