from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.pretrained_saves import PretrainedSave, pretrained_saves
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report


def save_without_gathered_state(program: Program) -> Iterator[Report]:
    for fact in pretrained_saves(program):
        site = fact.save.site
        assert isinstance(site.node, ir.Call)
        call = program.text(site.path, site.node.func)
        yield Report(
            program.span(site),
            f"`{call}` is not given a `state_dict`, and {_harm(fact)}",
            "takes the state by itself",
            _evidence(program, fact),
            partial(fixes.pretrained_save.pass_gathered_state, program, fact),
        )


def _harm(fact: PretrainedSave) -> str:
    if fact.generation is Generation.FSDP1:
        return "takes that of the module inside FSDP1: the root's weights are this rank's flat part"
    return "only some ranks call it, which cannot gather the shards of the others"


def _evidence(program: Program, fact: PretrainedSave) -> tuple[Evidence, ...]:
    unwrap = () if fact.unwrap is None else (program.evidence(fact.unwrap.site, "unwrapped"),)
    sharded = "accelerate shards it" if fact.prepared else "sharded"
    return (
        program.evidence(fact.sharded, sharded),
        *unwrap,
        *program.conditions(fact.save.site, fact.sharded),
    )
