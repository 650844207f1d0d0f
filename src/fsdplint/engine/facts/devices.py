"""Which device each rank's process computes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.scripts import script_of, whole_program
from fsdplint.engine.facts.sharding import is_alone
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Value,
    class_names,
    may_be,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.launch import (
    ACCELERATORS,
    DEVICE_FUNCTIONS,
    DEVICE_METHODS,
    INIT,
    INIT_DEVICE_MESH,
    LOCAL_RANKS,
    MESSAGES,
    SPAWNS,
    TORCH_DEVICE,
)
from fsdplint.knowledge.ranks import Role

# A program that starts its processes itself runs on one node; so does one that counts its ranks by
# the devices it has.
_STARTS_PROCESSES = re.compile(r"\bspawn\b|\bProcess\s*\(")
_COUNTS_DEVICES = re.compile(
    r"(?:^|[\r\n])[^#\r\n]*(world_?size[^#\r\n]*device_count\(\)|device_count\(\)[^#\r\n]*world_?size)",
    re.IGNORECASE,
)


# What may choose the device of a process, or leave it only one.
_CHOOSES = re.compile(
    r"set_device|set_default_device|CUDA_VISIBLE_DEVICES|device_mesh|DeviceMesh|cuda\s*\.\s*device\s*\("
    r"|SLURM|OMPI|device_id\s*=(?!\s*torch\.cuda\.current_device)|device_index"
)


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A use of CUDA that uses the first device of the node in every process.

    Attributes:
        spawned: the program starts its processes itself.
    """

    use: Call | Shard
    init: Call
    shard: Shard
    spawned: bool


@dataclass(frozen=True, slots=True)
class GlobalDevice:
    """A device whose index is the global rank.

    Attributes:
        site: the expression for the rank.
        told_by: the function or variable that gives the rank.
        local: the environment variable with the local rank.
        use: the call that takes the device.
    """

    site: Site
    told_by: str
    local: str
    use: Site


def global_devices(program: Program) -> Iterator[GlobalDevice]:
    """Yield devices whose index surely is the global rank, in programs for several nodes."""
    for trace in program.traces:
        spawned = {call.site.node for call in trace.calls(*SPAWNS)}
        made = {call.site.node for call in trace.calls(TORCH_DEVICE)}
        for site, value, use in named_devices(trace):
            rank = _global_rank(value)
            if rank is None or any(node in spawned for _, node in site.frames()):
                continue
            if use.node in made and _is_unused(program, use):
                continue
            if not is_for_one_node(program, trace, site):
                yield GlobalDevice(site, rank, LOCAL_RANKS[rank], use)


def _is_unused(program: Program, use: Site) -> bool:
    """True if only messages read a device or its variable."""
    tree = program.tree(use.path)
    if _is_told(tree, use.node):
        return True
    given = tree.parent(use.node)
    target = given.targets[0] if isinstance(given, ir.Assign) and len(given.targets) == 1 else None
    if not isinstance(target, ir.Name) or isinstance(tree.scope(given), ir.ClassDef):
        return False
    if tree.scope(given) is tree.module and _is_imported(program, use.path, target.id):
        return False
    scope = tree.function(given) or tree.module
    named = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id == target.id]
    read = [name for name in named if not _is_target(tree, name)]
    return not tree.looks_up_variables and all(_is_told(tree, name) for name in read)


def _is_imported(program: Program, path: str, name: str) -> bool:
    """Whether another file may read a variable of the file at ``path``."""
    return any(tree.path != path for tree in program.trees_with(name, "import *"))


def _is_target(tree: Tree, name: ir.Name) -> bool:
    parent = tree.parent(name)
    return isinstance(parent, ir.Assign) and name in parent.targets


def _is_told(tree: Tree, node: ir.Node) -> bool:
    """True if a message reads ``node``: ``print(device)`` or ``log.info(f"on {device}")``."""
    calls = (above for above in tree.ancestors(node) if isinstance(above, ir.Call))
    call = next(calls, None)
    return call is not None and ir.last_name(call.func) in MESSAGES


def named_devices(trace: Trace) -> Iterator[tuple[Site, Value, Site]]:
    """Yield the index of each device on a path: its expression, its value and the call.

    For a device without an index, the value is the device.
    """
    for call in trace.of(Call):
        yield from _of_call(call)
    for shard in trace.of(Shard):
        yield from _of_argument(shard.site, shard.keywords.get("device_id"), 9, "device_id")


def _global_rank(value: Value | None) -> str | None:
    """Return the function or variable that makes a value the global rank on every path."""
    options = may_be(value)
    alone = [each for each in options if isinstance(each, Const) and each.value == 0]
    ranks = [
        each.rank_source
        for each in options
        if isinstance(each, Object) and each.role is Role.NUMBER and each.rank_source in LOCAL_RANKS
    ]
    return ranks[0] if ranks and len(ranks) + len(alone) == len(options) else None


def _of_call(call: Call) -> Iterator[tuple[Site, Value, Site]]:
    place = DEVICE_FUNCTIONS.get(call.name) or DEVICE_METHODS.get(call.name)
    if place is None:
        return
    given = call.arguments.get(*place)
    index = call.arguments.get(1, "index")
    if call.name == TORCH_DEVICE and index is not None:
        kind = must_be(given)
        if isinstance(kind, Const) and kind.value in ACCELERATORS:
            yield from _of_argument(call.site, index, 1, "index")
        return
    yield from _of_argument(call.site, given, *place)


def _of_argument(
    site: Site, value: Value | None, position: int, keyword: str
) -> Iterator[tuple[Site, Value, Site]]:
    if value is None:
        return
    text = value.site if isinstance(value, Object) else None
    rank = None if text is None else _numbered(text.node)
    if text is not None and rank is not None and isinstance(value, Object):
        yield from ((text._replace(node=rank), inner, site) for inner in value.args)
        return
    written = argument(site.node, position, keyword)
    if written is not None:
        yield site._replace(node=written.value), value, site


def _numbered(node: ir.Node) -> ir.Node | None:
    """Return the number in ``f"cuda:{rank}"``."""
    if not isinstance(node, ir.FormattedString) or len(node.literals) != 2:
        return None
    before, after = node.literals
    named = before.endswith(":") and before.removesuffix(":") in ACCELERATORS
    return node.values[0] if named and not after else None


def is_for_one_node(program: Program, trace: Trace, site: Site) -> bool:
    """True if the program starts its processes itself, or counts them by its devices."""
    if program.project.is_test(trace.path) or program.project.is_test(site.path):
        return True
    texts = [program.tree(path).text for path in {trace.path, site.path}]
    return any(_STARTS_PROCESSES.search(text) or _COUNTS_DEVICES.search(text) for text in texts)


def shared_devices(program: Program) -> Iterator[SharedDevice]:
    """Yield the first use of CUDA in programs that choose no device for each process."""
    known: dict[str, bool] = {}
    for trace in program.traces:
        init = next((call for call in trace.calls(INIT) if _may_be_nccl(call)), None)
        use = _first_use(trace)
        shard = next(iter(trace.of(Shard)), None)
        if init is None or use is None or shard is None or is_alone(init):
            continue
        script = script_of(program, trace, init.site)
        if script is None:
            continue
        if script not in known:
            known[script] = _is_chosen(program, script)
        if not known[script]:
            yield SharedDevice(use, init, shard, bool(trace.calls(*SPAWNS)))


def _may_be_nccl(init: Call) -> bool:
    backend = init.arguments.get(0, "backend")
    texts = [str(each.value) for each in may_be(backend) if isinstance(each, Const)]
    return backend is None or any("nccl" in text.lower() or text == "None" for text in texts)


def _is_chosen(program: Program, script: str) -> bool:
    """True if code of the program, or unknown code, may choose a device."""
    trees = whole_program(program, script)
    return trees is None or any(_CHOOSES.search(tree.text) for tree in trees)


def _first_use(trace: Trace) -> Call | Shard | None:
    """Return the first use of the current device before a mesh sets another one.

    `fully_shard` makes a mesh, which sets the device by LOCAL_RANK where CUDA is not in use yet.
    """
    for event in trace.events:
        if isinstance(event, Call) and event.name == INIT_DEVICE_MESH:
            return None
        if isinstance(event, Call) and event.name in DEVICE_METHODS and _is_current(event):
            return event
        if isinstance(event, Shard) and event.generation is Generation.FSDP1:
            return event if _takes_current(event) else None
        if isinstance(event, Shard):
            return None
    return None


def _is_current(call: Call) -> bool:
    """True if a method moves to the current CUDA device: ``cuda()`` or ``to("cuda")``."""
    given = call.arguments.get(0, "device")
    if given is None:
        return call.name == "cuda" and not call.arguments.open
    kinds = [each for option in may_be(given) for each in may_be(_device(option))]
    return any(isinstance(each, Const) and each.value == "cuda" for each in kinds)


def _device(value: Value) -> Value:
    """Return the only argument of a ``torch.device``, or any other value itself."""
    made = isinstance(value, Object) and TORCH_DEVICE in class_names(value.cls)
    if isinstance(value, Object) and made and len(value.args) == 1 and not value.keywords:
        return value.args[0]
    return value


def _takes_current(shard: Shard) -> bool:
    given = shard.keywords.get("device_id")
    written = argument(shard.call, 9, "device_id")
    spread = any(each.star for each in shard.call.args)
    if spread or "device_mesh" in shard.keywords:
        return False
    called = written.value.func if written and isinstance(written.value, ir.Call) else None
    current = isinstance(called, ir.Attribute) and called.attr == "current_device"
    return current or (given is None and written is None)
