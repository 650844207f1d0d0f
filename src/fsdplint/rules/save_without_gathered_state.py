"""Calls of Hugging Face's ``save_pretrained`` that take a sharded model's state themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import is_summoned, sharding_of
from fsdplint.engine.interpreter.accelerators import generation, plugin_of, prepares_sharded
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard, Site
from fsdplint.engine.interpreter.values import Const, Object, Value, class_names, contained
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.gather_state import (
    GatheredState,
    gather_state,
    local_tests,
    receiver,
    several_pass,
)
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD506",
    summary="`save_pretrained` is called on a sharded model without a gathered `state_dict`",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# Source: transformers 4.46, 4.57 and 5.23 (`modeling_utils.py`): without `state_dict`,
# `save_pretrained` takes `state_dict()` of the module that FSDP1 wraps, not of the wrapper.
_LIBRARIES = ("transformers.", "peft.")
# The ends of the names of classes in these libraries that have no weights, but the method, too.
_WITHOUT_WEIGHTS = ("Config", "FeatureExtractor", "Processor", "Tokenizer", "TokenizerFast")


@dataclass(frozen=True, slots=True)
class PretrainedSave:
    """A save without the gathered state.

    Attributes:
        sharded: the call that shards the model, or that makes accelerate shard it.
        generation: None if accelerate's settings decide it.
        guards: the tests before the save that only some ranks pass.
        unwrap: the call that takes the model out of accelerate's wrapper, if any.
        prepared: whether accelerate shards the model.
    """

    save: Call
    sharded: Site
    generation: Generation | None
    guards: tuple[Guard, ...]
    unwrap: Call | None = None
    prepared: bool = False


def pretrained_saves(program: Program) -> Iterator[PretrainedSave]:
    """Yield saves of only a part of the model, and saves that wait for ranks that do not save."""
    for trace in program.traces:
        for call in trace.calls("save_pretrained"):
            if takes_state(call) and isinstance(call.receiver, Object):
                fact = _raw(program, trace, call, call.receiver) or _prepared(program, trace, call)
                if fact is not None and program.together(call.site, fact.sharded):
                    yield fact


def takes_state(call: Call) -> bool:
    """True if a save gets no state, and takes that of the model by itself."""
    given = call.arguments.keywords.get("state_dict")
    by_itself = given is None or (isinstance(given, Const) and given.value is None)
    names = class_names(call.receiver.cls) if isinstance(call.receiver, Object) else ()
    if any(name.startswith(_LIBRARIES) and name.endswith(_WITHOUT_WEIGHTS) for name in names):
        return False
    return by_itself and not call.arguments.open and len(call.arguments.args) < 3


def of_hugging_face(model: Value) -> bool:
    """True if a model's class is one whose `save_pretrained` takes a `state_dict`."""
    names = class_names(model.cls) if isinstance(model, Object) else ()
    return any(name.startswith(_LIBRARIES) for name in names)


def _raw(program: Program, trace: Trace, call: Call, model: Object) -> PretrainedSave | None:
    if not of_hugging_face(model):
        return None
    guards = _guards(program, call)
    wrapped = sharding_of(trace, model, Generation.FSDP1)
    if wrapped is not None:
        of_root = wrapped.module is model and wrapped.time < call.time
        if of_root and wrapped.cuts_flat and not is_summoned(program, call.site):
            return PretrainedSave(call, wrapped.site, Generation.FSDP1, guards)
        return None
    shard = _sharded_by_all(trace, model, call)
    if shard is None or not guards or call.site.ranks() == EVERY_RANK:
        return None
    return PretrainedSave(call, shard.site, Generation.FSDP2, guards)


def _sharded_by_all(trace: Trace, model: Object, call: Call) -> Shard | None:
    shard = sharding_of(trace, model)
    early = shard is not None and shard.time < call.time
    return shard if early and shard is not None and shard.site.ranks() == EVERY_RANK else None


def _guards(program: Program, call: Call) -> tuple[Guard, ...]:
    return tuple(guard for guard in call.site.guards if program.is_rank_test(guard))


def _prepared(program: Program, trace: Trace, call: Call) -> PretrainedSave | None:
    """Return a save of a model that an accelerator with an FSDP plugin prepared."""
    unwraps = [each for each in trace.calls("unwrap_model") if each.result is call.receiver]
    unwrap = unwraps[-1] if unwraps else None
    model = unwrap.argument(0, "model") if unwrap is not None else call.receiver
    prepare = _prepared_with(trace, model, call.time)
    plugin = None if prepare is None else plugin_of(prepare.receiver)
    if prepare is None or plugin is None:
        return None
    guards = _guards(program, call)
    which = generation(plugin)
    known = which is Generation.FSDP1 and not is_summoned(program, call.site)
    if not known and not (guards and call.site.ranks() != EVERY_RANK):
        return None
    return PretrainedSave(call, prepare.site, which, guards, unwrap, prepared=True)


def _prepared_with(trace: Trace, model: Value | None, before: int) -> Call | None:
    """Return the ``accelerator.prepare(…)`` with ``model`` among its arguments."""
    for call in trace.calls("prepare", "prepare_model"):
        about = [*call.arguments.values(), call.result]
        given = [item for value in about for item in contained(value)]
        if call.time < before and prepares_sharded(call) and model in given:
            return call
    return None


def reports(program: Program) -> Iterator[Report]:
    for fact in pretrained_saves(program):
        site = fact.save.site
        assert isinstance(site.node, ir.Call)
        call = program.text(site.path, site.node.func)
        yield Report(
            program.span(site),
            f"`{call}` gets no gathered `state_dict`{_harm(fact)}",
            "no gathered `state_dict` passed",
            _evidence(program, fact),
            partial(pass_gathered_state, program, fact),
        )


def _harm(fact: PretrainedSave) -> str:
    if fact.generation is Generation.FSDP1:
        return (
            " and bypasses FSDP1's wrapper: the root's weights are saved as one rank's flat shard"
        )
    fsdp2 = fact.generation is Generation.FSDP2
    harm = "hangs or crashes" if fsdp2 else "hangs, crashes or saves one rank's shards"
    return f", and only some ranks call it: it {harm}"


def _evidence(program: Program, fact: PretrainedSave) -> tuple[Evidence, ...]:
    unwrap = () if fact.unwrap is None else (program.evidence(fact.unwrap.site, "unwrapped here"),)
    sharded = "sharded by accelerate" if fact.prepared else "sharded here"
    return (
        program.evidence(fact.sharded, sharded),
        *unwrap,
        *program.conditions(fact.save.site, fact.sharded),
    )


def pass_gathered_state(program: Program, fact: PretrainedSave) -> Fix | Declined:
    site, code = fact.save.site, Code.of(program.tree(fact.save.site.path))
    assert isinstance(site.node, ir.Call)
    saved = receiver(site.node)
    if saved is None:
        return Declined(
            "the saved model has no known name here; pass the gathered `state_dict` by hand"
        )
    state = _by_accelerate(code, fact, site.node) if fact.prepared else _by_torch(code, site, saved)
    if isinstance(state, Declined):
        return state
    if state.gather and not fact.guards:
        return _everywhere(code, site.node, state)
    local = local_tests(code, site, fact.guards)
    return gather_state(
        code,
        site.node,
        [state],
        local,
        several=several_pass(fact.guards),
        rank_zero=len(local) < len(fact.guards),
    )


def _by_torch(code: Code, site: Site, saved: ir.Expr) -> GatheredState:
    inner = isinstance(saved, ir.Attribute) and saved.attr in ("module", "_fsdp_wrapped_module")
    model = saved.value if inner and isinstance(saved, ir.Attribute) else saved
    assert isinstance(site.node, ir.Call)
    return GatheredState(site.node, code.slice(model), keyword="state_dict")


def _by_accelerate(code: Code, fact: PretrainedSave, call: ir.Call) -> GatheredState | Declined:
    """Return ``accelerator.get_state_dict(model)``, with the names of the call that unwraps it."""
    unwrap = fact.unwrap
    unnamed = (
        "the accelerator or its model has no known name here; pass "
        "`state_dict=accelerator.get_state_dict(model)` by hand"
    )
    if unwrap is None or unwrap.site.calls != fact.save.site.calls:
        return Declined(unnamed)
    node = unwrap.site.node
    accelerator = receiver(node)
    if not isinstance(node, ir.Call) or accelerator is None or not node.args:
        return Declined(unnamed)
    model = code.slice(node.args[0].value)
    gather = f"{code.slice(accelerator)}.get_state_dict({model})"
    return GatheredState(call, model, keyword="state_dict", gather=gather)


@builder
def _everywhere(code: Code, call: ir.Call, state: GatheredState) -> Fix:
    """Gather in the arguments of a save that every rank calls, and have one rank write."""
    given = {argument.keyword for argument in call.args}
    accelerator = state.gather.rpartition(".get_state_dict(")[0]
    added = [f"state_dict={state.gather}"]
    if "is_main_process" not in given:
        added.insert(0, f"is_main_process={accelerator}.is_main_process")
    if any(argument.star for argument in call.args):
        raise NoFixError(
            f"`{code.short(call.func)}` gets unpacked arguments; pass the gathered `state_dict` by "
            "hand"
        )
    title = "gather the full state on every rank and write it on one"
    edits = (add_argument(code, call, ", ".join(added)),)
    return Fix(title, Safety.UNSAFE, edits)
