"""What sharding calls do to modules and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from pathlib import Path
from typing import TypeVar

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.decisions import exclude
from fsdplint.engine.interpreter.events import Call, Declared, Shard, Sharding, Trace
from fsdplint.engine.interpreter.modules import is_module, is_parameter
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Choice,
    Const,
    Mapping,
    Object,
    Parameters,
    Sequence,
    Value,
    contained,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.relevance import import_closure
from fsdplint.engine.project.unit import Unit
from fsdplint.knowledge.calls import SHARDING_NAMES, Generation, is_harmless
from fsdplint.knowledge.launch import INIT, INIT_DEVICE_MESH

_Sharding = TypeVar("_Sharding", Shard, Declared)
_SUMMONS = "summon_full_params"
# Their contents count.
_HOLDERS = (Choice, Mapping, Sequence)


def is_alone(init: Call) -> bool:
    """Whether a process group has a single process."""
    size = init.arguments.get(3, "world_size")
    return isinstance(size, Const) and size.value == 1


def runs_alone(trace: Trace) -> bool:
    """Whether the program runs as a single process, so that nothing is sharded."""
    return any(is_alone(init) for init in trace.calls(INIT))


def replaces(shard: Shard, capture: Parameters) -> bool:
    """Whether a sharding call puts new tensors in the place of captured ones."""
    if shard.time < capture.time or shard.keeps_parameters is not False:
        return False
    named = (item for _, item in _ignored(shard) if isinstance(item, Parameters))
    if any(item.module is capture.module for item in named):
        return False
    inside = capture.module is shard.module or shard.module in capture.module.ancestors()
    around = capture.module in shard.module.ancestors() and not capture.filtered
    return inside or around


def _ignored(shard: Shard) -> Iterator[tuple[str, Value]]:
    """Yield what a call is told to leave out, each with the keyword."""
    for keyword, given in shard.keywords.items():
        for item in contained(given) if keyword.startswith("ignored") else ():
            if not isinstance(item, _HOLDERS):
                yield keyword, item


def sharding_of(
    trace: Trace,
    module: Object,
    generation: Generation | None = Generation.FSDP2,
    before: int | None = None,
) -> Shard | None:
    """The sharding call that made ``module`` hold shards: on it, around it or inside it.

    Args:
        generation: of the call; either one if None.
        before: the time that it has to come before, if any.
    """
    return _around(trace.of(Shard), module, generation, before)


def wrapping_of(trace: Trace, module: Object, before: int) -> Shard | None:
    """The last call on ``module`` itself, if it is FSDP1's and surely splits the parameters."""
    own = [s for s in trace.of(Shard) if s.module is module and s.time < before]
    return own[-1] if own and own[-1].cuts_flat else None


def unit_of(
    trace: Trace, module: Object, generation: Generation | None = Generation.FSDP2
) -> Sharding | None:
    """What makes ``module`` hold shards, or else where the code says that it does."""
    return _around(trace.of(Shard), module, generation) or _around(
        trace.of(Declared), module, generation
    )


def _around(
    every: Items[_Sharding],
    module: Object,
    generation: Generation | None,
    before: int | None = None,
) -> _Sharding | None:
    shards = [s for s in every if generation in (None, s.generation)]
    shards = [s for s in shards if before is None or s.time < before]
    own = [s for s in shards if s.module is module]
    around = [s for s in shards if s.module in module.ancestors() and not _may_spare(s, module)]
    inside = [s for s in shards if module in s.module.ancestors()]
    found = own or around or inside
    return found[-1] if found else None


def _may_spare(unit: Sharding, inner: Object) -> bool:
    """Whether a sharding call may leave the parameters of a part of its module as they are."""
    if isinstance(unit, Declared) or not unit.may_leave_out:
        return False
    return unit.open or any(
        module is None
        or module is inner
        or module in inner.ancestors()
        or inner in module.ancestors()
        for module in left_out(unit)
    )


def left_out(shard: Shard) -> list[Object | None]:
    """The modules of which a call leaves out parameters; None for one that is not known."""
    return [_owner(keyword, item) for keyword, item in _ignored(shard)]


def _owner(keyword: str, item: Value) -> Object | None:
    """The module that an ignored parameter belongs to, or that is ignored."""
    if isinstance(item, Parameters):
        return None if item.filtered else item.module
    if not isinstance(item, Object):
        return None
    if is_parameter(item):
        return item.parent
    return item if keyword == "ignored_modules" or is_module(item) else None


def as_unit(program: Program, unit: Sharding, at: Site) -> str:
    """Return how ``unit`` is known, e.g. "which `fully_shard` shards on line 9"."""
    where = program.where(unit.site, at)
    if isinstance(unit, Shard):
        return f"which `{program.text(unit.site.path, unit.call.func)}` shards {where}"
    return f"an {unit.generation.value} module according to the {_how(unit)} {where}"


def _how(unit: Declared) -> str:
    """Return the word for the code that marks a model as a unit."""
    if unit.annotated:
        return "annotation"
    node = unit.site.node
    is_call = isinstance(node, ir.Call) and ir.last_name(node.func) != "isinstance"
    return "call" if is_call else "test"


def receiver(program: Program, method: Site) -> str:
    """Return the module of a bound method, for a message: ``model`` of ``model.forward``."""
    if isinstance(method.node, ir.Attribute):
        return f"`{program.text(method.path, method.node.value)}`"
    return "its module"


def as_state(program: Program, unit: Sharding, at: Site, verb: str = "sharded") -> str:
    """Return what the model of ``unit`` is, e.g. "sharded on line 9"."""
    if isinstance(unit, Shard):
        return f"{verb} {program.where(unit.site, at)}"
    return as_unit(program, unit, at)


def exclude_each_other(one: Site, other: Site) -> bool:
    """Whether no run reaches both places: they are in different arms, or their tests differ."""
    ours, theirs = ([(g.key, g.taken) for g in site.guards] for site in (one, other))
    return any(exclude(own, foreign) for own in ours for foreign in theirs)


def unfollowed_sharding(program: Program, site: Site) -> bool:
    """Whether the function of a sharding call holds another one that no followed path reaches."""
    tree = program.tree(site.path)
    executed = {event.call for trace in program.traces for event in trace.of(Shard)}
    unit = program.project.unit(Path(site.path))
    function = tree.function(site.node) or tree.module
    assert unit is not None
    return any(
        node not in executed and _is_sharding(program.project, unit, node)
        for node in ir.walk(function)
        if isinstance(node, ir.Call)
    )


def _is_sharding(project: Project, unit: Unit, node: ir.Call) -> bool:
    if isinstance(node.func, ir.Name):
        return project.refers_to_sharding(Path(unit.path), node.func.id)
    return isinstance(node.func, ir.Attribute) and node.func.attr in SHARDING_NAMES


def is_summoned(program: Program, site: Site) -> bool:
    """Whether a place may be in ``with FSDP.summon_full_params(…)``, here or in a caller.

    Other scripts of the repository do not run with the one that a path starts in.
    """
    contexts = [
        (path, context)
        for path, node in site.frames()
        for above in program.tree(path).ancestors(node)
        if isinstance(above, ir.With)
        for context in program.tree(path).contexts(above)
    ]
    trees = list(program.trees_with(_SUMMONS)) if contexts else []
    script, node = site.frames()[0]
    if trees and program.tree(script).function(node) is None:
        entered = {Path(path) for path, _ in site.frames()}
        files = {each for path in entered for each in import_closure(program.project, path)}
        trees = [tree for tree in trees if Path(tree.path) in files]
    handed_on = any(map(_hands_on, trees))
    return bool(trees) and any(_may_summon(program, *each, handed_on) for each in contexts)


def _hands_on(tree: Tree) -> bool:
    """Whether a file does more with that context than to enter it around statements of its own."""
    mentions = (
        node
        for node in tree.walk(_SUMMONS)
        if _SUMMONS in (getattr(node, "attr", ""), getattr(node, "id", ""))
    )
    return any(not _enters(tree, node) for node in mentions)


def _enters(tree: Tree, node: ir.Node) -> bool:
    """Whether a ``with`` calls ``node`` and enters the result, and its body does not yield."""
    call = tree.parent(node)
    function = tree.function(node)
    entered = isinstance(call, ir.Call) and isinstance(tree.parent(call), ir.WithItem)
    return entered and not (function is not None and function.is_generator)


def _may_summon(program: Program, path: str, context: ir.Expr, handed_on: bool) -> bool:
    """Whether a context may be that one, or enter it.

    A library that does not shard enters it only where it is handed to it: an ``ExitStack``.
    """
    function = context.func if isinstance(context, ir.Call) else context
    name = program.project.library_name(path, function)
    if name.startswith("torch."):
        return name.endswith(_SUMMONS)
    return handed_on or not is_harmless(name)


def is_two_dimensional(trace: Trace, shard: Sharding) -> bool:
    """Whether a sharding call is given a mesh that is seen to be made with two dimensions."""
    return any(len(shape.items) == 2 for shape in _mesh_shapes(trace, shard))


def only_replicates(trace: Trace, shard: Sharding) -> bool:
    """Whether a sharding call is given a mesh that is seen to shard over one rank each."""
    sizes = [must_be(shape.items[-1]) for shape in _mesh_shapes(trace, shard) if shape.items]
    return any(isinstance(size, Const) and size.value == 1 for size in sizes)


def _mesh_shapes(trace: Trace, shard: Sharding) -> Iterator[Sequence]:
    """Yield the shape that a sharding call's mesh is made with, if all of it is known."""
    mesh = must_be(shard.keywords.get("mesh"))
    for made in trace.calls(INIT_DEVICE_MESH):
        shape = made.argument(1, "mesh_shape")
        ours = mesh is not None and must_be(made.result) is mesh
        if ours and isinstance(shape, Sequence) and not shape.rest:
            yield shape


def is_gathered(trace: Trace, shard: Shard, time: int) -> bool:
    """Whether the parameters of a unit are whole at a time.

    A root keeps them so from its forward to its backward or ``reshard()``.
    """
    own = (shard.module, *shard.module.ancestors())
    is_root = not any(s.module in own[1:] for s in trace.of(Shard))
    keeps = is_root and not _reshards(shard)
    whole = False
    for call in trace.calls("forward", "backward", "unshard", "reshard"):
        if call.time > time:
            break
        if call.name == "backward":
            whole = False
        elif call.receiver in own:
            whole = call.name == "unshard" or (call.name == "forward" and keeps)
    return whole


def _reshards(shard: Shard) -> bool:
    value = must_be(shard.keywords.get("reshard_after_forward"))
    return isinstance(value, Const) and bool(value.value)
