"""A method registered to run with the forward hooks, where its module is sharded."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.tree import COMPOUND
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports, qualified
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.names import FULLY_SHARD, REGISTER_FORWARD, canonical

_SOMETIMES = (ir.Lambda, ir.Comprehension, ir.Conditional, ir.BoolOp)


@builder
def register_method(code: Code, shard: ir.Call, method: str, safety: Safety) -> Fix:
    """Registers ``method`` below the call ``fully_shard(model, …)`` that makes a unit of it."""
    require_exact(code)
    statement = code.statement(shard)
    if isinstance(statement, COMPOUND) or any(
        isinstance(around, _SOMETIMES) and around.start >= statement.start
        for around in code.ancestors(shard)
    ):
        raise NoFixError(f"`{code.short(shard)}` is part of a larger expression")
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
    model = _model(code, statement, shard)
    imports = Imports(code, shard)
    register = imports.name(_package(code, shard), REGISTER_FORWARD.rpartition(".")[2])
    lines = [f'{register}({model}, "{method}")']
    edits: list[Edit] = imports.edits()
    if isinstance(statement, ir.Return):
        edits.append(code.edit(statement.start, shard.start, ""))
        lines.append(f"return {model}")
    indent = code.indentation(statement)
    text = "".join(f"{indent}{line}{code.newline}" for line in lines)
    edits.append(code.insert_lines(code.after(statement), text))
    return Fix(f"register `{method}` with the hooks of `{model}`", safety, tuple(edits))


def _package(code: Code, shard: ir.Call) -> str:
    """Where the program has FSDP2 from, which up to torch 2.5 is a private package."""
    name = qualified(code, shard.func) or ""
    known = canonical(name) == FULLY_SHARD and "._composable.fsdp." in name
    package = "torch.distributed._composable.fsdp" if known else ""
    return package or REGISTER_FORWARD.rpartition(".")[0]


def _model(code: Code, statement: ir.Stmt, shard: ir.Call) -> str:
    """What the unit is called below the statement that makes it."""
    argument = module_argument(shard)
    if isinstance(statement, ir.Return) and statement.value is not shard:
        raise NoFixError(f"`{code.short(shard)}` is part of a larger expression")
    if isinstance(statement, ir.Assign) and statement.value is shard:
        named = [path for path in map(dotted, statement.targets) if path is not None]
        if named:
            return named[0]
    path = None if argument is None else dotted(argument.value)
    if path is None:
        raise NoFixError(f"the module has no name below `{code.short(shard)}`")
    return path
