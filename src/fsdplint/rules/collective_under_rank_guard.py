from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import MissedCollective, missed_collectives
from fsdplint.engine.program import Program
from fsdplint.engine.site import EVERY_RANK, Guard, Site
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def collective_under_rank_guard(program: Program) -> Iterator[Report]:
    facts = list(missed_collectives(program))
    for fact in facts:
        site = fact.collective.call.site
        who, effect = _outcome(fact)
        yield Report(
            program.span(site),
            f"`{_called(program, site)}` needs every rank, but {who} gets here, and {effect}",
            "the other ranks never call this",
            _evidence(program, fact),
            partial(_fix, program, fact, facts),
        )


def _called(program: Program, site: Site) -> str:
    node = site.node
    function = node.func if isinstance(node, ir.Call) else node
    return f"{program.text(site.path, function)}()"


def _outcome(fact: MissedCollective) -> tuple[str, str]:
    ranks = fact.collective.ranks
    if len(ranks) == 1:
        return f"only rank {min(ranks)}", "waits for the others until it times out"
    missing = fact.collective.participants - ranks
    if len(missing) == 1:
        return f"every rank but {min(missing)}", "waits for it until the timeout"
    return "not each of them", "those that do wait for the others until they time out"


def _evidence(program: Program, fact: MissedCollective) -> tuple[Evidence, ...]:
    tests = [_test(program, guard) for guard in fact.guards]
    called = [program.evidence(Site(path, node), "called here") for path, node in fact.chain[:-1]]
    shard = fact.collective.shard
    return (
        *tests,
        *called,
        program.evidence(shard.site, "the model is sharded here"),
        *program.conditions(shard.site),
    )


def _test(program: Program, guard: Guard) -> Evidence:
    ranks = sorted(guard.ranks)
    missing = sorted(EVERY_RANK - guard.ranks)
    who = "only some ranks get"
    if len(ranks) == 1:
        who = f"only rank {ranks[0]} gets"
    elif len(missing) == 1:
        who = f"every rank but {missing[0]} gets"
    place = "past this test" if guard.early else "into this branch"
    return program.evidence(Site(guard.path, guard.test), f"{who} {place}")


def _fix(
    program: Program, fact: MissedCollective, facts: Sequence[MissedCollective]
) -> Fix | Declined:
    guard, (path, node) = fact.guards[0], fact.chain[0]
    if len(fact.guards) > 1:
        return Declined("several tests keep ranks away from it")
    code = fixes.code.Code.of(program.tree(path))
    if guard.path != path or code.function(guard.test) is not code.function(node):
        return Declined("the test and the call stand in functions that share no caller")
    if not isinstance(node, ir.Call):
        return Declined("the function is called by a library or a decorator")
    own = len(fact.chain) == 1
    if not own and fixes.every_rank.is_given(code, node):
        return Declined(f"`{code.short(guard.test)}` is asked for whatever function is given here")
    if fact.writes:
        return Declined(f"`{code.short(node.func)}` writes files too, which every rank would do")
    name = fact.collective.call.name
    barrier = name == "torch.distributed.barrier"
    others = [other.chain[0][1] for other in facts if other.guards[0].test is guard.test]
    result = fixes.every_rank.result_name(name) if own else "result"
    guarded = fixes.every_rank.Guarded(
        node, guard.test, guard.telling, tuple(others), guard.early, result, barrier
    )
    return fixes.every_rank.call_on_every_rank(code, guarded)
