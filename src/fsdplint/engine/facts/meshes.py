"""Device meshes: their arguments, and the dimensions over which modules are sharded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Sequence, Value
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.launch import FLATTEN, INIT_DEVICE_MESH, OF_ONE_DIMENSION, TORCH_DEVICE

# Words for dimensions over which layers, stages or experts are split, and not batches.
_OF_MODELS = frozenset(
    {"tp", "tensor", "pp", "pipe", "pipeline", "ep", "expert", "experts", "stage", "mp", "model"}
)
_SHARDS = frozenset({"shard", "sharded", "fsdp", "zero"})
_REPLICATES = frozenset({"replicate", "replicated", "replica", "replicas", "ddp", "rep"})


@dataclass(frozen=True, slots=True)
class BadMesh:
    """An argument of a mesh, or of a call with a mesh, that PyTorch refuses.

    Attributes:
        kind: what is wrong, e.g. "index"; see the rule.
        given: names or numbers for the message.
    """

    site: Site
    kind: str
    given: tuple[object, ...] = ()


def bad_meshes(program: Program) -> Iterator[BadMesh]:
    """Yield invalid arguments of ``init_device_mesh``, of a mesh's methods and of ``mesh=``."""
    for bad in _bad_meshes(program):
        if not is_caught(program, bad.site):
            yield bad


def _bad_meshes(program: Program) -> Iterator[BadMesh]:
    for trace in program.traces:
        made = trace.calls(INIT_DEVICE_MESH)
        for call in made:
            yield from _device(trace, call)
            yield from _shape(call)
            yield from _names(call)
            yield from _asked(trace, call)
        for shard in trace.of(Shard):
            if shard.generation is Generation.FSDP2 and "mesh" in shard.keywords:
                yield from _given(trace, shard)


def _device(trace: Trace, call: Call) -> Iterator[BadMesh]:
    value = call.arguments.get(0, "device_type")
    if isinstance(value, Const) and isinstance(value.value, str):
        if re.fullmatch(r"[a-z]+:\d+", value.value):
            yield BadMesh(call.site, "index", (value.value.partition(":")[0],))
    elif _result_of(trace, value, TORCH_DEVICE):
        yield BadMesh(call.site, "device")
    elif isinstance(value, Object) and value.site is not None:
        text = value.site.node
        kind = None
        if isinstance(text, ir.FormattedString):
            kind = re.fullmatch(r"([a-z]+):", text.literals[0])
        if kind is not None:
            yield BadMesh(call.site, "index", (kind[1],))


def _result_of(trace: Trace, value: Value | None, name: str) -> bool:
    """True if a value is the result of a call of the function ``name``."""
    return any(call.result is value for call in trace.calls(name))


def _shape(call: Call) -> Iterator[BadMesh]:
    shape = call.arguments.get(1, "mesh_shape")
    if isinstance(shape, Const) and isinstance(shape.value, int):
        yield BadMesh(call.site, "number", (shape.value,))


def _names(call: Call) -> Iterator[BadMesh]:
    if len(call.arguments.args) > 2:
        yield BadMesh(call.site, "position")
    names = call.arguments.get(2, "mesh_dim_names")
    text = names.value if isinstance(names, Const) else None
    dimensions = _dimensions(call)
    if isinstance(text, str) and dimensions is not None and (dimensions, len(text)) != (1, 1):
        yield BadMesh(call.site, "text", (text, dimensions))


def _dimensions(call: Call) -> int | None:
    return len(sizes_of(call)) or None


def _asked(trace: Trace, made: Call) -> Iterator[BadMesh]:
    """Yield calls of methods of a whole mesh that name none of its dimensions."""
    dimensions, names = _dimensions(made), names_of(made)
    for call in trace.calls(*OF_ONE_DIMENSION):
        if call.receiver is not made.result or call.arguments.open or made.arguments.open:
            continue
        given = call.arguments.get(0, "mesh_dim")
        name = given.value if isinstance(given, Const) else None
        if isinstance(name, str) and names and name not in names:
            if _may_be_flattened(trace, name):
                continue
            yield BadMesh(call.site, "unknown", (name, ", ".join(f"`{each}`" for each in names)))
        elif name is None and (given is None or isinstance(given, Const)) and (dimensions or 0) > 1:
            yield BadMesh(call.site, "which", (call.name, dimensions))


def _may_be_flattened(trace: Trace, name: str) -> bool:
    """True if the program may flatten several dimensions into one of this name."""
    given = [call.arguments.get(0, "mesh_dim_name") for call in trace.calls(FLATTEN)]
    return any(not isinstance(each, Const) or each.value == name for each in given)


def sizes_of(call: Call) -> tuple[object, ...]:
    """Return the sizes of a mesh's dimensions, None for an unknown one; () if none is known."""
    shape = call.arguments.get(1, "mesh_shape")
    if not isinstance(shape, Sequence) or shape.rest:
        return ()
    return tuple(each.value if isinstance(each, Const) else None for each in shape.items)


def names_of(call: Call) -> tuple[str, ...] | None:
    """Return the names of a mesh's dimensions, None if they are unknown or missing."""
    names = call.arguments.get(2, "mesh_dim_names")
    if not isinstance(names, Sequence) or names.rest:
        return None
    texts = [n.value for n in names.items if isinstance(n, Const) and isinstance(n.value, str)]
    return tuple(texts) if len(texts) == len(names.items) else None


def _given(trace: Trace, shard: Shard) -> Iterator[BadMesh]:
    """Yield what is wrong with the mesh that ``fully_shard`` gets."""
    made = made_by(trace, shard)
    if made is None or made.arguments.open or "dp_mesh_dims" in shard.keywords:
        return
    dimensions, names = _dimensions(made), made.arguments.get(2, "mesh_dim_names")
    if dimensions is not None and dimensions > 2:
        yield BadMesh(shard.site, "dimensions", (dimensions,))
    elif dimensions == 2 and (names is None or (isinstance(names, Const) and not names.value)):
        yield BadMesh(shard.site, "nameless")


def made_by(trace: Trace, shard: Shard) -> Call | None:
    """Return the call that creates the whole mesh of a sharding call."""
    fsdp1 = shard.generation is Generation.FSDP1
    return _making(trace, shard.keywords.get("device_mesh" if fsdp1 else "mesh"))


def _making(trace: Trace, mesh: Value | None) -> Call | None:
    """Return the call that creates a mesh."""
    made = (call for call in trace.calls(INIT_DEVICE_MESH) if call.result is mesh)
    return next(made, None) if isinstance(mesh, Object) else None


class Mistake(Enum):
    """How the names of a mesh's two dimensions contradict their positions.

    ``MODEL``: one splits the model; ``ORDER``: the replicate dimension is the second; ``BOTH``: the
    first is a shard dimension, and none replicates.
    """

    MODEL = "model"
    ORDER = "order"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Roles:
    """Two dimensions, of which FSDP2 replicates over the first and shards over the second.

    Attributes:
        made: the call that creates the mesh; None for dimensions of a larger one.
    """

    shard: Shard
    made: Call | None
    names: tuple[str, str]
    mistake: Mistake

    @property
    def wanted(self) -> str:
        """The dimension to shard over, where the other one splits the model."""
        return next(name for name in self.names if not is_of_model(name))


def mistaken_roles(program: Program) -> Iterator[Roles]:
    """Yield meshes of ``fully_shard`` whose names contradict what it does."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.generation is not Generation.FSDP2 or "dp_mesh_dims" in shard.keywords:
                continue
            made = made_by(trace, shard)
            names = _taken(trace, shard) if made is None else names_of(made)
            mistake = _mistake(*names) if names is not None and len(names) == 2 else None
            if names is not None and mistake is not None:
                yield Roles(shard, made, (names[0], names[1]), mistake)


def _taken(trace: Trace, shard: Shard) -> tuple[str, ...] | None:
    """Return the names in ``mesh=mesh["a", "b"]`` of a known mesh, None for anything else."""
    part = shard.keywords.get("mesh")
    # A single name would be the step.
    if not isinstance(part, Object) or part.step != "[]" or _making(trace, part.parent) is None:
        return None
    given = next((each.value for each in shard.call.args if each.keyword == "mesh"), None)
    index = given.index if isinstance(given, ir.Subscript) else None
    items = index.elements if isinstance(index, ir.Collection) else ()
    texts = [item.value if isinstance(item, ir.Constant) else None for item in items]
    return tuple(map(str, texts)) if all(isinstance(each, str) for each in texts) else None


def _mistake(one: str, other: str) -> Mistake | None:
    first, second = _words(one), _words(other)
    of_models = [is_of_model(name) for name in (one, other)]
    if any(of_models):
        return None if all(of_models) else Mistake.MODEL
    if not first & _SHARDS or first & _REPLICATES:
        return None
    return Mistake.ORDER if second & _REPLICATES else Mistake.BOTH


def is_of_model(name: str) -> bool:
    """True if a dimension of this name splits the model, and not the batches."""
    return bool(_words(name) & _OF_MODELS)


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", name.lower()))
