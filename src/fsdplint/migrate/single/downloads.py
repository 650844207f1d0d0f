"""Files that each rank would download or create in the same place at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.knowledge.data import DOWNLOADS
from fsdplint.knowledge.files import ASKS_FOR_FILE, CREATES_FOLDER, RUNS_COMMAND
from fsdplint.knowledge.launch import MESSAGES
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.single.deciding import called_in, reached, together
from fsdplint.migrate.single.launch import is_of_another_script
from fsdplint.migrate.single.rank_zero import is_guarded, may_ask, start
from fsdplint.migrate.step import Change, Context, Found, attempt

_KEYWORD = "download"
_WAIT = ".barrier()"
_LEAVES = (ir.Return, ir.Break, ir.Continue)  # an error ends the job of all ranks
_BY_HAND = "let rank 0 do this first, and the other ranks wait, by hand"
# Methods that run for single samples and batches, not on all ranks alike.
_OF_SAMPLES = frozenset({"__getitem__", "__iter__", "__next__", "collate_fn"})


def downloads(context: Context) -> Iterator[Found]:
    """Yield a change for the statements that download or create files that are not there yet."""
    codes = [*context.codes("")] if start(context) is not None else []
    joint, of_samples = together(codes), reached(_OF_SAMPLES, codes)
    for code in codes:
        found: dict[ir.Stmt, None] = {}
        for node in ir.walk(code.module):
            if is_of_another_script(context, code, node):
                continue
            if isinstance(node, ir.Call) and _downloads(node) and not is_guarded(code, node):
                found[_outermost(code, node, joint)] = None
            elif isinstance(node, ir.If) and not is_guarded(code, node):
                function, created = code.function(node), _created(code, node)
                alike = function is None or function.name not in of_samples
                if created and alike and not called_in(created) & joint:
                    outer = [_outermost(code, node.test, joint)]
                    found |= dict.fromkeys(created if len(created) > 1 else outer)
        for group in _groups(code, list(found)):
            if not _is_first(code, group[0]):
                turn = partial(_in_turn, context, code, group, joint)
                yield from attempt(code, group[0], turn)


def _downloads(call: ir.Call) -> bool:
    given = next((each.value for each in call.args if each.keyword == _KEYWORD), None)
    asked = given is not None and not (isinstance(given, ir.Constant) and not given.value)
    return asked or ir.last_name(call.func) in DOWNLOADS


def _absent(code: Code, choice: ir.If) -> Iterator[tuple[str, Sequence[ir.Stmt]]]:
    """Yield each path that a test asks for, with the statements for where it is not there."""
    for node in ir.walk(choice.test):
        if isinstance(node, ir.Call) and ir.last_name(node.func) in ASKS_FOR_FILE:
            receiver = node.func.value if isinstance(node.func, ir.Attribute) else node.func
            path = code.slice(node.args[0].value if node.args else receiver)
            arm = choice.body if isinstance(choice.test, ir.Not) else choice.orelse
            if not isinstance(choice.test, ir.Not) and isinstance(choice.body[-1], ir.Return):
                arm = tuple(s for s in code.block(choice).statements if s.start > choice.start)
            yield path, arm


def _created(code: Code, choice: ir.If) -> Sequence[ir.Stmt]:
    """Return the statements that create what a test asks for, other than a folder, with it."""
    for path, arm in _absent(code, choice):
        if any(_gets(code, node, path) for each in arm for node in ir.walk(each)):
            return [choice, *(each for each in arm if each.start >= choice.end)]
    return []


def _gets(code: Code, node: ir.Node, path: str) -> bool:
    if not isinstance(node, ir.Call) or ir.last_name(node.func) in CREATES_FOLDER | MESSAGES:
        return False
    made = any(code.slice(each.value) == path for each in node.args)
    return made or dotted(node.func) in RUNS_COMMAND


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
    calls = (n for each in group for n in ir.walk(each) if isinstance(n, ir.Call))
    verb = "download" if any(map(_downloads, calls)) else "create the file"
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
    what = f"let rank 0 {verb} first, and the other ranks after it"
    return Change(code.span(first), what, tuple(edits), (imports,))
