from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.hooks import SkippedHooks, skipped_hooks
from fsdplint.engine.must.classes import any_overrides
from fsdplint.engine.must.files import mentions
from fsdplint.engine.must.values import always, is_module
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.finding import Evidence, Fix, Safety
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report

_HOOKS = r"register_(?:module_)?(?:full_)?(?:forward|backward)\w*hook"


def direct_forward(program: Program) -> Iterator[Report]:
    for fact in skipped_hooks(program):
        source = fact.forward.source
        text = program.text(source.path, source.node)
        module = text.removesuffix(".forward")
        where = program.where(fact.shard.site, source)
        yield Report(
            program.span(source),
            f"`{text}` skips the hooks that all-gather the parameters of `{module}`, "
            f"which `fully_shard` shards {where}",
            "runs on the local shards",
            _evidence(program, fact),
            partial(_fix, program, source),
        )


def _evidence(program: Program, fact: SkippedHooks) -> tuple[Evidence, ...]:
    source, call = fact.forward.source, fact.forward.site
    apart = source.path != call.path or not call.node.start <= source.node.start < call.node.end
    return (
        program.evidence(fact.shard.site, "sharded here"),
        *([program.evidence(call, "called here")] if apart else []),
        *program.conditions(fact.shard.site),
    )


def _fix(program: Program, source: Site) -> Fix | Declined:
    if not isinstance(source.node, ir.Attribute):
        return Declined("`forward` is looked up by name")
    code = fixes.code.Code.of(program.tree(source.path))
    safety = Safety.SAFE if _is_always_module(program, source) else Safety.UNSAFE
    return fixes.forward.call_module(code, source.node, safety)


def _is_always_module(program: Program, source: Site) -> bool:
    """Whether calling the receiver runs its ``forward``, whatever the receiver is there."""
    assert isinstance(source.node, ir.Attribute)
    at = program.tree(source.path).statement(source.node)
    plain = partial(is_module, program)
    is_one = always(program, source.path, source.node.value, at, plain)
    # A hook of the program's own would run now, also where nothing is sharded.
    hooked = mentions(program, _HOOKS, "register_")
    return is_one and not hooked and not any_overrides(program, "__call__")
