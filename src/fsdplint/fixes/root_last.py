"""A module sharded after its parts: its call moves below theirs, or a loop is turned round."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.move import common_block
from fsdplint.fixes.names import clash, dotted, names_in
from fsdplint.fixes.shard_blocks import module_argument


@builder
def backwards(code: Code, call: ir.Call, loop: ir.For | ir.Clause) -> Fix:
    """Has the loop around ``call`` run through ``model.modules()`` from its innermost modules."""
    require_exact(code)
    if not any(loop is node or loop in _clauses(node) for node in code.ancestors(call)):
        raise NoFixError("the loop over the modules is in another function")
    plain = iterable = loop.iterable
    if isinstance(plain, ir.Call) and code.slice(plain.func) == "list" and len(plain.args) == 1:
        plain = plain.args[0].value
    if not (isinstance(plain, ir.Call) and isinstance(plain.func, ir.Attribute)):
        raise NoFixError(f"`{code.short(iterable)}` is not a plain list of modules")
    text = code.slice(plain)
    edit = code.edit(iterable.start, iterable.end, f"reversed(list({text}))")
    return Fix(f"run through `{text}` from its end", Safety.UNSAFE, (edit,))


def _clauses(node: ir.Node) -> tuple[ir.Clause, ...]:
    return node.clauses if isinstance(node, ir.Comprehension) else ()


@builder
def root_last(code: Code, root: ir.Call, last: ir.Node) -> Fix:
    """Moves the statement of ``root`` below that of ``last``, which shards its last part."""
    require_exact(code)
    statement = code.statement(root)
    _check_sharding(code, statement, root)
    block, lifted = common_block(code, root, last)
    if statement not in block.statements or not code.ends_line(lifted):
        raise NoFixError(f"`{code.short(statement)}` cannot move below `{code.short(last)}`")
    order = block.statements
    reads = names_in(root).reads
    for between in order[order.index(statement) + 1 : order.index(lifted) + 1]:
        rebound = clash(names_in(between).writes, reads)
        if rebound is not None:
            raise NoFixError(f"`{code.short(between)}` changes `{rebound}` in between")
    start, end = code.extent(statement)
    edits = (
        code.delete_lines(start, end),
        code.insert_lines(code.after(lifted), code.text[start:end]),
    )
    return Fix(f"put `{code.short(statement)}` after its parts", Safety.UNSAFE, edits)


def _check_sharding(code: Code, statement: ir.Stmt, root: ir.Call) -> None:
    """Raises unless ``statement`` is ``fully_shard(model)`` or ``model = fully_shard(model)``."""
    module = module_argument(root)
    alone = isinstance(statement, ir.Expression) and statement.value is root
    if isinstance(statement, ir.Assign) and statement.value is root and module is not None:
        alone = [dotted(target) for target in statement.targets] == [dotted(module.value)]
    if not alone:
        raise NoFixError(f"`{code.short(statement)}` does more than to shard the model")
