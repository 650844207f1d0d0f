from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.fsdp1_uses import Fsdp1Use, fsdp1_uses
from fsdplint.engine.must.classes import has_attribute
from fsdplint.engine.must.values import Instance, Known, Result, always, is_module
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.declined import Declined
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.knowledge.fsdp1 import FSDP1_STATICS, WRAPPERS
from fsdplint.knowledge.names import FSDP1
from fsdplint.rule import Report

_NO_FIX = {
    "isinstance": "what FSDP2 needs in that branch is not what FSDP1 needs",
    "set_state_dict_type": "each later `state_dict()` has to say by itself what it gathers",
    "summon_full_params": "FSDP2 gathers unit by unit with `unshard()` and `reshard()`, or "
    "parameter by parameter with `full_tensor()`",
}


def fsdp1_api_on_fsdp2_model(program: Program) -> Iterator[Report]:
    for fact in fsdp1_uses(program):
        site, shard = fact.site, fact.shard
        yield Report(
            program.span(site),
            _message(program, fact),
            _label(fact),
            (
                program.evidence(shard.site, "sharded by FSDP2 here"),
                *program.conditions(site, shard.site),
            ),
            partial(_fix, program, fact),
        )


def _message(program: Program, fact: Fsdp1Use) -> str:
    where = program.where(fact.shard.site, fact.site)
    sharder = program.text(fact.shard.site.path, fact.shard.call.func)
    if fact.name == "isinstance":
        return (
            f"`{program.text(fact.site.path, fact.node)}` is false for a model that `{sharder}` "
            f"shards {where}, so that nothing is done here"
        )
    last = fact.name.rpartition(".")[2]
    if fact.name in FSDP1_STATICS:
        return (
            f"FSDP1's `{last}` does not know a model that `{sharder}` shards {where}: it "
            f"{FSDP1_STATICS[fact.name][2]}"
        )
    return f"a model that `{sharder}` shards {where} has no `{last}`: only FSDP1 wraps it and has"


def _label(fact: Fsdp1Use) -> str:
    if fact.name == "isinstance":
        return "never true"
    return "without effect" if "does nothing" in _effect(fact) else "raises an error"


def _effect(fact: Fsdp1Use) -> str:
    return FSDP1_STATICS[fact.name][2] if fact.name in FSDP1_STATICS else ""


def _fix(program: Program, fact: Fsdp1Use) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.site.path))
    last = fact.name.rpartition(".")[2]
    if fact.name in WRAPPED:
        return fixes.fsdp1_uses.drop_wrapper(code, fact.node, _safety(program, fact))
    if any(program.is_rank_test(guard) for guard in fact.site.guards):
        return Declined("only some ranks come here, and FSDP2's way waits for all")
    if fact.name == "clip_grad_norm_":
        return fixes.fsdp1_uses.clip_by_torch(code, fact.node, fact.used, _safety(program, fact))
    if last == "state_dict_type":
        return fixes.fsdp1_uses.gather_by_options(code, fact.node)
    return Declined(_NO_FIX.get(last, "`torch.distributed.checkpoint.state_dict` has FSDP2's way"))


def _safety(program: Program, fact: Fsdp1Use) -> Safety:
    """Safe where the model has no such attribute or method whenever it is asked for."""
    read = fact.node.func if isinstance(fact.node, ir.Call) else fact.node
    if not isinstance(read, ir.Attribute):
        return Safety.UNSAFE
    at = program.tree(fact.site.path).statement(read)
    lacks = partial(_lacks, program, read.attr)
    sure = always(program, fact.site.path, read.value, at, lacks)
    return Safety.SAFE if sure else Safety.UNSAFE


def _lacks(program: Program, name: str, value: Known) -> bool:
    """Whether a value is a module of a class that has no attribute of FSDP1's wrapper."""
    if not is_module(program, value):
        return False
    if isinstance(value, Instance):
        return not has_attribute(program, value.cls, name)
    return isinstance(value, Result) and value.name not in (*WRAPPERS, FSDP1)
