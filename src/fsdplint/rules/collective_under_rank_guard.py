"""A finding is a collective that fewer ranks reach than take part in it.

The guards of a place say which ranks get there. It is no finding if the ranks that are missing make
a call of the same kind elsewhere, or run code that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import Collective, collectives
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.sharding import is_summoned
from fsdplint.engine.interpreter.events import Call, PlainWrite, Trace
from fsdplint.engine.interpreter.frameworks import settings_of
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard, Site
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.every_rank import Guarded, call_on_every_rank, result_name
from fsdplint.knowledge import collectives as known
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.suspicious_words import means_rank_count
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD601",
    summary="only some ranks reach a collective, so the job hangs",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="collectives",
)


def is_given(program: Program, site: Site, guard: Guard) -> bool:
    """Whether a branch is for a parameter that is None, and the call that leads there gives it.

    What it gives is not known, or the branch were decided.
    """
    tree = program.tree(guard.path)
    name, function = _left_out(guard), tree.function(guard.test)
    names = [] if function is None else [each.name for each in function.parameters]
    if function is None or name not in names or not _is_optional(function, name):
        return False
    frames = site.frames()
    for (_, call), (path, node) in pairwise(frames):
        if path == guard.path and tree.function(node) is function:
            return argument(call, names.index(name) - _is_bound(names), name) is not None
    return False


def _left_out(guard: Guard) -> str:
    """The variable that a branch finds to be None or empty, "" for any other branch."""
    test, absent = guard.test, not guard.taken
    if isinstance(test, ir.Compare) and test.op in ("Is", "IsNot", "Equal", "NotEqual"):
        none = isinstance(test.right, ir.Constant) and test.right.value is None
        absent = none and guard.taken is (test.op in ("Is", "Equal"))
        test = test.left
    return test.id if absent and isinstance(test, ir.Name) else ""


def _is_optional(function: ir.Function, name: str) -> bool:
    defaults = (each.default for each in function.parameters if each.name == name)
    return any(isinstance(each, ir.Constant) and each.value is None for each in defaults)


def _is_bound(names: list[str]) -> bool:
    return names[:1] in (["self"], ["cls"])


@dataclass(frozen=True, slots=True)
class MissedCollective:
    """A collective that some of its ranks surely do not reach, and nothing makes up for it.

    Attributes:
        guards: the branches that keep them away, outermost first.
        chain: from the function of the first guard to the collective, one node per function.
        writes: what the function of the first guard calls there writes files, by the same ranks.
    """

    collective: Collective
    guards: tuple[Guard, ...]
    chain: tuple[tuple[str, ir.Node], ...]
    writes: bool


def missed_collectives(program: Program) -> Iterator[MissedCollective]:
    """For every branch by the rank, the first collective that each call below it leads to."""
    for trace in program.traces:
        seen: set[tuple[ir.Node, ir.Node]] = set()
        for collective in _unmatched(trace):
            fact = _missed(program, trace, collective)
            place = (fact.guards[0].test, fact.chain[0][1])
            site = collective.call.site
            unsure = any(_is_unsure(program, site, guard) for guard in site.guards)
            unsure = unsure or _is_whole(program, collective)
            unsure = unsure or collective.call.destroyed  # it raises, and nobody waits
            if place not in seen and not unsure and program.together(site, collective.shard.site):
                seen.add(place)
                yield fact


def _is_unsure(program: Program, site: Site, guard: Guard) -> bool:
    return _runs_alone(program, guard) or is_given(program, site, guard)


def _is_whole(program: Program, collective: Collective) -> bool:
    """Whether FSDP1 has gathered the model already, for a ``with FSDP.summon_full_params(…)``."""
    call, shard = collective.call, collective.shard
    flat = not isinstance(shard, Call) and shard.generation is Generation.FSDP1
    return flat and call.receiver is not None and is_summoned(program, call.site)


def _missed(program: Program, trace: Trace, collective: Collective) -> MissedCollective:
    site = collective.call.site
    guards = tuple(g for g in site.guards if not g.ranks >= collective.participants)
    frames = site.frames()
    first = guards[0]
    function = program.tree(first.path).function(first.test)
    start = len(frames) - 1
    for index, (path, node) in enumerate(frames):
        if path == first.path and program.tree(path).function(node) is function:
            start = index
    writes = any(_writes_below(event, frames[start], first) for event in trace.of(PlainWrite))
    return MissedCollective(collective, guards, frames[start:], writes)


def _writes_below(write: PlainWrite, call: tuple[str, ir.Node], guard: Guard) -> bool:
    """Whether a file is written below a call with no test of the rank but this one."""
    tests = {each.test for each in write.site.guards if each.ranks != EVERY_RANK}
    return call in write.site.calls and tests <= {guard.test}


# Which ranks


def _unmatched(trace: Trace) -> list[Collective]:
    """The collectives that some ranks skip and that no call by those very ranks answers."""
    partial: dict[str, list[Collective]] = {}
    every = list(collectives(trace))
    for collective in every:
        if collective.ranks and collective.ranks < collective.participants:
            partial.setdefault(collective.call.name, []).append(collective)
    left = [one for alike in partial.values() for one in _without_pairs(alike)]
    left = [one for one in left if not any(_is_answered(one, other) for other in every)]
    left = [one for one in left if not _may_be_answered(trace, one)]
    return sorted(left, key=lambda one: one.call.time)


def _without_pairs(alike: list[Collective]) -> list[Collective]:
    """Those left when calls of one kind that together are made by every rank are taken out."""
    left = list(alike)
    for one in alike:
        if one not in left:
            continue
        group, missing = [one], one.participants - one.ranks
        for other in left:
            if other.participants == one.participants and other.ranks <= missing:
                group.append(other)
                missing -= other.ranks
        if not missing:
            left = [each for each in left if each not in group]
    return left


def _is_answered(one: Collective, other: Collective) -> bool:
    """Whether the ranks that are missing make the same call in the other arm of the same test.

    Nothing else may keep them from it. There may be more of them: a test like `enabled and rank ==
    0` may send all ranks there.
    """
    if other.call.name != one.call.name or not one.participants - one.ranks <= other.ranks:
        return False
    taken = {guard.key: guard.taken for guard in one.call.site.guards}
    theirs = [guard for guard in other.call.site.guards if taken.get(guard.key) != guard.taken]
    return len(theirs) == 1 and theirs[0].key in taken


def _may_be_answered(trace: Trace, one: Collective) -> bool:
    """Whether the ranks that are missing run code that is not known, or not to its end.

    A barrier may be met anywhere; what belongs to a model, in the other arm of the same test.
    """
    missing = one.participants - one.ranks
    tests = {guard.test for guard in one.call.site.guards if guard.ranks != EVERY_RANK}
    anywhere = one.call.name in known.C10D_CALLS
    for escape in trace.escapes:
        ranks = escape.site.ranks() & one.participants
        other_arm = any(guard.test in tests for guard in escape.site.guards)
        if ranks and ranks <= missing and (anywhere or other_arm):
            return True
    return anywhere and not trace.complete


def _runs_alone(program: Program, guard: Guard) -> bool:
    """Whether a branch may be the one of a run of one process: ``world_size == 1``."""
    key, one = guard.key, ("const", "int", 1)
    if not (isinstance(key, tuple) and len(key) == 3 and key[2] == one):
        return False
    counts_ranks = means_rank_count(program.words(guard))
    return counts_ranks and bool(key[0] == ("==" if guard.taken else ">"))


def reports(program: Program) -> Iterator[Report]:
    facts = list(missed_collectives(program))
    for fact in facts:
        site = fact.collective.call.site
        who, effect = _outcome(fact)
        yield Report(
            program.span(site),
            f"`{_called(program, site)}` needs {_needed(fact)}, but {who} here: {effect}",
            "the other ranks never call this",
            _evidence(program, fact),
            partial(on_every_rank, program, fact, facts),
        )


def _called(program: Program, site: Site) -> str:
    node = site.node
    if not isinstance(node, ir.Call) or ir.last_name(node.func) == "map":
        return program.text(site.path, node)  # another function calls the model
    return f"{program.text(site.path, node.func)}()"


def _needed(fact: MissedCollective) -> str:
    whole = fact.collective.participants >= EVERY_RANK
    return "every rank" if whole else "every rank that shards the model"


def _outcome(fact: MissedCollective) -> tuple[str, str]:
    ranks = fact.collective.ranks
    if len(ranks) == 1:
        return f"only rank {min(ranks)} gets", "it hangs, waiting for the others"
    missing = fact.collective.participants - ranks
    if len(missing) == 1:
        return f"every rank but {min(missing)} gets", "they hang, waiting for it"
    return "only some ranks get", "they hang, waiting for the others"


def _evidence(program: Program, fact: MissedCollective) -> tuple[Evidence, ...]:
    tests = [_test(program, guard) for guard in fact.guards]
    called = [program.evidence(Site(path, node), "called here") for path, node in fact.chain[:-1]]
    shard = fact.collective.shard
    settings = settings_of(shard) if isinstance(shard, Call) else None
    site = settings.site if isinstance(settings, Object) else None
    return (
        *tests,
        *called,
        *([] if site is None else [program.evidence(site, "FSDP is chosen here")]),
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


def on_every_rank(
    program: Program, fact: MissedCollective, facts: Sequence[MissedCollective], around: str = ""
) -> Fix | Declined:
    """Moves the call out of the branch, below the header ``around`` of a statement."""
    guard, (path, node) = fact.guards[0], fact.chain[0]
    code = Code.of(program.tree(path))
    functions = [(each.path, program.tree(each.path).function(each.test)) for each in fact.guards]
    if functions[0] in functions[1:]:
        return Declined("several tests exclude ranks; move the call out of all of them by hand")
    if guard.path != path or code.function(guard.test) is not code.function(node):
        return Declined(
            "the test and the call are in functions without a common caller; "
            "move the call before the test by hand"
        )
    if not isinstance(node, ir.Call):
        return Declined(
            "a library or a decorator calls the function; move the call out of it by hand"
        )
    own = len(fact.chain) == 1
    if not own and _is_of_a_parameter(code, node):
        return Declined(
            f"`{code.short(guard.test)}` guards whichever function is passed "
            "here; call it on every rank by hand"
        )
    if fact.writes:
        return Declined(
            f"`{code.short(node.func)}` also writes files, and every rank "
            "would write them; split the call by hand"
        )
    name = fact.collective.call.name
    barrier = name == known.BARRIER
    others = [other.chain[0][1] for other in facts if other.guards[0].test is guard.test]
    result = result_name(name) if own else "result"
    tests = guard.test, guard.rank_tests
    runs = name == "forward"
    guarded = Guarded(node, *tests, tuple(others), guard.early, result, barrier, around, runs)
    return call_on_every_rank(code, guarded)


def _is_of_a_parameter(code: Code, call: ir.Call) -> bool:
    """Whether a call is of a parameter, as in what a decorator makes of a function."""
    around = [node for node in code.ancestors(call) if isinstance(node, ir.Function)]
    names = {parameter.name for function in around for parameter in function.parameters}
    return isinstance(call.func, ir.Name) and call.func.id in names
