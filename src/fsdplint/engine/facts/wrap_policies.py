"""Wrap policies that FSDP1 cannot call: called too early, or no functions."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.events import Shard, Trace
from fsdplint.engine.facts.caught import is_caught
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Arguments, Object, Sequence, Value, class_names
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import POLICY_ARGUMENTS, POLICY_FUNCTIONS

_POLICY = (4, "auto_wrap_policy")


def called_policies(program: Program) -> Iterator[Site]:
    """Calls of a policy function without what FSDP would give it."""
    for site in _partial_calls(program):
        if not is_caught(program, site, "TypeError"):
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
    """Whether a call lacks some of what FSDP calls a policy with."""
    return any(given.get(at, name) is None for at, name in enumerate(POLICY_ARGUMENTS))


def collections_as_policies(program: Program) -> Iterator[tuple[Shard, Sequence]]:
    """FSDP1 calls whose policy is a list, a tuple or a set, perhaps of classes."""
    for trace in program.traces:
        for shard, policy in _policies(trace):
            if isinstance(policy, Sequence) and not is_caught(program, shard.site, "TypeError"):
                yield shard, policy


def _policies(trace: Trace) -> Iterator[tuple[Shard, Value]]:
    """FSDP1's calls that are given a policy, with it."""
    position, keyword = _POLICY
    for shard in trace.of(Shard):
        if shard.generation is Generation.FSDP1:
            policy = shard.keywords.get(keyword)
            if policy is None and len(shard.positional) > position:
                policy = shard.positional[position]
            if policy is not None:
                yield shard, policy
