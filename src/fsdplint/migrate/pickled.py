"""Sharded models that are saved, exported or passed to another process, with their code."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call, Occurrence, PlainWrite, Trace
from fsdplint.engine.interpreter.values import Object, Value, contained
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import EXPORTS, SCRIPT
from fsdplint.knowledge.launch import PROCESSES, SPAWNS
from fsdplint.migrate.step import Context, Found, kept
from fsdplint.rules.save_without_gathered_state import of_hugging_face, takes_state

_WHY = (
    "it writes the model itself, of which each rank has its shards; save its state dict and build "
    "the model before loading by hand"
)
_EXPORTED = (
    "no exporter takes a sharded model; build the model anew on one rank, load the gathered state "
    "into it, and export that by hand"
)
_BY_ITSELF = (
    "it takes the state of a sharded model by itself, of which each rank has its shards; gather "
    "the state on every rank and save that by hand"
)
_SCRIPTED = (
    "`fully_shard` takes no module of TorchScript; shard the module itself, without this call, by "
    "hand"
)
_PASSED = (
    "another process cannot get a sharded model, of which this rank has its shards; call the "
    "function on every rank, or pass the gathered state, by hand"
)


def pickled(context: Context) -> Iterator[Found]:
    """Yield each place that takes a model whole which is sharded by then, or scripts it before."""
    program = context.program
    seen: dict[tuple[str, ir.Node], str] = {}
    for trace in program.traces:
        for event, value, why in _taken(trace):
            for item in contained(value):
                unit = unit_of(trace, item) if isinstance(item, Object) else None
                if unit is None:
                    continue
                if unit.time < event.time:
                    seen[event.site.path, event.site.node] = why
                elif isinstance(event, Call) and event.name == SCRIPT:
                    seen[event.site.path, event.site.node] = _SCRIPTED
    for (path, node), why in seen.items():
        yield kept(Code.of(program.tree(path)), node, why)


def _taken(trace: Trace) -> Iterator[tuple[Occurrence, Value, str]]:
    for write in trace.of(PlainWrite):
        yield write, write.value, _WHY
    for call in trace.calls(*EXPORTS):
        given = call.arguments.get(0, "model")
        if given is not None:
            yield call, given, _EXPORTED
    for call in trace.calls("save_pretrained"):
        if call.receiver is not None and takes_state(call) and not of_hugging_face(call.receiver):
            yield call, call.receiver, _BY_ITSELF
    for call in trace.calls(*SPAWNS, *PROCESSES):
        for given in (*call.arguments.args, *call.arguments.keywords.values()):
            yield call, given, _PASSED
