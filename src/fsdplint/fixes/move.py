"""Move a statement, with what depends on it, past others of the same function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Block
from fsdplint.engine.interpreter.events import Sharding
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import (
    LISTING,
    Names,
    clash,
    dotted,
    effects,
    loop_variables,
    names_in,
    related,
)

_BY_HAND = "change the order by hand"


@builder
def move_below(
    code: Code,
    first: ir.Node,
    last: ir.Node,
    title: str,
    safety: Safety,
    with_: Sequence[ir.Node] = (),
) -> Fix:
    """Move the statement of ``first``, and those of ``with_``, below the statement of ``last``.

    Statements between the two that use what is moved move along, in their order. ``with_`` are
    nodes that must come after ``last`` too, such as the expressions that captured parameters.
    """
    plan = _plan(code, first, last, with_)
    extents = [code.extent(statement) for statement in plan.moved]
    if not code.ends_line(plan.last):
        raise NoFixError(
            f"`{code.short(plan.last)}` shares its line with other code; put it on its own line"
        )
    lines = "".join(code.text[start:end] for start, end in extents)
    at = code.after(plan.last)
    deletions = [code.delete_lines(start, end) for start, end in _merged(extents)]
    return Fix(title, safety, (*deletions, code.insert_lines(at, lines)))


def _merged(extents: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in extents:
        if merged and merged[-1][1] == start:
            start = merged.pop()[0]
        merged.append((start, end))
    return merged


@dataclass(frozen=True, slots=True)
class _Plan:
    moved: tuple[ir.Stmt, ...]
    last: ir.Stmt


def _plan(code: Code, first: ir.Node, last: ir.Node, with_: Sequence[ir.Node]) -> _Plan:
    block, lifted = common_block(code, first, last)
    chosen = {_in_block(code, node, block) for node in (first, *with_)}
    order = block.statements
    end = order.index(lifted)
    begin = min(order.index(statement) for statement in chosen)
    if max(order.index(statement) for statement in chosen) >= end:
        raise NoFixError(f"`{code.short(last)}` does not come after the code to move; {_BY_HAND}")
    moved, names = _dependants(code, order[begin:end], chosen)
    staying = [s for s in order[begin : end + 1] if s not in moved]
    models = {path for node in (first, *with_) for path in _models(node)}
    for statement in staying:
        _check_staying(code, statement, names, models, last)
    for statement in moved:
        _check_moving(code, statement, last)
    return _Plan(tuple(s for s in order if s in moved), lifted)


def common_block(code: Code, first: ir.Node, last: ir.Node) -> tuple[Block, ir.Stmt]:
    """Return the innermost block around both nodes, and its statement that holds ``last``.

    Raises:
        NoFixError: there is none, or the block may not reach ``last``.
    """
    if code.in_lambda(first):
        raise NoFixError(f"`{code.short(first)}` is in a lambda; {_BY_HAND}")
    if code.scope(first) is not code.scope(last):
        raise NoFixError(f"`{code.short(last)}` is in another function; {_BY_HAND}")
    below = {code.block(s): s for s in _statements_around(code, last)}
    for statement in _statements_around(code, first):
        lifted = below.get(code.block(statement))
        if lifted is statement:
            raise NoFixError(
                f"`{code.short(first)}` and `{code.short(last)}` are parts of the same statement; "
                f"{_BY_HAND}"
            )
        if lifted is not None:
            _check_lift(code, last, lifted)
            return code.block(statement), lifted
    raise NoFixError(
        f"`{code.short(first)}` cannot move to the block of `{code.short(last)}`; {_BY_HAND}"
    )


def _statements_around(code: Code, node: ir.Node) -> Iterator[ir.Stmt]:
    """Yield the statement of ``node`` and those around it, up to its function."""
    scope = code.scope(node)
    statement = code.statement(node)
    yield statement
    while code.parent(statement) is not scope:
        statement = code.statement(code.parent(statement))
        yield statement


def _check_lift(code: Code, last: ir.Node, lifted: ir.Stmt) -> None:
    around = [s for s in _statements_around(code, last) if s.start >= lifted.start]
    if any(isinstance(s, ir.Try) for s in around):
        raise NoFixError(f"`{code.short(last)}` is in a `try` that may skip it; {_BY_HAND}")


def _in_block(code: Code, node: ir.Node, block: Block) -> ir.Stmt:
    """Return the statement of ``block`` that holds ``node``, directly or in if statements."""
    for statement in _statements_around(code, node):
        if statement in block.statements:
            return statement
        owner = code.parent(statement)
        if not isinstance(owner, ir.If):
            break
    raise NoFixError(f"`{code.short(node)}` is in a block that cannot move as a whole; {_BY_HAND}")


def _dependants(
    code: Code, between: Sequence[ir.Stmt], chosen: set[ir.Stmt]
) -> tuple[set[ir.Stmt], Names]:
    """Return ``chosen`` with the statements that use what it defines, and all their names."""
    moved: set[ir.Stmt] = set()
    names = Names()
    for statement in between:
        own = effects(code, statement)
        if statement in chosen or clash(names_in(statement).reads, names.writes):
            moved.add(statement)
            names.add(own)
    return moved, names


def _models(node: ir.Node) -> Iterator[str]:
    """Yield the names of the modules whose parameters a capture takes; sharding may rebind them."""
    path = dotted(node)
    if path is not None:
        yield path
    for inner in ir.walk(node):
        if isinstance(inner, ir.Attribute) and inner.attr in LISTING:
            receiver = dotted(inner.value)
            if receiver is not None:
                yield receiver


def _check_staying(
    code: Code, statement: ir.Stmt, moved: Names, models: set[str], last: ir.Node
) -> None:
    own = effects(code, statement)
    # Two loops may bind the same variable in turn, as long as neither reads the other's value.
    used = clash(moved.writes, own.reads | (own.writes - loop_variables(statement)))
    if used is not None:
        raise NoFixError(
            f"`{code.short(statement)}` may use `{used}` before the new place; {_BY_HAND}"
        )
    if isinstance(statement, (ir.Import, ir.ImportFrom)):
        return
    rewrapped = _rewrapped(code, statement, models, last)
    rebound = clash(own.writes - rewrapped, moved.reads)
    if rebound is not None:
        raise NoFixError(f"`{code.short(statement)}` changes `{rebound}` in between; {_BY_HAND}")
    if _leaves(statement):
        raise NoFixError(f"`{code.short(statement)}` may skip the new place; {_BY_HAND}")


def _rewrapped(code: Code, statement: ir.Stmt, models: set[str], last: ir.Node) -> set[str]:
    """Return the names that ``statement`` binds to the same model again: ``m = wrap(m)``."""
    found: set[str] = set()
    for node in ir.walk(statement):
        if node is last:
            found |= effects(code, last).writes & models
        if not isinstance(node, ir.Assign):
            continue
        read = names_in(node.value).reads
        sharding = any(inner is last for inner in ir.walk(node.value))
        for path in map(dotted, _leaves_of(node.targets)):
            if path is not None and (sharding or path in models) and clash([path], read):
                found.add(path)
    return found


def _leaves_of(targets: Sequence[ir.Expr]) -> Iterator[ir.Expr]:
    for target in targets:
        if isinstance(target, ir.Collection):
            yield from _leaves_of(target.elements)
        else:
            yield target


def _check_moving(code: Code, statement: ir.Stmt, last: ir.Node) -> None:
    if isinstance(statement, (ir.Delete, ir.Scope, ir.Try)):
        raise NoFixError(f"`{code.short(statement)}` cannot safely move, too; {_BY_HAND}")
    if _leaves(statement):
        raise NoFixError(
            f"`{code.short(statement)}` would have to move, too, but contains `return`, `break` or "
            f"`continue`; {_BY_HAND}"
        )
    if any(isinstance(node, ir.Yield) for node in ir.walk(statement)):
        raise NoFixError(
            f"`{code.short(statement)}` would have to move, too, but suspends its function; "
            f"{_BY_HAND}"
        )
    function = code.slice(last.func) if isinstance(last, ir.Call) else None
    calls = (node for node in ir.walk(statement) if isinstance(node, ir.Call))
    if any(code.slice(call.func) == function for call in calls):
        raise NoFixError(
            f"`{code.short(statement)}` would have to move, too, but calls `{function}`; {_BY_HAND}"
        )


def _leaves(node: ir.Node, in_loop: bool = False) -> bool:
    """True if ``node`` may leave its block by return, break or continue."""
    if isinstance(node, ir.Return):
        return True
    if isinstance(node, (ir.Break, ir.Continue)):
        return not in_loop
    if isinstance(node, (ir.Function, ir.ClassDef)):
        return False
    in_loop = in_loop or isinstance(node, (ir.For, ir.While))
    return any(_leaves(child, in_loop) for child in ir.children(node))


# Above the sharding


def before_sharding(program: Program, site: Site, first: Sharding) -> Fix | Declined:
    """Move the statement at ``site`` above the call that leads to ``first``."""
    ours, theirs = site.frames(), first.site.frames()
    apart = len(site.calls)
    if len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined(
            "the model is sharded in another function; move this line before that by hand"
        )
    return add_before(Code.of(program.tree(site.path)), site.node, theirs[apart][1])


@builder
def add_before(code: Code, added: ir.Node, first: ir.Node) -> Fix:
    """Move the statement of ``added`` above that of ``first``, which begins the sharding.

    Both must be in one block. The statements between them may shard, or be unrelated to ``added``.
    """
    statement = code.statement(added)
    if not isinstance(statement, (ir.Assign, ir.Expression)):
        raise NoFixError(
            f"`{code.short(statement)}` cannot move; move `{code.short(added)}` before the "
            "sharding by hand"
        )
    block = code.block(statement)
    around = [each for each in block.statements if each.start <= first.start < each.end]
    if not around or around[0].start >= statement.start:
        raise NoFixError(
            f"`{code.short(statement)}` is in another block than `{code.short(first)}`; move it "
            "before the sharding by hand"
        )
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
            raise NoFixError(
                f"`{code.short(between)}` sets `{used}`; move `{code.short(statement)}` before the "
                "sharding by hand"
            )
    start, end = code.extent(statement)
    at, _ = code.extent(place)
    lines = code.text[start:end]
    if not lines.endswith(("\n", "\r")):
        lines += code.newline
    title = f"move `{code.short(statement)}` before the sharding"
    return Fix(title, Safety.UNSAFE, (code.delete_lines(start, end), code.insert_lines(at, lines)))


def _whole(statement: ir.Assign | ir.Expression) -> str:
    """Return the model or part that the statement changes, or "" if it has no plain name."""
    target: ir.Node = statement.value
    if isinstance(statement, ir.Assign) and isinstance(statement.targets[0], ir.Attribute):
        target = statement.targets[0].value
    elif isinstance(target, ir.Call) and isinstance(target.func, ir.Attribute):
        target = target.func.value
    elif isinstance(target, ir.Call) and target.args:
        target = target.args[0].value
    return dotted(target) or ""


# An optimizer below the sharding


def build_after_sharding(
    code: Code, optimizer: ir.Call, captures: Sequence[ir.Node], last_sharding: ir.Node
) -> Fix | Declined:
    """Move an optimizer's construction, and the ``captures`` of its parameters, below sharding.

    An optimizer that is already built below, from parameters captured above, stays there.

    Args:
        optimizer: the construction, or the call in this function that leads to it.
        captures: the expressions of the same function that took the parameters.
        last_sharding: the last call of the same function that shards the model.
    """
    call = last_sharding.func if isinstance(last_sharding, ir.Call) else last_sharding
    title = f"build the optimizer after the last `{code.short(call)}`"
    early = [node for node in (optimizer, *captures) if node.start < last_sharding.start]
    if not early:
        return Declined(f"`{code.short(optimizer)}` is already below the sharding; {_BY_HAND}")
    return move_below(code, early[0], last_sharding, title, Safety.UNSAFE, early[1:])
