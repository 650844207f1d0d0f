"""Collectives and saves after `destroy_process_group`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import Collective, collectives
from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.move import move_below
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import GET_MODEL_STATE, SAVE
from fsdplint.knowledge.collectives import BARRIER, C10D_CALLS, NORM_CALLS, TENSOR_METHODS
from fsdplint.knowledge.launch import DESTROY, IS_UP
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD111",
    summary="a collective or a save runs after the process group is destroyed",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

# Calls that look up the groups of DTensors, such as FSDP2's parameters; FSDP1 keeps its groups.
_OF_DTENSORS = TENSOR_METHODS | NORM_CALLS | {GET_MODEL_STATE}


@dataclass(frozen=True, slots=True)
class LateCollective:
    """A call of all ranks after their process group is destroyed.

    Attributes:
        destroy: the call that destroys the group.
        last: the last such call of the program.
    """

    call: Call
    destroy: Call
    last: Call


def late_collectives(program: Program) -> Iterator[LateCollective]:
    """Yield the first call that needs the groups after each call that destroys them all."""
    for trace in program.traces:
        seen: set[Call] = set()
        calls = [each.call for each in collectives(trace) if _needs_group(each)]
        for call in calls:
            destroy = _destroyed_by(trace, call) if call.destroyed else None
            if destroy is None or destroy in seen:
                continue
            seen.add(destroy)
            if program.together(call.site, destroy.site):
                yield LateCollective(call, destroy, calls[-1])


def _needs_group(collective: Collective) -> bool:
    """True if a call fails without a group, or writes an incomplete checkpoint."""
    name, shard = collective.call.name, collective.shard
    if isinstance(shard, Call):
        return False
    of_dtensors = name in _OF_DTENSORS and shard.generation is Generation.FSDP2
    return of_dtensors or name in C10D_CALLS or name == SAVE


def _destroyed_by(trace: Trace, call: Call) -> Call | None:
    """Return the call that destroyed the group, if that depends on no rank and no step."""
    before = [each for each in trace.calls(DESTROY) if each.time < call.time]
    whole = [each for each in before if not each.arguments.values()]
    if not whole:
        return None
    common = {guard.test for guard in call.site.guards}
    own = [guard for guard in whole[-1].site.guards if guard.test not in common]
    return None if any(guard.divergent or guard.progress for guard in own) else whole[-1]


def reports(program: Program) -> Iterator[Report]:
    for fact in late_collectives(program):
        site = fact.call.site
        assert isinstance(site.node, ir.Call)
        where = program.where(fact.destroy.site, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` runs after the process group is "
            f"destroyed {where}, {_harm(fact.call)}",
            "process group no longer exists",
            (Evidence(program.span(fact.destroy.site), "process group is destroyed here"),),
            partial(_fix, program, fact),
        )


def _harm(call: Call) -> str:
    if call.name == SAVE:
        return "so each rank saves as if alone and overwrites the shards of the others"
    return "so it crashes"


def _fix(program: Program, fact: LateCollective) -> Fix | Declined:
    frame = common_frame(fact.destroy.site, fact.last.site)
    if frame is None:
        return Declined(
            "the process group is destroyed in another function; move that call after the last use "
            "by hand"
        )
    path, destroy, last = frame
    tree = program.tree(path)
    if not _only_destroys(program, fact.destroy.site, destroy):
        return Declined(
            f"`{tree.slice(destroy)}` does more than destroy the process group; move "
            "`destroy_process_group` by hand"
        )
    title = "destroy the process group after its last use"
    return move_below(Code.of(tree), destroy, last, title, Safety.UNSAFE)


_ENDS = frozenset(name.rpartition(".")[2] for name in (BARRIER, DESTROY, IS_UP))


def _only_destroys(program: Program, destroyed: Site, call: ir.Node) -> bool:
    """True if a call that leads to the destruction of the group does nothing else."""
    frames = destroyed.frames()
    depth = next(index for index, (_, node) in enumerate(frames) if node is call)
    inside = frames[depth + 1 :]
    on_the_way = {node for _, node in inside}
    functions = [program.tree(path).function(node) for path, node in inside]
    calls = [
        node for each in functions if each for node in ir.walk(each) if isinstance(node, ir.Call)
    ]
    return all(node in on_the_way or ir.last_name(node.func) in _ENDS for node in calls)
