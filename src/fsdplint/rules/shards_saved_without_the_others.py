"""Distributed checkpoints that each rank saves as if there were no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call, Sharding, Trace, states_in
from fsdplint.engine.interpreter.values import Const, StateDict, Taint, contained, taint_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.arguments import argument_of, drop_argument
from fsdplint.fixes.code import Code, Declined
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import SAVES
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD511",
    summary="sharded state is saved with `no_dist=True`, without the other ranks' shards",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="no public code examined so far makes this mistake.",
)

_ALONE = "no_dist"


@dataclass(frozen=True, slots=True)
class SavedAlone:
    """A save of a rank's shards without the other ranks.

    Attributes:
        by_one: only some ranks save.
    """

    save: Call
    state: StateDict
    shard: Sharding
    by_one: bool


def saved_alone(program: Program) -> Iterator[SavedAlone]:
    """Yield saves of shards with ``no_dist=True`` to a folder that ranks share."""
    for trace in program.traces:
        for save in trace.calls(*SAVES):
            if _is_alone(save) and not _has_own_folder(save):
                state = next(_shards_in(save), None)
                shard = None if state is None else _shard(program, trace, save, state)
                if state is not None and shard is not None:
                    guarded = any(map(program.is_rank_test, save.site.guards))
                    yield SavedAlone(save, state, shard, guarded)


def _is_alone(save: Call) -> bool:
    given = save.argument(KEYWORD_ONLY, _ALONE)
    return isinstance(given, Const) and given.value is True


def _has_own_folder(save: Call) -> bool:
    """Whether each rank has, or may have, its own folder."""
    where = [save.arguments.keywords.get(k) for k in ("checkpoint_id", "storage_writer")]
    known = [value for value in where if value is not None]
    differs = taint_of(*(item for value in known for item in contained(value)))
    return save.arguments.open or not known or bool(differs & (Taint.RANK | Taint.OWN))


def _shards_in(save: Call) -> Iterator[StateDict]:
    value = save.argument(0, "state_dict")
    states = () if value is None else states_in(value)
    return (each for each in states if each.generation is Generation.FSDP2 and not each.escaped)


def _shard(program: Program, trace: Trace, save: Call, state: StateDict) -> Sharding | None:
    shard = unit_of(trace, state.owner, state.generation)
    return shard if shard is not None and program.together(save.site, shard.site) else None


def reports(program: Program) -> Iterator[Report]:
    for fact in saved_alone(program):
        site = fact.save.site
        assert isinstance(site.node, ir.Call)
        given = argument_of(site.node, KEYWORD_ONLY, _ALONE)
        span = program.span(site)
        if given is not None:
            span = Span(site.path, given.start, given.end)
        yield Report(
            span,
            f"with `{_ALONE}=True`, `{program.text(site.path, site.node.func)}` {_what(fact)}, and "
            "loading the checkpoint raises no error",
            "saves without the other ranks",
            (
                program.evidence(fact.state.source, "returns shards"),
                program.evidence(fact.shard.site, "sharded here"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _what(fact: SavedAlone) -> str:
    if fact.by_one:
        return "saves only this rank's shards: the others are lost"
    return "writes each rank's shards to the same files: only the last rank's survive"


def _fix(program: Program, fact: SavedAlone) -> Fix | Declined:
    if fact.by_one:
        return Declined(
            f"only some ranks reach this save, and without `{_ALONE}` it would hang; "
            "save on every rank by hand"
        )
    site = fact.save.site
    assert isinstance(site.node, ir.Call)
    title = "save together with the other ranks: drop `no_dist`"
    return drop_argument(Code.of(program.tree(site.path)), site.node, _ALONE, title)
