"""Wrap policies that FSDP1 cannot call: called too early, or not callable."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Arguments, Object, Sequence, Value, class_names
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import MODULE_WRAP_POLICY, POLICY_ARGUMENTS, POLICY_FUNCTIONS, WRAP
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD210",
    summary="a wrap policy is called too early, or is not callable",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


_POLICY = (4, "auto_wrap_policy")


def called_policies(program: Program) -> Iterator[Site]:
    """Yield calls of a policy function without the arguments that FSDP passes."""
    for site in _partial_calls(program):
        if not _is_tried(program, site):
            yield site


def _partial_calls(program: Program) -> Iterator[Site]:
    for trace in program.traces:
        calls = trace.calls(*POLICY_FUNCTIONS)
        yield from (c.site for c in calls if not c.arguments.open and _is_partial(c.arguments))
        reached = {call.site.node for call in calls}
        for _, policy in _policies(trace):
            if not isinstance(policy, Object) or policy.site is None:
                continue
            given = Arguments(list(policy.args), policy.keywords)
            of_policy = not class_names(policy.cls).isdisjoint(POLICY_FUNCTIONS)
            if of_policy and policy.site.node not in reached and _is_partial(given):
                yield policy.site  # an imported module calls it


def _is_partial(given: Arguments) -> bool:
    """True if a call lacks an argument that FSDP passes to a policy."""
    return any(given.get(at, name) is None for at, name in enumerate(POLICY_ARGUMENTS))


def collections_as_policies(program: Program) -> Iterator[tuple[Shard, Sequence]]:
    """Yield FSDP1 calls whose policy is a list, a tuple or a set, perhaps of classes."""
    for trace in program.traces:
        for shard, policy in _policies(trace):
            if isinstance(policy, Sequence) and not _is_tried(program, shard.site):
                yield shard, policy


def _is_tried(program: Program, site: Site) -> bool:
    """True if the code expects the TypeError; a handler of any exception does not."""
    return is_caught(program, site, "TypeError", named=True)


def _policies(trace: Trace) -> Iterator[tuple[Shard, Value]]:
    """Yield FSDP1 calls with the policy that they get."""
    position, keyword = _POLICY
    for shard in trace.of(Shard):
        if shard.generation is Generation.FSDP1:
            policy = shard.keywords.get(keyword)
            if policy is None and len(shard.positional) > position:
                policy = shard.positional[position]
            if policy is not None:
                yield shard, policy


def reports(program: Program) -> Iterator[Report]:
    for site in called_policies(program):
        assert isinstance(site.node, ir.Call)
        function = program.text(site.path, site.node.func)
        yield Report(
            program.span(site),
            f"`{function}` is called here, without the arguments that FSDP passes to a policy for "
            "each module: the call crashes",
            "lacks arguments that only FSDP has",
            program.conditions(site),
            partial(
                bind_policy,
                Code.of(program.tree(site.path)),
                site.node,
            ),
        )
    for shard, policy in collections_as_policies(program):
        yield Report(
            program.span(shard.site),
            f"`auto_wrap_policy` is a {policy.kind}, not a function: FSDP crashes when it calls "
            "its policy for the first module",
            "the policy must be callable",
            program.conditions(shard.site),
            partial(
                module_wrap_policy,
                Code.of(program.tree(shard.site.path)),
                shard.call,
            ),
        )


# The policy functions' settings; a single positional argument is taken for it.
_SETTINGS = {
    "size_based_auto_wrap_policy": "min_num_params",
    "transformer_auto_wrap_policy": "transformer_layer_cls",
    "lambda_auto_wrap_policy": "lambda_fn",
}


@builder
def bind_policy(code: Code, call: ir.Call) -> Fix:
    """Bind the settings that ``call`` passes to a policy function with ``functools.partial``."""
    plain = [argument for argument in call.args if argument.keyword is None]
    setting = _SETTINGS.get(code.slice(call.func).rpartition(".")[2])
    if setting is None or len(plain) > 1 or any(argument.star for argument in call.args):
        raise NoFixError(
            f"`{code.short(call)}` does not name its settings; bind them with `functools.partial` "
            "by hand"
        )
    imports = Imports(code, call)
    partial = imports.name("functools", "partial")
    given = [f"{setting}={code.slice(a)}" if a in plain else code.slice(a) for a in call.args]
    text = f"{partial}({', '.join([code.slice(call.func), *given])})"
    edits = (code.edit(call.start, call.end, text), *imports.edits())
    return Fix("bind the policy's settings with `functools.partial`", Safety.SAFE, edits)


@builder
def module_wrap_policy(code: Code, call: ir.Call) -> Fix:
    """Replace a collection of classes by a `ModuleWrapPolicy` of them."""
    given = next((a for a in call.args if a.keyword == "auto_wrap_policy"), None)
    if given is None or not isinstance(given.value, ir.Collection):
        raise NoFixError(
            f"`{code.short(call)}` does not list the classes; pass `ModuleWrapPolicy(classes)` by "
            "hand"
        )
    imports = Imports(code, call)
    policy = imports.name(WRAP, MODULE_WRAP_POLICY)
    inner = code.slice(given.value)
    edits = (code.edit(given.value.start, given.value.end, f"{policy}({inner})"), *imports.edits())
    return Fix("pass the classes in a `ModuleWrapPolicy`", Safety.SAFE, edits)
