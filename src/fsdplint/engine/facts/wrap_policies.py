"""Wrap policies that FSDP1 cannot call: called too early, or no functions."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.events import Call, Shard
from fsdplint.engine.program import Program
from fsdplint.engine.values import Sequence
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import POLICY_ARGUMENTS, POLICY_FUNCTIONS

_POLICY = (4, "auto_wrap_policy")


def called_policies(program: Program) -> Iterator[Call]:
    """Calls of a policy function without what FSDP would give it."""
    for trace in program.traces:
        for call in trace.calls(*POLICY_FUNCTIONS):
            given = call.arguments
            missing = [
                name for at, name in enumerate(POLICY_ARGUMENTS) if given.get(at, name) is None
            ]
            if missing and not given.open:
                yield call


def collections_as_policies(program: Program) -> Iterator[tuple[Shard, Sequence]]:
    """FSDP1 calls whose policy is a list, a tuple or a set, perhaps of classes."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.generation is Generation.FSDP1:
                position, keyword = _POLICY
                policy = shard.keywords.get(keyword)
                if policy is None and len(shard.positional) > position:
                    policy = shard.positional[position]
                if isinstance(policy, Sequence):
                    yield shard, policy
