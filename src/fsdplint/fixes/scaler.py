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
def shard_scaler(code: Code, made: ir.Node, name: str, certain: bool) -> Fix:
    """``torch.amp.GradScaler("cuda", 1024.0)`` to ``ShardedGradScaler("cuda", init_scale=1024.0)``.

    Args:
        made: the construction.
        name: the canonical name of its class.
        certain: no code depends on the class, and all ranks step together.
    """
    require_exact(code)
    if not isinstance(made, ir.Call) or any(argument.star for argument in made.args):
        raise NoFixError("the arguments of the scaler are not all written out")
    imports = Imports(code, made)
    module, _, sharded = SHARDED_SCALER.rpartition(".")
    edits = [code.edit(made.func.start, made.func.end, imports.name(module, sharded))]
    if any(each.keyword not in (None, *SCALERS[name]) for each in made.args):
        raise NoFixError(f"`{code.short(made)}` is not called as torch defines it")
    for parameter, argument in zip(SCALERS[name], made.args, strict=False):
        if argument.keyword is None and parameter != "device":
            edits.append(renamed(code, argument, parameter))
    edits += imports.edits()
    if isinstance(made.func, ir.Name):
        edits += orphans(code, made.func.id, edits)
    safety = Safety.SAFE if certain else Safety.UNSAFE
    return Fix("have the scaler ask all ranks for an overflow", safety, tuple(edits))
