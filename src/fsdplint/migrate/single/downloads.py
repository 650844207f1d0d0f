"""Data that each rank would download to the same place at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.data import DOWNLOADS
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.single.deciding import called_in, together
from fsdplint.migrate.single.rank_zero import is_guarded, may_ask, start
from fsdplint.migrate.step import Change, Context, Found, attempt

_KEYWORD = "download"
_WAIT = ".barrier()"
_LEAVES = (ir.Return, ir.Break, ir.Continue)  # an error ends the job of all ranks
_BY_HAND = "let rank 0 download it first, and the other ranks wait, by hand"


def downloads(context: Context) -> Iterator[Found]:
    """Yield a change for the statements that download, or test whether they have to."""
    codes = context.codes(_KEYWORD, *DOWNLOADS) if start(context) is not None else ()
    joint = together(list(context.codes("")))
    for code in codes:
        found: dict[ir.Stmt, None] = {}
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and _downloads(node) and not is_guarded(code, node):
                found[_outermost(code, node, joint)] = None
        for group in _groups(code, list(found)):
            if not _is_first(code, group[0]):
                turn = partial(_in_turn, context, code, group, joint)
                yield from attempt(code, group[0], turn)


def _downloads(call: ir.Call) -> bool:
    given = next((each.value for each in call.args if each.keyword == _KEYWORD), None)
    asked = given is not None and not (isinstance(given, ir.Constant) and not given.value)
    return asked or ir.last_name(call.func) in DOWNLOADS


def _outermost(code: Code, node: ir.Node, joint: Set[str]) -> ir.Stmt:
    """Return the statement of ``node`` with the tests around it, which a download may change.

    A statement in which ranks do something together is too large: the others would wait for that.
    """
    statement = code.statement(node)
    for around in code.ancestors(statement):
        if isinstance(around, (ir.Function, ir.ClassDef, ir.Module, ir.For, ir.While)):
            break
        if called_in([around]) & joint:
            break
        if isinstance(around, (ir.If, ir.Try, ir.With)):
            statement = around
    return statement


def _groups(code: Code, statements: Sequence[ir.Stmt]) -> Iterator[list[ir.Stmt]]:
    """Yield statements that follow each other together."""
    group: list[ir.Stmt] = []
    for each in sorted(statements, key=lambda statement: statement.start):
        block = code.block(each).statements
        index = block.index(each)
        if group and index and block[index - 1] is group[-1]:
            group.append(each)
            continue
        if group:
            yield group
        group = [each]
    if group:
        yield group


def _is_first(code: Code, statement: ir.Stmt) -> bool:
    """True if the other ranks wait before it already."""
    block = code.block(statement).statements
    index = block.index(statement)
    return index > 0 and _WAIT in code.slice(block[index - 1])


def _in_turn(context: Context, code: Code, group: Sequence[ir.Stmt], joint: Set[str]) -> Change:
    first, last = group[0], group[-1]
    if called_in(group) & joint:
        raise NoFixError(f"it trains, too; {_BY_HAND}")
    function = code.function(first)
    sure = may_ask(context, code, first)
    if not sure and function is None:
        raise NoFixError(f"it runs before the process group is there; {_BY_HAND}")
    inner = [n for each in group[:-1] for n in ir.walk(each)]
    inner += list(ir.walk(last))[1 if isinstance(last, ir.Return) else 0 :]
    nested = any(isinstance(each, ir.Function) for each in inner)
    if nested or any(isinstance(each, _LEAVES) for each in inner) or not code.ends_line(last):
        raise NoFixError(f"the code around it may leave before its end; {_BY_HAND}")
    imports = Imports(code, first)
    dist = imports.module(DISTRIBUTED, "dist")
    there = "" if sure else f"{dist}.is_initialized() and "
    indent, newline, unit = code.indentation(first), code.newline, code.unit
    before, after = (
        f"{indent}if {there}{dist}.get_rank() {op} 0:{newline}{indent}{unit}{dist}{_WAIT}{newline}"
        for op in ("!=", "==")
    )
    edits = [code.insert_lines(code.extent(first)[0], before)]
    if isinstance(last, ir.Return) and last.value is not None:
        name = fresh(code, last, "dataset")
        edits.append(code.edit(last.start, last.value.start, f"{name} = "))
        after += f"{indent}return {name}{newline}"
    edits.append(code.insert_lines(code.after(last), after))
    what = "let rank 0 download first, and the other ranks after it"
    return Change(code.span(first), what, tuple(edits), (imports,))
