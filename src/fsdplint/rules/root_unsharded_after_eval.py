from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.unsharded import unsharded_captures
from fsdplint.engine.facts.unsharded_uses import Effect, unsharded_uses
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def root_unsharded_after_eval(program: Program) -> Iterator[Report]:
    yield from _captures(program)
    yield from _uses(program)


def _captures(program: Program) -> Iterator[Report]:
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
                fixes.reshard.reshard_before,
                fixes.code.Code.of(program.tree(source.path)),
                source.node,
                site.node if site.path == source.path else None,
            ),
        )


_CONSEQUENCES = {
    Effect.LOST: ("reaches", "its shards stay as they are", "changes what is dropped next"),
    Effect.STALE: ("passes by", "the next forward still computes with these", "changes the shards"),
    Effect.REFUSED: ("stops at", "it needs the shards", "finds no shards in the root"),
}


def _uses(program: Program) -> Iterator[Report]:
    for fact in unsharded_uses(program):
        site, opened = fact.site, fact.opened.site
        verb, consequence, label = _CONSEQUENCES[fact.effect]
        used = site.node.func if isinstance(site.node, ir.Call) else site.node
        yield Report(
            program.span(site),
            f"`{program.text(site.path, used)}` {verb} the unsharded parameters that "
            f"`{program.text(opened.path, opened.node)}` {program.where(opened, site)} left in the "
            f"root: {consequence}",
            label,
            (
                program.evidence(fact.shard.site, "the root is sharded"),
                program.evidence(opened, "leaves the root unsharded: no backward follows"),
                *program.conditions(opened, site),
            ),
            partial(
                fixes.reshard.reshard_before_use,
                fixes.code.Code.of(program.tree(site.path)),
                fact.model,
                site.node,
            ),
        )
