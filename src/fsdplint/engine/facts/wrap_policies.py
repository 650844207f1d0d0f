"""Wrap policies that FSDP1 cannot call: called too early, or no functions."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.events import Shard, Trace
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Object, Sequence, Value, class_names
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import POLICY_ARGUMENTS, POLICY_FUNCTIONS

_POLICY = (4, "auto_wrap_policy")


def called_policies(program: Program) -> Iterator[Site]:
    """Calls of a policy function without what FSDP would give it, or whose result FSDP gets."""
    for trace in program.traces:
        for call in trace.calls(*POLICY_FUNCTIONS):
            given = call.arguments
            missing = [
                name for at, name in enumerate(POLICY_ARGUMENTS) if given.get(at, name) is None
            ]
            if missing and not given.open:
                yield call.site
        for _, policy in _policies(trace):
            made = policy if isinstance(policy, Object) else None
            if made is not None and made.site and class_names(made.cls) & {*POLICY_FUNCTIONS}:
                yield made.site


def collections_as_policies(program: Program) -> Iterator[tuple[Shard, Sequence]]:
    """FSDP1 calls whose policy is a list, a tuple or a set, perhaps of classes."""
    for trace in program.traces:
        for shard, policy in _policies(trace):
            if isinstance(policy, Sequence):
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
