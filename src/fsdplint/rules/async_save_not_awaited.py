"""Checkpoints that are saved in the background, and that nothing waits for."""

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
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.knowledge.checkpoints import ASYNC_SAVE
from fsdplint.knowledge.launch import DESTROY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD508",
    summary="nothing waits for a checkpoint that is saved in the background",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="no public code that was looked at makes this mistake.",
)


@dataclass(frozen=True, slots=True)
class Unawaited:
    """A save in the background whose future nobody can wait for.

    Attributes:
        following: what may happen while the save runs: the end of the process group, or the next
            save, which is the same call where a loop repeats it.
    """

    save: Call
    following: Call


def unawaited_saves(program: Program) -> Iterator[Unawaited]:
    """Saves whose future is dropped, with what happens next on the path."""
    for trace in program.traces:
        for save in trace.calls(ASYNC_SAVE):
            if is_by_all(save) and _is_in_thread(save) and _is_dropped(program, save):
                following = _following(program, trace, save)
                if following is not None:
                    yield Unawaited(save, following)


def _is_in_thread(save: Call) -> bool:
    """Whether the save surely runs in a thread, rather than in another process."""
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


_MIXED = "can start while it runs; their collectives get mixed up, and both fail"


def reports(program: Program) -> Iterator[Report]:
    for fact in unawaited_saves(program):
        site, following = fact.save.site, fact.following
        yield Report(
            program.span(site),
            f"nothing waits for this save: {_harm(program, fact)}",
            "its future is dropped",
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
        return f"`{text}` {where} can end it while it runs, and the checkpoint is then incomplete"
    return f"the one {where} {_MIXED}"


def _evidence(program: Program, fact: Unawaited) -> Iterator[Evidence]:
    if fact.following is not fact.save:
        note = "ends the process group" if fact.following.name == DESTROY else "the next save"
        yield program.evidence(fact.following.site, note)


def _fix(program: Program, fact: Unawaited) -> Fix | Declined:
    call = fact.save.site.node
    if "async_stager" in fact.save.arguments.keywords:
        return Declined("the stager decides what this returns; wait for its `upload_completion`")
    code = Code.of(program.tree(fact.save.site.path))
    edit = code.edit(call.end, call.end, ".result()")
    return Fix("wait until the checkpoint is saved", Safety.UNSAFE, (edit,))
