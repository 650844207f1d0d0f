"""Modules that are sharded before their submodules are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.containers import container_class
from fsdplint.engine.facts.loops import (
    WHOLE_VIEWS,
    Loop,
    is_known_one,
    is_whole_view,
    keeps_order,
    loops,
)
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.interpreter.events import Shard, Store, Trace
from fsdplint.engine.interpreter.values import Object, Origin, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.move import common_block
from fsdplint.fixes.names import clash, dotted, names_in
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD206",
    summary="`fully_shard` is called on a module before its submodules",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class RootFirst:
    """``root`` is sharded, and later a part of it.

    Attributes:
        part: the first later call that shards a part; ``root`` itself if both happen in a loop.
        last: the last such call.
        loop: the loop that visits a module before its parts, if that is the reason.
    """

    root: Shard
    part: Shard
    last: Shard
    loop: Loop | None = None


def roots_first(program: Program) -> Iterator[RootFirst]:
    """Yield FSDP2 calls on a module that come before those on its parts."""
    for trace in program.traces:
        shards = [
            shard
            for shard in trace.of(Shard)
            if shard.generation is Generation.FSDP2 and is_known_one(program, shard)
        ]
        if len(shards) > 1:
            for index, root in enumerate(shards):
                done = {s.module for s in trace.of(Shard) if s.time < root.time}
                later = [s for s in shards[index + 1 :] if s.module not in done]
                yield from _before_parts(program, trace, root, later)
        for shard in shards:
            loop = _loop_of_all(program, shard)
            if loop is not None:
                yield RootFirst(shard, shard, shard, loop)


def _before_parts(
    program: Program, trace: Trace, root: Shard, later: list[Shard]
) -> Iterator[RootFirst]:
    if "ignored_params" in root.keywords or (container_class(root.module) and not root.listed):
        return
    parts = [s for s in later if root.module in s.module.ancestors() and _is_old(trace, root, s)]
    parts = [s for s in parts if _both_happen(program, root, s)]
    if parts:
        yield RootFirst(root, parts[0], parts[-1], _view_around(program, root, parts[0]))


def _both_happen(program: Program, root: Shard, part: Shard) -> bool:
    if exclude_each_other(root.site, part.site) or not _in_this_order(program, root, part):
        return False
    return program.together(part.site, root.site)


def _is_old(trace: Trace, root: Shard, part: Shard) -> bool:
    """True if ``part`` surely was in the root when the root was sharded."""
    chain = [part.module, *part.module.ancestors()]
    inside = chain[: chain.index(root.module)]
    if root.module.step == "[]" == inside[-1].step:
        return False  # elements of a slice are not parts of an element
    if any(each.origin is Origin.ALLOCATED and each.born > root.time for each in inside):
        return False
    during = range(root.time, part.time)
    stored = [s for s in trace.of(Store) if s.time in during]
    if any(s.owner in chain and not _is_setting(s) for s in stored):
        return False
    return not any(e.time in during and set(chain) & e.objects for e in trace.escapes)


def _is_setting(store: Store) -> bool:
    return not isinstance(followed(store.value), Object)


# Order at run time of what the engine executes in turn


def _in_this_order(program: Program, root: Shard, part: Shard) -> bool:
    """True if no loop around the two calls can reverse their order."""
    for path, ours, theirs in _shared_frames(root, part):
        tree = program.tree(path)
        around = set(loops(tree, ours))
        for loop in loops(tree, theirs):
            if loop in around and not keeps_order(tree, loop.iterable):
                return False
    return True


def _shared_frames(root: Shard, part: Shard) -> Iterator[tuple[str, ir.Node, ir.Node]]:
    """Yield the nodes of both calls in the functions that lead to both."""
    pairs = zip(root.site.frames(), part.site.frames(), strict=False)
    for (path, ours), (_, theirs) in pairs:
        yield path, ours, theirs
        if ours is not theirs:
            return


def _view_around(program: Program, root: Shard, part: Shard) -> Loop | None:
    """Return the loop over all modules that leads to both calls."""
    for path, ours, theirs in _shared_frames(root, part):
        tree = program.tree(path)
        around = set(loops(tree, theirs))
        for loop in loops(tree, ours):
            if loop in around and is_whole_view(tree, loop.iterable):
                return loop
    return None


# Models whose class is not analyzed


def _loop_of_all(program: Program, shard: Shard) -> Loop | None:
    """Return the loop that shards every module of a model with unknown parts, the model first."""
    view = shard.module.parent
    if shard.module.step != "[]" or view is None or view.step not in WHOLE_VIEWS:
        return None
    found = _innermost_loop(program, shard)
    if found is None:
        return None
    outer, loop = found
    tree = program.tree(outer[-1][0])
    if not is_whole_view(tree, loop.iterable) or _is_chosen(program, shard, outer, loop):
        return None
    return loop


Frames = tuple[tuple[str, ir.Node], ...]


def _innermost_loop(program: Program, shard: Shard) -> tuple[Frames, Loop] | None:
    """Return the innermost loop around a call, callers included, and the frames up to it."""
    frames = shard.site.frames()
    for depth in range(len(frames), 0, -1):
        path, node = frames[depth - 1]
        loop = next(loops(program.tree(path), node), None)
        if loop is not None:
            return frames[:depth], loop
    return None


def _is_chosen(program: Program, shard: Shard, outer: Frames, loop: Loop) -> bool:
    """True if a test in the loop, or in code that it calls, may skip a module."""
    path, node = outer[-1]
    end = loop.end if isinstance(loop, ir.For) else node.end
    around = {program.tree(file).function(each) for file, each in outer}
    for guard in shard.site.guards:
        inside = guard.path == path and loop.start <= guard.test.start <= end
        if inside or program.tree(guard.path).function(guard.test) not in around:
            return True
    return isinstance(loop, ir.Clause) and bool(loop.conditions)


def reports(program: Program) -> Iterator[Report]:
    for fact in roots_first(program):
        call = program.text(fact.root.site.path, fact.root.call)
        if fact.loop is not None:
            view = program.text(fact.root.site.path, fact.loop.iterable)
            message = (
                f"`{view}` yields a module before its submodules, so `{call}` shards it first: "
                "the calls on the submodules crash"
            )
        else:
            part = program.text(fact.part.site.path, fact.part.call)
            where = program.where(fact.part.site, fact.root.site)
            message = (
                f"`{call}` already shards a submodule's parameters, so `{part}` {where} crashes"
            )
        yield Report(
            program.span(fact.root.site),
            message,
            "sharded before its submodules",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: RootFirst) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.part.site, "shards a submodule"),
        *program.conditions(fact.root.site, fact.part.site),
    )


def _fix(program: Program, fact: RootFirst) -> Fix | Declined:
    code = Code.of(program.tree(fact.root.site.path))
    if fact.loop is not None:
        return backwards(code, fact.root.call, fact.loop)
    ours, theirs = fact.root.site.frames(), fact.last.site.frames()
    apart = len(ours) - 1
    if len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined(
            "the submodules are sharded in another function; move "
            f"`{code.short(fact.root.call)}` after that by hand"
        )
    return root_last(code, fact.root.call, theirs[apart][1])


@builder
def backwards(code: Code, call: ir.Call, loop: ir.For | ir.Clause) -> Fix:
    """Reverse the loop around ``call``, so that it visits submodules first."""
    if not any(loop is node or loop in _clauses(node) for node in code.ancestors(call)):
        raise NoFixError(
            "the loop over the modules is in another function; reverse its order by hand"
        )
    plain = iterable = loop.iterable
    if isinstance(plain, ir.Call) and code.slice(plain.func) == "list" and len(plain.args) == 1:
        plain = plain.args[0].value
    if not (isinstance(plain, ir.Call) and isinstance(plain.func, ir.Attribute)):
        raise NoFixError(
            f"`{code.short(iterable)}` is not a call that lists modules; reverse its order by hand"
        )
    text = code.slice(plain)
    edit = code.edit(iterable.start, iterable.end, f"reversed(list({text}))")
    return Fix(f"iterate over `{text}` in reverse", Safety.UNSAFE, (edit,))


def _clauses(node: ir.Node) -> tuple[ir.Clause, ...]:
    return node.clauses if isinstance(node, ir.Comprehension) else ()


@builder
def root_last(code: Code, root: ir.Call, last: ir.Node) -> Fix:
    """Move the statement of ``root`` below that of ``last``, which shards its last part."""
    statement = code.statement(root)
    _check_sharding(code, statement, root)
    block, lifted = common_block(code, root, last)
    if statement not in block.statements or not code.ends_line(lifted):
        raise NoFixError(
            f"`{code.short(statement)}` cannot move below `{code.short(last)}`; reorder them by "
            "hand"
        )
    order = block.statements
    reads = names_in(root).reads
    for between in order[order.index(statement) + 1 : order.index(lifted) + 1]:
        rebound = clash(names_in(between).writes, reads)
        if rebound is not None:
            raise NoFixError(
                f"`{code.short(between)}` changes `{rebound}` in between; move "
                f"`{code.short(root)}` by hand"
            )
    start, end = code.extent(statement)
    edits = (
        code.delete_lines(start, end),
        code.insert_lines(code.after(lifted), code.text[start:end]),
    )
    return Fix(f"move `{code.short(statement)}` below the last part", Safety.UNSAFE, edits)


def _check_sharding(code: Code, statement: ir.Stmt, root: ir.Call) -> None:
    """Raise unless ``statement`` is ``fully_shard(model)`` or ``model = fully_shard(model)``."""
    module = module_argument(root)
    alone = isinstance(statement, ir.Expression) and statement.value is root
    if isinstance(statement, ir.Assign) and statement.value is root and module is not None:
        alone = [dotted(target) for target in statement.targets] == [dotted(module.value)]
    if not alone:
        raise NoFixError(
            f"`{code.short(statement)}` does more than shard the model; move the call by hand"
        )
