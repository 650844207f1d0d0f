"""Containers of modules that are sharded as if they were modules."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.facts.loops import is_chosen, is_known_one
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import ClassValue, Object, Symbol, class_names
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import BLOCK_PATHS, WITHOUT_FORWARD, hugging_face_blocks


def sharded_containers(program: Program) -> Iterator[tuple[Shard, str]]:
    """FSDP2 calls on a container without a ``forward``, with the name of its class."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.generation is Generation.FSDP2 and not shard.listed:
                name = container_class(shard.module)
                if name and _is_given_itself(program, shard) and _is_certain(program, shard):
                    yield shard, name


def _is_certain(program: Program, shard: Shard) -> bool:
    """Whether it is this module that is sharded, and not just tried."""
    known = is_known_one(program, shard) and not is_chosen(program, shard)
    return known and not is_caught(program, shard.site, "ValueError")


def _is_given_itself(program: Program, shard: Shard) -> bool:
    """Whether the call is given the container, and not a list or a part of what it holds."""
    tree, first = program.tree(shard.site.path), next(iter(shard.call.args), None)
    if first is None or any(isinstance(each, _OF_ELEMENTS) for each in _values(tree, first.value)):
        return False
    calls = [node for _, node in shard.site.frames() if isinstance(node, ir.Call)]
    given = [each.value for call in calls for each in call.args]
    return not any(map(_is_list, (*given, *_values(tree, first.value))))


def _values(tree: Tree, given: ir.Expr) -> Iterator[ir.Expr]:
    """An argument, and what is assigned to it where it is a variable."""
    yield given
    name = given.id if isinstance(given, ir.Name) else None
    for each in ir.walk(tree.function(given) or tree.module) if name else ():
        if isinstance(each, ir.Assign) and name in [getattr(t, "id", "") for t in each.targets]:
            yield each.value


_LISTS = frozenset({"list", "tuple", "set", "sorted", "reversed", "iter", "filter", "map"})
_OF_ELEMENTS = (ir.Collection, ir.Comprehension, ir.Subscript, ir.BinOp)


def _is_list(value: ir.Expr) -> bool:
    function = value.func if isinstance(value, ir.Call) else None
    return isinstance(function, ir.Name) and function.id in _LISTS


def container_class(module: Object) -> str:
    """The class of a container that has no ``forward``, "" for any other module."""
    if isinstance(module.cls, ClassValue) and module.cls.lookup("forward") is not None:
        return ""
    known = class_names(module.cls) & WITHOUT_FORWARD
    if known:
        return min(known).rpartition(".")[2]
    *_, top = module, *module.ancestors()
    if module.cls is None and isinstance(top.cls, Symbol):
        blocks = hugging_face_blocks(top.cls.name)
        paths = BLOCK_PATHS if blocks == () else blocks or ()
        return "ModuleList" if module.path().removeprefix(".") in paths else ""
    return ""
