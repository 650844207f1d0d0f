"""Modules that are sharded before the parts of them that are sharded as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Shard, Store, Trace
from fsdplint.engine.facts.containers import container_class
from fsdplint.engine.facts.enumeration import (
    WHOLE_VIEWS,
    Loop,
    is_known_one,
    is_whole_view,
    keeps_order,
    loops,
)
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.program import Program
from fsdplint.engine.values import Object, Origin, resolved
from fsdplint.knowledge.calls import Generation


@dataclass(frozen=True, slots=True)
class RootFirst:
    """``root`` is sharded, and later a part of it.

    Attributes:
        part: the first later call that shards a part; the same one where it is in a loop.
        last: the last of them.
        loop: what runs through a module and its parts in this order, where that is the reason.
    """

    root: Shard
    part: Shard
    last: Shard
    loop: Loop | None = None


def roots_first(program: Program) -> Iterator[RootFirst]:
    """FSDP2 calls on a module that come before those on its parts."""
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
    """Whether ``part`` surely was in the root when that was sharded."""
    chain = [part.module, *part.module.ancestors()]
    inside = chain[: chain.index(root.module)]
    if root.module.step == "[]" == inside[-1].step:
        return False  # a slice's elements are no parts of an element
    if any(each.origin is Origin.ALLOCATED and each.born > root.time for each in inside):
        return False
    during = range(root.time, part.time)
    stored = [s for s in trace.of(Store) if s.time in during]
    if any(s.owner in chain and not _is_setting(s) for s in stored):
        return False
    return not any(e.time in during and set(chain) & e.objects for e in trace.escapes)


def _is_setting(store: Store) -> bool:
    return not isinstance(resolved(store.value), Object)


# Whether what the engine does in turn happens in this order


def _in_this_order(program: Program, root: Shard, part: Shard) -> bool:
    """Whether no loop around the two calls can turn them round."""
    for path, ours, theirs in _shared_frames(root, part):
        tree = program.tree(path)
        around = set(loops(tree, ours))
        for loop in loops(tree, theirs):
            if loop in around and not keeps_order(tree, loop.iterable):
                return False
    return True


def _shared_frames(root: Shard, part: Shard) -> Iterator[tuple[str, ir.Node, ir.Node]]:
    """The nodes of both in the functions that both are reached through."""
    pairs = zip(root.site.frames(), part.site.frames(), strict=False)
    for (path, ours), (_, theirs) in pairs:
        yield path, ours, theirs
        if ours is not theirs:
            return


def _view_around(program: Program, root: Shard, part: Shard) -> Loop | None:
    """The loop over all modules that reaches both calls."""
    for path, ours, theirs in _shared_frames(root, part):
        tree = program.tree(path)
        around = set(loops(tree, theirs))
        for loop in loops(tree, ours):
            if loop in around and is_whole_view(tree, loop.iterable):
                return loop
    return None


# A model that is not read


def _loop_of_all(program: Program, shard: Shard) -> Loop | None:
    """The loop that shards every module of a model whose parts are not known, itself first."""
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
    """The innermost loop around a call, be it in a caller, and the frames that lead to it."""
    frames = shard.site.frames()
    for depth in range(len(frames), 0, -1):
        path, node = frames[depth - 1]
        loop = next(loops(program.tree(path), node), None)
        if loop is not None:
            return frames[:depth], loop
    return None


def _is_chosen(program: Program, shard: Shard, outer: Frames, loop: Loop) -> bool:
    """Whether a test in the loop, or in what it calls, may leave a module out."""
    path, node = outer[-1]
    end = loop.end if isinstance(loop, ir.For) else node.end
    around = {program.tree(file).function(each) for file, each in outer}
    for guard in shard.site.guards:
        inside = guard.path == path and loop.start <= guard.test.start <= end
        if inside or program.tree(guard.path).function(guard.test) not in around:
            return True
    return isinstance(loop, ir.Clause) and bool(loop.conditions)
