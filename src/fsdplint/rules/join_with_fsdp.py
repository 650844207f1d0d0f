from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.joins import Trouble, WrongJoin, wrong_joins
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.finding import Evidence, Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def join_with_fsdp(program: Program) -> Iterator[Report]:
    for fact in wrong_joins(program):
        site, shard = fact.call.site, fact.shard
        message, label = _said(program, fact)
        sites = [site] if shard is None else [site, shard.site]
        yield Report(
            Span(site.path, fact.node.start, fact.node.end),
            message,
            label,
            (*_evidence(program, fact), *program.conditions(*sites)),
            partial(_fix, program, fact),
        )


def _said(program: Program, fact: WrongJoin) -> tuple[str, str]:
    """The message, and the label of the place."""
    text = program.text(fact.call.site.path, fact.node)
    if fact.trouble is Trouble.EMPTY:
        return "`Join` is given nothing to join", "nothing"
    if fact.trouble is Trouble.LOOSE:
        return f"`Join` takes a list of what it joins, and `{text}` is none", "is no list"
    if fact.trouble is Trouble.GROUPS:
        return (
            f"`{text}` has another process group than what stands before it in the list, and "
            "`Join` raises: it counts the ranks that still train in one group"
        ), "is in another process group"
    hook = "has no `join_hook`"
    if fact.shard is None:
        return f"`Join` asks `{text}` for its `join_hook`, which no `{fact.name}` has", hook
    return (
        f"`Join` asks `{text}` for its `join_hook`, which {fact.shard.generation.value} does "
        "not have: a rank that is out of batches cannot stand in for its collectives"
    ), hook


def _evidence(program: Program, fact: WrongJoin) -> Iterator[Evidence]:
    if fact.shard is not None:
        yield program.evidence(fact.shard.site, "is sharded here")
    for made in fact.made:
        note = "has the group of all ranks" if made.group is None else "has a group of its own"
        yield program.evidence(Site(made.path, made.call), note)


def _fix(program: Program, fact: WrongJoin) -> Fix | Declined:
    code = fixes.code.Code.of(program.tree(fact.call.site.path))
    if fact.trouble is Trouble.LOOSE:
        return fixes.join.as_list(code, fact.node)
    if fact.trouble is not Trouble.GROUPS:
        alone = fact.trouble is Trouble.EMPTY
        return fixes.join.without_join(code, fact.call.site.node, None if alone else fact.node)
    models = [each for each in fact.made if each.replicas]
    others = [each for each in fact.made if not each.replicas]
    if len(models) != 1 or len(others) != 1:
        return Declined("which of the two process groups is meant is not known")
    if models[0].path != others[0].path:
        return Declined("the two are built in different files")
    return fixes.join.same_group(
        fixes.code.Code.of(program.tree(models[0].path)), models[0].call, others[0].call
    )
