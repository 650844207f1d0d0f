"""Asynchronous checkpoint saves that nothing waits for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import is_by_all
from fsdplint.engine.facts.loops import leaves_around, loops_around
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.must.definitions import targets
from fsdplint.engine.must.references import UnknownError, matching
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.checkpoints import ASYNC_SAVE
from fsdplint.knowledge.launch import DESTROY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD508",
    summary="an asynchronous checkpoint save is never awaited, or awaited too late",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="no public code examined so far makes this mistake.",
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a future is kept: in a variable, or at the end of a list."""

    name: str
    in_list: bool


@dataclass(frozen=True, slots=True)
class Unawaited:
    """An asynchronous save whose future nothing awaits in time.

    Attributes:
        following: the call that may run during the save: one that destroys the process group, or
            the next save, which is the same call if a loop repeats it.
        kept: where the future is kept, None if it is dropped.
    """

    save: Call
    following: Call
    kept: Kept | None = None


def unawaited_saves(program: Program) -> Iterator[Unawaited]:
    """Yield the saves that are not awaited in time, with the next call on the path."""
    for trace in program.traces:
        for save in trace.calls(ASYNC_SAVE):
            if not is_by_all(save) or not _is_in_thread(save):
                continue
            if _is_dropped(program, save):
                following = _following(program, trace, save)
                if following is not None:
                    yield Unawaited(save, following)
            else:
                yield from _awaited_late(program, trace, save)


def _is_in_thread(save: Call) -> bool:
    """Whether the save certainly runs in a thread, rather than in another process."""
    return "async_checkpointer_type" not in save.arguments.keywords


def _following(program: Program, trace: Trace, save: Call) -> Call | None:
    later = [
        call
        for call in trace.calls(DESTROY, ASYNC_SAVE)
        if call.time > save.time
        and not (call.name == DESTROY and call.arguments.values())
        and not exclude_each_other(save.site, call.site)
        and program.together(save.site, call.site)
    ]
    ends = [call for call in later if call.name == DESTROY]
    return next(iter((*ends, *later)), save if _repeats(program, save) else None)


def _repeats(program: Program, save: Call) -> bool:
    """Whether a loop runs the save more than once."""
    tests = [program.text(guard.path, guard.test) for guard in save.site.guards]
    frames = [(program.tree(path), node) for path, node in save.site.frames()]
    leaves = any(leaves_around(tree, node) for tree, node in frames)
    return bool(loops_around(program, save.site)) and not leaves and not any(map(_is_once, tests))


def _is_once(test: str) -> bool:
    """Whether a test may be true in one iteration only, such as ``step == args.steps``."""
    return re.search(r"last|final|end", test) is not None or ("==" in test and "%" not in test)


# Futures that nobody can wait for


def _is_dropped(program: Program, save: Call) -> bool:
    """Whether the future gets no name, or one that nothing reads."""
    tree, call = program.tree(save.site.path), save.site.node
    if tree.in_lambda(call):
        return False
    statement = tree.statement(call)
    if isinstance(statement, ir.Expression):
        return statement.value is call
    if not isinstance(statement, ir.Assign) or statement.value is not call:
        return False
    return not any(_is_read(program, tree, target) for target in statement.targets)


def _is_read(program: Program, tree: Tree, target: ir.Expr) -> bool:
    """Whether anything may read a variable or an attribute."""
    function = tree.function(target)
    if isinstance(target, ir.Name) and function is not None:
        declared = {n for s in ir.walk(function) if isinstance(s, ir.Scope) for n in s.names}
        return target.id in declared or _reads(tree, ir.walk(function), target.id)
    if not isinstance(target, (ir.Name, ir.Attribute)):
        return True
    name = ir.last_name(target)
    try:
        units = matching(program, rf"\b{re.escape(name)}\b", name)
    except UnknownError:
        return True
    trees = [program.tree(unit.path) for unit in units]
    return any(_reads(each, each.walk(name), name) for each in trees)


def _reads(tree: Tree, nodes: Iterator[ir.Node], name: str) -> bool:
    """Whether a name is in ``nodes`` other than as what something is assigned to."""
    found = list(nodes)
    written = {id(target) for node in found for target in targets(node)}
    return tree.looks_up_variables or any(_means(n, name) and id(n) not in written for n in found)


def _means(node: ir.Node, name: str) -> bool:
    if isinstance(node, ir.Constant):
        return node.value == name
    return isinstance(node, (ir.Name, ir.Attribute)) and ir.last_name(node) == name


# Futures that are not awaited before the next save


def _awaited_late(program: Program, trace: Trace, save: Call) -> Iterator[Unawaited]:
    """Yield a save whose future nothing reads before the next save starts."""
    tree, node = program.tree(save.site.path), save.site.node
    kept, used = _kept(tree, node)
    scope = tree.function(node) or tree.module
    if kept is None or tree.looks_up_variables or not _is_own(scope, kept.name):
        return
    reads = [each for each in ir.walk(scope) if _means(each, kept.name) and each is not used]
    if any(tree.scope(each) is not scope for each in reads):
        return
    stores = {id(target) for each in ir.walk(scope) for target in targets(each)}
    places = [each for each in reads if id(each) not in stores]
    loop = next((n for n in _own_ancestors(tree, node) if isinstance(n, (ir.For, ir.While))), None)
    if loop is not None and not any(loop in tree.ancestors(each) for each in places):
        if _repeats(program, save):
            yield Unawaited(save, save, kept)
        return
    following = _next_beside(program, trace, save)
    if following is not None and not any(
        node.end <= each.start < following.site.node.start for each in places
    ):
        yield Unawaited(save, following, kept)


def _kept(tree: Tree, call: ir.Node) -> tuple[Kept | None, ir.Node | None]:
    """Return where a future is kept, and the node of the list it is appended to."""
    parent = tree.statement(call)
    if isinstance(parent, ir.Assign) and parent.value is call and len(parent.targets) == 1:
        target = parent.targets[0]
        return (Kept(target.id, False), None) if isinstance(target, ir.Name) else (None, None)
    if not isinstance(parent, ir.Expression) or not isinstance(parent.value, ir.Call):
        return None, None
    func, args = parent.value.func, parent.value.args
    if not isinstance(func, ir.Attribute) or func.attr != "append" or len(args) != 1:
        return None, None
    if args[0].value is not call or not isinstance(func.value, ir.Name):
        return None, None
    return Kept(func.value.id, True), func.value


def _is_own(scope: ir.Node, name: str) -> bool:
    """Whether a variable certainly belongs to the function, or the module, that binds it."""
    shared = {n for each in ir.walk(scope) if isinstance(each, ir.Scope) for n in each.names}
    return name not in shared and any(
        isinstance(target, ir.Name) and target.id == name
        for each in ir.walk(scope)
        for target in targets(each)
    )


def _own_ancestors(tree: Tree, node: ir.Node) -> Iterator[ir.Node]:
    for above in tree.ancestors(node):
        if isinstance(above, ir.Function):
            return
        yield above


def _next_beside(program: Program, trace: Trace, save: Call) -> Call | None:
    """Return the next save, if it is a statement of the same block."""
    tree = program.tree(save.site.path)
    later = (call for call in trace.calls(ASYNC_SAVE) if call.time > save.time)
    call = next(later, None)
    if call is None or call.site.calls != save.site.calls or call.site.path != save.site.path:
        return None
    block = tree.block(tree.statement(save.site.node)).statements
    return call if tree.statement(call.site.node) in block and call is not save else None


_MIXED = "can start before it finishes; their collectives then mix, and both saves fail"


def reports(program: Program) -> Iterator[Report]:
    for fact in unawaited_saves(program):
        site, following = fact.save.site, fact.following
        until = "" if fact.kept is None else " in time"
        yield Report(
            program.span(site),
            f"nothing waits for this asynchronous save{until}: {_harm(program, fact)}",
            "future is never awaited" if fact.kept is None else "future is not awaited in time",
            (*_evidence(program, fact), *program.conditions(site, following.site)),
            partial(_fix, program, fact),
        )


def _harm(program: Program, fact: Unawaited) -> str:
    site, following = fact.save.site, fact.following
    if following is fact.save:
        return f"the next one {_MIXED}"
    text = program.text(following.site.path, following.site.node)
    where = program.where(following.site, site)
    if following.name == DESTROY:
        return f"`{text}` {where} can cut it off and leave the checkpoint incomplete"
    return f"the one {where} {_MIXED}"


def _evidence(program: Program, fact: Unawaited) -> Iterator[Evidence]:
    if fact.following is not fact.save:
        note = (
            "destroys the process group"
            if fact.following.name == DESTROY
            else "starts the next save"
        )
        yield program.evidence(fact.following.site, note)


def _fix(program: Program, fact: Unawaited) -> Fix | Declined:
    call = fact.save.site.node
    if "async_stager" in fact.save.arguments.keywords:
        return Declined(
            "`async_stager` decides what this returns; wait for its `upload_completion` by hand"
        )
    code = Code.of(program.tree(fact.save.site.path))
    if fact.kept is not None:
        return _wait_first(code, fact.save.site.node, fact.following.site.node, fact.kept)
    edit = code.edit(call.end, call.end, ".result()")
    return Fix("wait for the save to finish", Safety.UNSAFE, (edit,))


@builder
def _wait_first(code: Code, save: ir.Node, following: ir.Node, kept: Kept) -> Fix:
    """Wait for the save before the next one starts."""
    statement = code.statement(following)
    if not code.starts_line(statement):
        raise NoFixError("the next save shares its line with other code; put it on its own line")
    indent, name = code.indentation(statement), kept.name
    wait = f"{name}[-1].result()" if kept.in_list else f"{name}.result()"
    lines = [wait]
    edits = []
    if save is following:
        test = name if kept.in_list else f"{name} is not None"
        lines = [f"if {test}:", f"{code.unit}{wait}"]
        if not kept.in_list:
            edits = _nothing_yet(code, save, name)
    text = "".join(f"{indent}{line}{code.newline}" for line in lines)
    edits.append(code.insert_lines(code.line_start(statement.start), text))
    return Fix("wait for this save before starting the next one", Safety.UNSAFE, tuple(edits))


def _nothing_yet(code: Code, save: ir.Node, name: str) -> list[Edit]:
    """Return the edit that sets the variable to None before the loops, unless it is so."""
    *_, loop = (n for n in _own_ancestors(code, save) if isinstance(n, (ir.For, ir.While)))
    scope = code.function(save) or code.module
    others = [
        node
        for node in ir.walk(scope)
        if isinstance(node, ir.Assign)
        and node.value is not save
        and any(isinstance(each, ir.Name) and each.id == name for each in node.targets)
    ]
    if any(
        not isinstance(each.value, ir.Constant) or each.value.value is not None for each in others
    ):
        raise NoFixError(
            f"`{name}` also holds other values; wait by hand before the next save starts"
        )
    if any(each.start < loop.start for each in others):
        return []
    line = f"{code.indentation(loop)}{name} = None{code.newline}"
    return [code.insert_lines(code.line_start(loop.start), line)]
