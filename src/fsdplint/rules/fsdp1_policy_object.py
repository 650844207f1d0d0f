"""Policies that a sharding call cannot use, made ones that it can."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.policies import Misfit, WrongPolicy, wrong_policies
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.policies import meaning, precision_policy, unused
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.policies import (
    COPIES_POLICY,
    CPU_OFFLOAD,
    CPU_OFFLOAD_POLICY,
    MIXED_PRECISION,
    MIXED_PRECISION_POLICY,
    PolicyArgument,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD401",
    summary="a sharding call gets a policy object of the other FSDP or of the wrong type",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in wrong_policies(program):
        site = fact.shard.site
        yield Report(
            program.span(fact.place),
            _message(program, fact),
            _label(program, fact),
            (program.evidence(site, "passed here"), *program.conditions(site, fact.place)),
            partial(_fix, program, fact),
        )


def _is_silent(program: Program, fact: WrongPolicy) -> bool:
    copied = fact.argument.own == MIXED_PRECISION_POLICY and program.torch.is_from(COPIES_POLICY)
    return fact.argument.ignored or (fact.misfit is Misfit.CLASS and not copied)


def _label(program: Program, fact: WrongPolicy) -> str:
    if _is_silent(program, fact):
        return "is ignored"
    if fact.argument.generation == Generation.FSDP1.value:
        return "fails when the model is wrapped"
    if program.torch.is_from(COPIES_POLICY):
        return "fails when the model is sharded"
    return "fails in the forward pass"


def _message(program: Program, fact: WrongPolicy) -> str:
    text = f"`{program.text(fact.place.path, fact.place.node)}`"
    call = f"`{program.text(fact.shard.site.path, fact.shard.call.func)}`"
    own = f"`{fact.argument.own.rpartition('.')[2]}`"
    foreign = f"`{fact.argument.foreign.rpartition('.')[2]}`"
    said = {
        Misfit.FOREIGN: f"{call} needs a {own} but gets the other FSDP's {foreign}",
        Misfit.CLASS: f"{call} gets the class {text} instead of an instance",
        Misfit.DTYPE: f"{call} needs a {own} but gets the dtype {text}",
        Misfit.VALUE: f"{call} needs a {own} for `{fact.argument.keyword}` but gets {text}",
    }[fact.misfit]
    return f"{said}: {_consequence(program, fact)}"


def _consequence(program: Program, fact: WrongPolicy) -> str:
    if not _is_silent(program, fact):
        return f"it {_label(program, fact)}"
    offloading = "offload" in fact.argument.keyword
    return "nothing is offloaded" if offloading else "nothing is cast"


def _fix(program: Program, fact: WrongPolicy) -> Fix | Declined:
    code = Code.of(program.tree(fact.place.path))
    if fact.shared:
        return Declined("a model of the other FSDP uses the same object; create one for each")
    made = isinstance(fact.place.node, ir.Call)
    if fact.argument.own in _PRECISION and not made and fact.misfit is not Misfit.DTYPE:
        own = fact.argument.own.rpartition(".")[2]
        return Declined(
            f"the argument is not a policy object; create a `{own}` with your dtypes by hand"
        )
    if fact.misfit is Misfit.CLASS:
        return call_class(code, fact.place.node)
    return own_policy(code, fact.place.node, fact.argument)


_MADE = {
    CPU_OFFLOAD: "(offload_params=True)",
    CPU_OFFLOAD_POLICY: "()",
    MIXED_PRECISION: "(param_dtype={})",
    MIXED_PRECISION_POLICY: "(param_dtype={})",
}
_PRECISION = (MIXED_PRECISION, MIXED_PRECISION_POLICY)


@builder
def own_policy(code: Code, made: ir.Node, argument: PolicyArgument) -> Fix:
    """Makes the policy by the class that the call takes.

    Args:
        made: the call that makes it of the other class, or a dtype or flag in its place.
    """
    if not isinstance(made, (ir.Call, ir.Attribute, ir.Name, ir.Constant)):
        raise NoFixError(f"`{code.short(made)}` has arguments that the policy does not take")
    imports = Imports(code, made)
    if argument.own == MIXED_PRECISION_POLICY and isinstance(made, ir.Call):
        edits = precision_policy(code, made, imports)
    else:
        edits = [code.edit(made.start, made.end, _policy(code, made, argument, imports))]
    edits += imports.edits()
    edits += unused(code, [made], edits)
    title = f"use `{argument.own.rpartition('.')[2]}`"
    return Fix(title, Safety.UNSAFE, tuple(edits))


def _policy(code: Code, made: ir.Expr, argument: PolicyArgument, imports: Imports) -> str:
    name = imports.name(*argument.own.rsplit(".", 1))
    suffix = _MADE[argument.own]
    if argument.own not in _PRECISION:
        return name + suffix
    if isinstance(made, ir.Call):
        return f"{name}({', '.join(map(code.slice, _portable(code, made)))})"
    return name + suffix.format(code.slice(made))


def _portable(code: Code, made: ir.Call) -> list[ir.Argument]:
    """The arguments of a `MixedPrecisionPolicy` that `MixedPrecision` has as well."""
    for index, argument in enumerate(made.args):
        shared = argument.keyword in ("param_dtype", "reduce_dtype")
        if argument.star or not (shared or (argument.keyword is None and index < 2)):
            raise NoFixError(f"FSDP1 has nothing like `{code.short(argument)}`")
    return list(made.args)


@builder
def call_class(code: Code, given: ir.Node) -> Fix:
    """``CPUOffloadPolicy`` to ``CPUOffloadPolicy()``, which offloads."""
    if not isinstance(given, (ir.Name, ir.Attribute)):
        raise NoFixError("the class is chosen elsewhere; pass an instance there")
    name = meaning(code, given)
    if name not in (CPU_OFFLOAD_POLICY, CPU_OFFLOAD):
        raise NoFixError(f"`{code.short(given)}` is another name of the class; pass an instance")
    edit = code.edit(given.end, given.end, _MADE[name])
    return Fix("create an instance of the class", Safety.UNSAFE, (edit,))
