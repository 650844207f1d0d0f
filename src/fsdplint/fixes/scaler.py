"""A gradient scaler made the one that asks all ranks for an overflow."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import renamed
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports, orphans
from fsdplint.knowledge.scaling import SCALERS, SHARDED_SCALER


@builder
def shard_scaler(code: Code, made: ir.Node, name: str) -> Fix:
    """``torch.amp.GradScaler("cuda", 1024.0)`` to ``ShardedGradScaler("cuda", init_scale=1024.0)``.

    Args:
        made: the construction.
        name: the canonical name of its class.
    """
    require_exact(code)
    if not isinstance(made, ir.Call) or any(argument.star for argument in made.args):
        raise NoFixError("the arguments of the scaler are not all written out")
    imports = Imports(code, made)
    module, _, sharded = SHARDED_SCALER.rpartition(".")
    edits = [code.edit(made.func.start, made.func.end, imports.name(module, sharded))]
    for parameter, argument in zip(SCALERS[name], made.args, strict=False):
        if argument.keyword is None and parameter != "device":
            edits.append(renamed(code, argument, parameter))
    edits += imports.edits()
    if isinstance(made.func, ir.Name):
        edits += orphans(code, made.func.id, edits)
    return Fix("have the scaler ask all ranks for an overflow", Safety.SAFE, tuple(edits))
