from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.policies import Misfit, WrongPolicy, wrong_policies
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def fsdp1_policy_object(program: Program) -> Iterator[Report]:
    for fact in wrong_policies(program):
        site = fact.shard.site
        yield Report(
            program.span(fact.place),
            _message(program, fact),
            _label(fact),
            (program.evidence(site, "given here"), *program.conditions(site, fact.place)),
            partial(_fix, program, fact),
        )


def _is_silent(fact: WrongPolicy) -> bool:
    return fact.misfit is Misfit.CLASS or fact.argument.ignored


def _label(fact: WrongPolicy) -> str:
    if _is_silent(fact):
        return "is ignored"
    fsdp1 = fact.argument.generation == "FSDP1"
    return "fails when the model is wrapped" if fsdp1 else "fails in the forward pass"


def _message(program: Program, fact: WrongPolicy) -> str:
    text = f"`{program.text(fact.place.path, fact.place.node)}`"
    call = f"`{program.text(fact.shard.site.path, fact.shard.call.func)}`"
    own = f"`{fact.argument.own.rpartition('.')[2]}`"
    foreign = f"`{fact.argument.foreign.rpartition('.')[2]}`"
    said = {
        Misfit.FOREIGN: f"{call} takes a {own}, and is given the {foreign} of the other FSDP",
        Misfit.CLASS: f"{call} is given the class {text} and no object of it",
        Misfit.DTYPE: f"{call} takes a {own}, and is given the dtype {text}",
        Misfit.TEXT: f"`{fact.field}` of the {own} for {call} is text and no dtype",
        Misfit.NONE: f"{call} takes a {own} for `{fact.argument.keyword}`, and None is none",
        Misfit.VALUE: f"{call} takes a {own} for `{fact.argument.keyword}`, and is given {text}",
    }[fact.misfit]
    return f"{said}: {_consequence(fact)}"


def _consequence(fact: WrongPolicy) -> str:
    if not _is_silent(fact):
        return f"it {_label(fact)}"
    offloading = "offload" in fact.argument.keyword
    return "nothing is offloaded" if offloading else "nothing is cast"


def _fix(program: Program, fact: WrongPolicy) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.place.path))
    if fact.shared:
        return Declined("a model of the other FSDP takes the same object")
    if fact.misfit is Misfit.CLASS:
        return fixes.policy_objects.call_class(code, fact.place.node)
    if fact.misfit is Misfit.TEXT:
        return fixes.policy_objects.dtypes(code, fact.place.node)
    if fact.misfit is Misfit.NONE:
        return fixes.policy_objects.leave_out(code, fact.shard.call, fact.argument.keyword)
    return fixes.policy_objects.own_policy(code, fact.place.node, fact.argument)
