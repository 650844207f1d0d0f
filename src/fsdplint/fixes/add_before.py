"""A model changed before it is sharded, so that its units know what they hold."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import clash, dotted, names_in, related


def before_sharding(program: Program, site: Site, first: Shard) -> Fix | Declined:
    """Moves the statement at ``site`` above the call that leads to ``first``."""
    ours, theirs = site.frames(), first.site.frames()
    apart = len(site.calls)
    if len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined("the model is sharded in another function")
    return add_before(Code.of(program.tree(site.path)), site.node, theirs[apart][1])


@builder
def add_before(code: Code, added: ir.Node, first: ir.Node) -> Fix:
    """Moves the statement of ``added`` above that of ``first``, which begins the sharding.

    Both must stand in one block, in which only sharding comes between them, or what has nothing
    to do with the addition.
    """
    statement = code.statement(added)
    if not isinstance(statement, (ir.Assign, ir.Expression)):
        raise NoFixError(f"`{code.short(statement)}` cannot move")
    block = code.block(statement)
    around = [each for each in block.statements if each.start <= first.start < each.end]
    if not around or around[0].start >= statement.start:
        raise NoFixError(f"`{code.short(first)}` is not in the block of `{code.short(statement)}`")
    place = around[0]
    order = block.statements
    own = names_in(statement)
    model = _whole(statement)
    for between in order[order.index(place) : order.index(statement)]:
        names = names_in(between)
        rebound = {
            path
            for path in names.writes
            if not (clash([path], names.reads) and related(path, model))
        }
        used = clash(rebound, own.all)
        if used is not None:
            raise NoFixError(f"`{code.short(between)}` makes `{used}`")
    start, end = code.extent(statement)
    at, _ = code.extent(place)
    lines = code.text[start:end]
    if not lines.endswith(("\n", "\r")):
        lines += code.newline
    title = f"put `{code.short(statement)}` before the sharding"
    return Fix(title, Safety.UNSAFE, (code.delete_lines(start, end), code.insert_lines(at, lines)))


def _whole(statement: ir.Assign | ir.Expression) -> str:
    """What the statement adds to: the model or a part of it, which sharding changes on its way."""
    target: ir.Node = statement.value
    if isinstance(statement, ir.Assign) and isinstance(statement.targets[0], ir.Attribute):
        target = statement.targets[0].value
    elif isinstance(target, ir.Call) and isinstance(target.func, ir.Attribute):
        target = target.func.value
    elif isinstance(target, ir.Call) and target.args:
        target = target.args[0].value
    return dotted(target) or ""
