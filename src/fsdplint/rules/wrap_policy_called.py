from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.wrap_policies import called_policies, collections_as_policies
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def wrap_policy_called(program: Program) -> Iterator[Report]:
    for site in called_policies(program):
        assert isinstance(site.node, ir.Call)
        function = program.text(site.path, site.node.func)
        yield Report(
            program.span(site),
            f"`{function}` is called for each module by FSDP, which has to be given the function "
            "with its settings and not what it returns",
            "raises",
            program.conditions(site),
            partial(
                fixes.wrap_policy.bind_policy,
                fixes.code.Code.of(program.tree(site.path)),
                site.node,
            ),
        )
    for shard, policy in collections_as_policies(program):
        yield Report(
            program.span(shard.site),
            f"`auto_wrap_policy` is a {policy.kind}, which FSDP cannot call",
            "calls its policy for each module",
            program.conditions(shard.site),
            partial(
                fixes.wrap_policy.module_wrap_policy,
                fixes.code.Code.of(program.tree(shard.site.path)),
                shard.call,
            ),
        )
