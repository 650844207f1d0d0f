from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.unsharded import unsharded_captures
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.code import Code
from fsdplint.fixes.reshard import reshard_before
from fsdplint.rule import Report, rule


@rule(
    "FSD308",
    summary="an optimizer is built while an evaluation has left the root unsharded",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="optimizer",
)
def root_unsharded_after_eval(program: Program) -> Iterator[Report]:
    for fact in unsharded_captures(program):
        site, source = fact.build.site, fact.capture.source
        opened = fact.opened.site
        assert isinstance(source.node, ir.Call)
        what = "the model" if fact.whole else "what is in no unit but the root"
        yield Report(
            program.span(site),
            f"`{fact.build.label}` holds the unsharded parameters that "
            f"`{program.text(opened.path, opened.node)}` {program.where(opened, site)} left in the "
            f"root, so its steps do not change {what}",
            "holds the root's unsharded parameters",
            (
                program.evidence(fact.shard.site, "the root is sharded"),
                program.evidence(opened, "leaves the root unsharded: no backward follows"),
                program.evidence(source, "the parameters are taken"),
                *program.conditions(opened, site),
            ),
            partial(
                reshard_before,
                Code.of(program.tree(source.path)),
                source.node,
                site.node if site.path == source.path else None,
            ),
        )
