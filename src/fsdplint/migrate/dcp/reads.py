"""What a program takes from the files that `torch.load` reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.checkpoints import (
    LOAD,
    SET_MODEL_STATE,
    SET_OPTIMIZER_STATE,
    SET_STATE,
    TORCH_LOAD,
)
from fsdplint.migrate.dcp.guards import is_rank_test
from fsdplint.migrate.dcp.states import latest
from fsdplint.migrate.step import Context


@dataclass(frozen=True, slots=True)
class Taken:
    """A value of a checkpoint where a program uses it.

    Attributes:
        key: "" for the whole file.
        call: what gets it, None for any other use.
        kind: "model" or "optimizer" if ``call`` is a helper that loads this, "object" if it is a
            ``load_state_dict``, else "".
        choice: the conditional expression by which only some ranks take it, None if there is none.
    """

    key: str
    node: ir.Expr
    call: ir.Call | None
    kind: str
    choice: ir.Conditional | None


@dataclass(frozen=True, slots=True)
class Load:
    """A call of `torch.load` and the uses of its result.

    Attributes:
        place: the statement that the loading code replaces, or goes above.
        name: the variable for the result, "" if the call is an argument.
        whole: the result goes elsewhere as a whole.
        done: `dcp.load` is beside it already.
        helped: the ``if`` in which the helpers load what other code distributes by hand otherwise.
    """

    code: Code
    call: ir.Call
    place: ir.Stmt
    name: str
    path: ir.Expr
    taken: tuple[Taken, ...]
    whole: ir.Node | None
    done: bool = False
    helped: ir.If | None = None


def loads(context: Context, known: frozenset[ir.Node]) -> Iterator[Load]:
    """Yield the calls that read a file."""
    for code in context.codes("load"):
        for node in code.walk("load"):
            if not isinstance(node, ir.Call) or context.name(code, node.func) != TORCH_LOAD:
                continue
            path = argument_of(node, 0, "f")
            if path is not None:
                yield _load(context, code, node, path.value, known)


def _is_beside_dcp(context: Context, code: Code, call: ir.Call) -> bool:
    above = code.parent(code.statement(call))
    others = above.orelse if isinstance(above, ir.If) else ()
    calls = (n for each in others for n in ir.walk(each) if isinstance(n, ir.Call))
    return any(context.name(code, each.func) == LOAD for each in calls)


def _load(
    context: Context, code: Code, call: ir.Call, path: ir.Expr, known: frozenset[ir.Node]
) -> Load:
    statement, value = code.statement(call), _value(code, call, known)
    plain = isinstance(statement, ir.Assign) and statement.value is value
    if not plain or not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        taken, whole = _uses(context, code, [value], known)
        return Load(code, call, statement, "", path, tuple(taken), whole)
    name = dotted(statement.targets[0])
    if name is None:
        return Load(code, call, statement, "", path, (), statement)
    done = _is_beside_dcp(context, code, call)
    above = code.parent(statement)
    place = above if done and isinstance(above, ir.If) else _both_arms(code, statement, known)
    scope = code.function(statement) or code.module
    uses = [
        node
        for node in ir.walk(scope)
        if isinstance(node, (ir.Name, ir.Attribute))
        and dotted(node) == name
        and place.end <= node.start
        and not _is_rebound(code, place, node)
    ]
    helped = _helped(context, code, uses)
    if helped is not None:
        uses = [each for each in uses if each.start < helped.body[-1].end]
    taken, whole = _uses(context, code, uses, known)
    return Load(code, call, place, name, path, tuple(taken), whole, done, helped)


def _helped(context: Context, code: Code, uses: Sequence[ir.Expr]) -> ir.If | None:
    """Return the ``if`` in which a helper takes a checkpoint, if other code takes it by hand."""
    for node in uses:
        _, kind = _user(context, code, _part(code, node)[1] or node)
        inside = kind in ("model", "optimizer")
        branch = next((a for a in code.ancestors(node) if isinstance(a, ir.If)), None)
        if not inside or branch is None or not all(each.start > branch.start for each in uses):
            continue
        other = branch.orelse
        if isinstance(branch.body[-1], ir.Return):
            block = code.block(branch).statements
            other += block[block.index(branch) + 1 :]
        calls = (n for each in other for n in ir.walk(each) if isinstance(n, ir.Call))
        if any(ir.last_name(call.func) == "distribute_tensor" for call in calls):
            return branch
    return None


def _is_rebound(code: Code, place: ir.Stmt, use: ir.Expr) -> bool:
    """Return whether code below a statement surely gives its variable another value for a use."""
    last = latest(code, use)
    if last is None or last.start < place.end:
        return False
    return all(dotted(node) != dotted(use) for node in ir.walk(last.value))


def _value(code: Code, call: ir.Call, known: frozenset[ir.Node]) -> ir.Expr:
    """Return a call, or ``call if rank == 0 else …`` around it."""
    above = code.parent(call)
    on_some = isinstance(above, ir.Conditional) and above.body is call
    chosen = on_some and isinstance(above, ir.Conditional) and is_rank_test(code, above.test, known)
    return above if chosen and isinstance(above, ir.Conditional) else call


def _both_arms(code: Code, statement: ir.Assign, known: frozenset[ir.Node]) -> ir.Stmt:
    """Return ``if rank == 0: x = torch.load(…) else: x = …`` around a statement, or itself."""
    above = code.parent(statement)
    if not isinstance(above, ir.If) or not is_rank_test(code, above.test, known):
        return statement
    other = above.orelse[0] if len(above.orelse) == 1 else None
    same = isinstance(other, ir.Assign) and [dotted(t) for t in other.targets] == [
        dotted(t) for t in statement.targets
    ]
    return above if same and above.body == (statement,) and not code.is_elif(above) else statement


def _uses(
    context: Context, code: Code, nodes: Sequence[ir.Expr], known: frozenset[ir.Node]
) -> tuple[list[Taken], ir.Node | None]:
    """Return the values taken from a checkpoint, and a use of all of it that is not understood."""
    taken: list[Taken] = []
    whole: ir.Node | None = None
    for node in nodes:
        above = code.parent(node)
        if isinstance(above, ir.Assign) and node in above.targets:
            continue
        key, part = _part(code, node)
        if part is not None:
            taken += _taken(context, code, key, part, known)
        elif isinstance(above, ir.Argument):
            found = list(_taken(context, code, "", node, known))
            understood = any(each.kind for each in found)
            taken += found if understood else []
            whole = whole if understood else node
        elif not isinstance(above, (ir.Delete, ir.If, ir.Not, ir.Compare, ir.BoolOp)):
            whole = node
    return taken, whole


def _part(code: Code, node: ir.Expr) -> tuple[str, ir.Expr | None]:
    """Return the key and the expression by which a part of a checkpoint is taken."""
    above = code.parent(node)
    if isinstance(above, ir.Subscript) and above.value is node:
        index = above.index
        if isinstance(index, ir.Constant) and isinstance(index.value, str):
            return index.value, above
    if isinstance(above, ir.Attribute) and above.attr in ("get", "pop"):
        call = code.parent(above)
        first = call.args[0].value if isinstance(call, ir.Call) and call.args else None
        if isinstance(first, ir.Constant) and isinstance(call, ir.Call):
            return str(first.value), call
    return "", None


def _taken(
    context: Context, code: Code, key: str, part: ir.Expr, known: frozenset[ir.Node]
) -> Iterator[Taken]:
    """Yield what a part is used for, directly or by a variable that is it alone."""
    above = code.parent(part)
    choice = above if isinstance(above, ir.Conditional) and above.body is part else None
    if choice is not None and not is_rank_test(code, choice.test, known):
        choice = None
    value: ir.Expr = choice or part
    above = code.parent(value)
    if isinstance(above, ir.Assign) and above.value is value and len(above.targets) == 1:
        name = above.targets[0]
        scope = code.function(value) or code.module
        uses = [
            each
            for each in ir.walk(scope)
            if isinstance(each, ir.Name)
            and isinstance(name, ir.Name)
            and each.id == name.id
            and code.meaning(each) is value
        ]
        users = [(each, _user(context, code, each)) for each in uses]
        known_users = [(call, kind) for _, (call, kind) in users if kind]
        for call, kind in known_users:
            yield Taken(key, part, call, kind, choice)
        if known_users:
            return
    call, kind = _user(context, code, value)
    yield Taken(key, part, call, kind, choice)


def _user(context: Context, code: Code, value: ir.Expr) -> tuple[ir.Call | None, str]:
    """Return the call that gets a value, and what it loads."""
    above = code.parent(value)
    call = code.parent(above) if isinstance(above, ir.Argument) else None
    if not isinstance(call, ir.Call) or not isinstance(above, ir.Argument):
        return None, ""
    name = context.name(code, call.func)
    if name == SET_STATE:
        optimizer = above.keyword == "optim_state_dict"
        return call, "optimizer" if optimizer else "model"
    if name in (SET_MODEL_STATE, SET_OPTIMIZER_STATE):
        return call, "model" if name == SET_MODEL_STATE else "optimizer"
    if isinstance(call.func, ir.Attribute) and call.func.attr == "load_state_dict":
        return call, "object" if call.args[:1] == (above,) else ""
    return call, ""


def argument(call: ir.Call, position: int, keyword: str) -> ir.Expr:
    """Return an argument that a call surely has.

    Raises:
        NoFixError: the call hides it.
    """
    found = argument_of(call, position, keyword)
    if found is None:
        raise NoFixError(f"the arguments of the load are not written out: `{keyword}` is not there")
    return found.value
