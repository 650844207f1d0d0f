"""`torch.save` of a checkpoint to `dcp.save`, which every rank calls."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.files.lexing import indented
from fsdplint.finding import Edit, Span
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.edits import apply
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import binders, dotted, fresh
from fsdplint.knowledge.checkpoints import CHECKPOINT
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.migrate.dcp.background import FUTURE, GROUP, after_the_last, none_yet
from fsdplint.migrate.dcp.guards import Guard, deletions, guard_of
from fsdplint.migrate.dcp.plain import is_random_state
from fsdplint.migrate.dcp.states import sharded_call
from fsdplint.migrate.dcp.writes import Write
from fsdplint.migrate.step import Change

_WIDTH = 80
# What the name of a file ends with after a save has put it out of the way.
_OLD = ".old"
# Methods and functions that a folder needs others for.
_MOVES = frozenset({"replace", "rename", "remove", "unlink", "move", "copy", "copyfile", "getsize"})


def saved(write: Write, known: frozenset[ir.Node], function: str) -> Change:
    """Return the change of one write.

    Args:
        known: the tests that distinguish ranks.
        function: "save" or "async_save".

    Raises:
        NoFixError: something stands in the way.
    """
    code, call = write.code, write.call
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or statement.value is not call:
        raise NoFixError("the call is part of a larger statement; give it a statement of its own")
    _check_path(write)
    _check_uses(write)
    _check_states(write)
    guard = guard_of(code, statement, known)
    imports = Imports(code, call)
    place = statement if guard is None else guard.place
    moved = (statement,) if guard is None else guard.moved
    path = code.slice(write.path) if dotted(write.path) else fresh(code, call, f"{write.kind}_path")
    edits = _edits(write, imports, path, function)
    before = _cleared(write, imports, path, guard)
    if write.is_unequal:
        before = [*_agreed(write, imports, path), *before]
    in_background = function == "async_save"
    if in_background:
        before = [*after_the_last(code, call, imports), *before]
    if not dotted(write.path):
        before.insert(0, f"{path} = {in_lines(code, write.path)}")
    text = _text(code, moved, edits, before)
    if guard is not None and guard.conditions:
        text = f"if {' and '.join(guard.conditions)}:{code.newline}{indented(text, code.unit)}"
    text = indented(text, code.indentation(place))
    inside = [edit for each in moved for edit in edits if _within(edit, code.extent(each))]
    others = [edit for edit in edits if edit not in inside]
    if guard is None:
        placed = [code.edit(*code.extent(statement), text)]
    else:
        placed = _placed(code, guard, text)
    others += [none_yet(code, call)] if in_background else []
    span = code.span(call)
    what = f"write `{code.short(write.path)}` with `dcp.{function}` on every rank"
    differs = f"`{code.short(write.path)}` becomes a folder"
    if any(is_random_state(each.value) for each in write.entries):
        differs += ", with the random state of any one rank"
    return Change(span, what, (*placed, *others), (imports,), differs)


def in_lines(code: Code, value: ir.Expr) -> str:
    """Return the text of an expression as the value of a statement of its own."""
    text = code.slice(value)
    return f"({text})" if code.breaks(value.start, value.end) else text


def _check_path(write: Write) -> None:
    code, path = write.code, write.path
    if means_rank(code.slice(code.meaning(path))):
        raise NoFixError("each rank writes a file of its own; give all ranks one path")
    if is_open_file(code, path):
        raise NoFixError("it writes to an open file; give `torch.save` the path")


def is_open_file(code: Code, path: ir.Expr) -> bool:
    """Return whether a ``with`` statement binds the name that stands for a path."""
    items = [
        item
        for above in code.ancestors(path)
        if isinstance(above, ir.With)
        for item in above.items
        if item.target is not None
    ]
    return any(dotted(item.target) == dotted(path) for item in items if item.target is not None)


def _check_uses(write: Write) -> None:
    """Raise `NoFixError` if the function moves or deletes the file that it writes."""
    code, path = write.code, dotted(write.path)
    for node in ir.walk(code.function(write.call) or code.module):
        if not isinstance(node, ir.Call) or not isinstance(node.func, ir.Attribute):
            continue
        subjects = [node.func.value, *(each.value for each in node.args)]
        moves = node.func.attr in _MOVES and not code.slice(node).endswith(f'{_OLD}")')
        if moves and path is not None and any(dotted(each) == path for each in subjects):
            raise NoFixError(
                f"`{code.short(node)}` handles the file, which becomes a folder; change it by hand"
            )


def _check_states(write: Write) -> None:
    """Raise `NoFixError` if other code takes a state that is about to be shards."""
    code = write.code
    for entry in write.entries:
        if entry.state is None or not isinstance(entry.value, ir.Name):
            continue
        name = entry.value.id
        scope = code.scope(entry.value)
        again = [each.start for each in binders(code, scope).get(name, [])]
        end = min((at for at in again if at > write.call.end), default=len(code.text))
        for node in code.nodes_of(scope):
            other = isinstance(node, ir.Name) and node.id == name and node is not entry.value
            after = entry.state.call.end < node.start < end
            if other and after and not _is_harmless(code, node):
                use = code.statement(node)
                raise NoFixError(
                    f"`{code.short(use)}` uses `{name}`, too, which holds shards afterwards; take "
                    "the state for it apart"
                )


def _is_harmless(code: Code, node: ir.Node) -> bool:
    """Return whether a name is deleted, bound or tested, or its value written."""
    above = code.parent(node)
    if isinstance(above, (ir.Delete, ir.If, ir.Not, ir.BoolOp)):
        return True
    if isinstance(above, ir.Assign) and above.value is not node:
        return True
    call = next((each for each in code.ancestors(node) if isinstance(each, ir.Call)), None)
    return call is not None and ir.last_name(call.func) in ("save", "async_save")


def _edits(write: Write, imports: Imports, path: str, function: str) -> list[Edit]:
    """Return the edits of the call and of the states in it."""
    code, call = write.code, write.call
    name = imports.module(CHECKPOINT, "dcp")
    value, target = argument_of(call, 0, "obj"), argument_of(call, 1, "f")
    assert value is not None
    assert target is not None
    group = f", process_group={GROUP}" if function == "async_save" else ""
    kept = f"{FUTURE} = " if function == "async_save" else ""
    edits = [
        code.edit(call.func.start, call.func.end, f"{kept}{name}.{function}"),
        code.edit(target.start, target.end, f"checkpoint_id={path}{group}"),
    ]
    if value.keyword is not None:
        edits.append(code.edit(value.start, value.start + len(value.keyword), "state_dict"))
    states = [each.state for each in write.entries if each.state is not None]
    return list(dict.fromkeys([*edits, *(sharded_call(code, s, imports) for s in states)]))


def _agreed(write: Write, imports: Imports, path: str) -> list[str]:
    """Return the lines that give all ranks the path of rank 0."""
    dist, box = imports.module(DISTRIBUTED, "dist"), fresh(write.code, write.call, "paths")
    return [f"{box} = [{path}]", f"{dist}.broadcast_object_list({box})", f"{path} = {box}[0]"]


def _cleared(write: Write, imports: Imports, path: str, guard: Guard | None) -> list[str]:
    """Return the lines that put a file out of the way, which cannot become a folder."""
    os, dist = imports.module("os", "os"), imports.module(DISTRIBUTED, "dist")
    unit, test = write.code.unit, guard.test if guard is not None else ""
    alone = any(each.state is not None and each.state.sometimes for each in write.entries)
    first, wait = f"{dist}.get_rank() == 0", [f"{dist}.barrier()"]
    if alone:
        first = f"(not {dist}.is_initialized() or {first})"
        wait = [f"if {dist}.is_initialized():", f"{unit}{dist}.barrier()"]
    if test and "local" not in test:
        first = test
    return [
        f"if {first} and {os}.path.isfile({path}):",
        f'{unit}{os}.rename({path}, f"{{{path}}}{_OLD}")  # a file of torch.save',
        *wait,
    ]


def _text(
    code: Code, moved: Sequence[ir.Stmt], edits: Sequence[Edit], before: Sequence[str]
) -> str:
    """Return the moved statements with their edits, and ``before`` above the last, unindented."""
    parts = [_dedented(code, each, edits) for each in moved]
    lines = "".join(f"{line}{code.newline}" for line in before)
    return "".join([*parts[:-1], lines, _broken(code, parts[-1])])


def _broken(code: Code, call: str) -> str:
    """Break a long call at its arguments, the last of which is the path."""
    line = call.splitlines()[-1]
    if len(line) <= _WIDTH or line.endswith(",") or not line.endswith(")"):
        return call
    start = call.rindex(line)
    head, inside = line[: line.index("(") + 1], line[line.index("(") + 1 : -1]
    value, _, rest = inside.rpartition(", checkpoint_id=")
    given = [value, *f"checkpoint_id={rest}".split(", process_group=")]
    given[2:] = [f"process_group={each}" for each in given[2:]]
    lines = [head, *(f"{code.unit}{each}," for each in given), ")"]
    return call[:start] + "".join(f"{each}{code.newline}" for each in lines)


def _dedented(code: Code, statement: ir.Stmt, edits: Sequence[Edit]) -> str:
    start, end = code.extent(statement)
    indent = code.indentation(statement)
    margins = [
        code.edit(at, at + len(indent), "")
        for at in code.code_lines(start, end)
        if code.text.startswith(indent, at)
    ]
    own = [each for each in edits if _within(each, (start, end))]
    margins = [
        m for m in margins if not any(e.span.start <= m.span.start < e.span.end for e in own)
    ]
    shifted = [
        Edit(Span(code.path, e.span.start - start, e.span.end - start), e.text)
        for e in (*own, *margins)
    ]
    text = apply(code.text[start:end], shifted)
    return text if text.endswith(("\n", "\r")) else text + code.newline


def _within(edit: Edit, extent: tuple[int, int]) -> bool:
    return extent[0] <= edit.span.start and edit.span.end <= extent[1]


def _placed(code: Code, guard: Guard, text: str) -> list[Edit]:
    """Return the edits that put ``text`` above a guard and take out of it what moved."""
    gone = deletions(code, guard)
    if not code.starts_line(guard.place):
        raise NoFixError(f"`{code.short(guard.place)}` shares its line with other code")
    if guard.place in guard.emptied:
        start, end = code.extent(guard.place)
        kept = set(code.comments_in(start, end))
        kept -= {c for each in guard.moved for c in code.comments_in(*code.extent(each))}
        indent = code.indentation(guard.place)
        comments = "".join(
            f"{indent}{each}{code.newline}" for each in code.comments_in(start, end) if each in kept
        )
        return [code.edit(start, end, comments + text)]
    start, _ = code.extent(guard.place)
    return [code.insert_lines(start, text), *gone]
