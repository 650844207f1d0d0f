from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.inference import InferenceFirst, inference_first
from fsdplint.engine.program import Program
from fsdplint.finding import Safety
from fsdplint.rule import Report

# What comes out otherwise under `no_grad`.
_ASKS = ("enable_grad", "set_grad_enabled", "is_inference")


def inference_mode_forward(program: Program) -> Iterator[Report]:
    for fact in inference_first(program):
        mode, first, later = fact.mode, fact.first.site, fact.later.site
        wrap = program.text(fact.shard.site.path, fact.shard.call.func)
        yield Report(
            program.span(mode),
            f"the first forward since `{wrap}` {program.where(fact.shard.site, mode)} is made in "
            "inference mode, which makes inference tensors of the parameters it gathers: "
            f"`{program.text(later.path, later.node)}` {program.where(later, mode)} cannot use "
            "them",
            "the next forward outside of it fails",
            (
                program.evidence(first, "the first forward"),
                program.evidence(later, "raises an exception"),
                *program.conditions(first, fact.shard.site),
            ),
            partial(
                fixes.no_grad.to_no_grad,
                fixes.code.Code.of(program.tree(mode.path)),
                mode.node,
                _safety(program, fact),
            ),
        )


def _safety(program: Program, fact: InferenceFirst) -> Safety:
    """Unsafe where a run may show the mode: it asks for it, or does not shard."""
    asked = any(word in unit.text for unit in program.units for word in _ASKS)
    apart = program.sometimes_without(fact.mode, fact.shard.site)
    return Safety.UNSAFE if asked or apart else Safety.SAFE
