"""Collectives, and those that some ranks of a run do not reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.sharding import is_summoned
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.engine.interpreter.events import Call, PlainWrite, Shard, Trace
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard, Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Parameters,
    StateDict,
    Symbol,
    Value,
    class_names,
    contained,
    resolved,
)
from fsdplint.engine.program import Program
from fsdplint.files.lexing import indented
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.conditions import conditions
from fsdplint.fixes.names import clash, fresh, names_in
from fsdplint.knowledge import collectives as known
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.knowledge.words import means_rank_count
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD601",
    summary="a collective is reached by some ranks only",
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
class Collective:
    """A call that ``ranks`` make, out of the ``participants`` that all have to.

    Attributes:
        shard: what makes it a collective; for one that is always, the first sharding call.
    """

    call: Call
    shard: Shard
    participants: frozenset[int]
    ranks: frozenset[int]


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
            if place not in seen and not unsure and program.together(site, collective.shard.site):
                seen.add(place)
                yield fact


def _is_unsure(program: Program, site: Site, guard: Guard) -> bool:
    return _runs_alone(program, guard) or is_given(program, site, guard)


def _is_whole(program: Program, collective: Collective) -> bool:
    """Whether FSDP1 has gathered the model already, for a ``with FSDP.summon_full_params(…)``."""
    call, flat = collective.call, collective.shard.generation is Generation.FSDP1
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
    for collective in _collectives(trace):
        if collective.ranks and collective.ranks < collective.participants:
            partial.setdefault(collective.call.name, []).append(collective)
    left = [one for alike in partial.values() for one in _without_pairs(alike)]
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


# Which calls


def _collectives(trace: Trace) -> Iterator[Collective]:
    shards = trace.of(Shard)
    if not shards:
        return
    # Some ranks shard and the others do something else: who talks to whom is not known.
    roles = any(shard.site.ranks() != EVERY_RANK for shard in shards)
    for call in trace.of(Call):
        before = [shard for shard in shards if shard.time < call.time]
        shard = _needs(trace, call, before)
        if shard is None and not roles and call.name in known.WORLD_CALLS and _by_all(call):
            shard = shards[0]
        if shard is None:
            continue
        participants = shard.site.ranks()
        yield Collective(call, shard, participants, call.site.ranks() & participants)


def _by_all(call: Call) -> bool:
    """Whether a call of c10d or of a distributed checkpoint is one of all ranks."""
    group = known.WORLD_CALLS[call.name]
    given = call.argument(group.position, group.keyword)
    whole = given is None or (isinstance(given, Const) and given.value is None)
    whole = whole or (isinstance(given, Symbol) and given.name.endswith("group.WORLD"))
    keywords = call.arguments.keywords
    alone = [keywords[name] for name in known.ALONE_KEYWORDS & keywords.keys()]
    together = all(isinstance(value, Const) and not value.value for value in alone)
    return whole and together and not call.arguments.open


def _needs(trace: Trace, call: Call, shards: list[Shard]) -> Shard | None:
    """The sharding call that makes ``call`` a collective, if one does."""
    receiver = None if call.receiver is None else resolved(call.receiver)
    if receiver is None:
        return _function_needs(call, shards)
    if call.name in known.TENSOR_METHODS:
        return _holder(_owner(receiver), shards)
    if not isinstance(receiver, Object):
        return None
    if call.site in trace.inside:
        shards = [shard for shard in shards if not _wraps_only(shard, receiver)]
    if call.name == "forward" or call.name in known.UNIT_METHODS:
        return _unit(receiver, shards)
    if call.name in known.FSDP1_METHODS and not _local_state(trace, call):
        found = _unit(receiver, [s for s in shards if s.generation is Generation.FSDP1])
        if found is not None:
            return found
    accelerator = any(name.startswith("accelerate.") for name in class_names(receiver.cls))
    if accelerator and call.name in known.ACCELERATOR_METHODS:
        return shards[0] if shards else None
    return None


def _function_needs(call: Call, shards: list[Shard]) -> Shard | None:
    fsdp1 = [shard for shard in shards if shard.generation is Generation.FSDP1]
    fsdp2 = [shard for shard in shards if shard.generation is Generation.FSDP2]
    if call.name in known.FSDP1_CALLS:
        return _unit(call.argument(known.FSDP1_CALLS[call.name], "model"), fsdp1) or _unit(
            call.argument(known.FSDP1_CALLS[call.name], "module"), fsdp1
        )
    if call.name in known.STATE_CALLS:
        model = call.argument(0, "model")
        return _unit(model, fsdp1) or (_unit(model, fsdp2) if _whole_state(call) else None)
    if call.name in known.NORM_CALLS:
        found = [
            _holder(_owner(item), fsdp2)
            for value in call.arguments.values()[:1]
            for item in contained(value)
        ]
        return next((shard for shard in found if shard is not None), None)
    return None


def _whole_state(call: Call) -> bool:
    options = call.argument(KEYWORD_ONLY, "options")
    if not isinstance(options, Object):
        return False
    values = [options.keywords.get(name) for name in known.WHOLE_STATE_OPTIONS]
    return any(isinstance(value, Const) and value.value is True for value in values)


def _wraps_only(shard: Shard, module: Object) -> bool:
    """Whether a call makes FSDP1's wrapper around ``module``, and no unit inside that is known."""
    outside = shard.module is module or shard.module in module.ancestors()
    return outside and shard.wraps_children is not True


def _unit(module: Value | None, shards: list[Shard]) -> Shard | None:
    """What sharded ``module`` or a part of it, so that to run it gathers."""
    if not isinstance(module, Object):
        return None
    return next((s for s in shards if _shards(s) and _within(s.module, module)), None)


def _holder(module: Object | None, shards: list[Shard]) -> Shard | None:
    """What sharded the parameters of ``module``: a call on it, around it or inside it."""
    if module is None:
        return None
    around = (s for s in shards if s.generation is Generation.FSDP2 and _within(module, s.module))
    return _unit(module, [s for s in shards if s.generation is Generation.FSDP2]) or next(
        around, None
    )


def _within(part: Object, whole: Object) -> bool:
    return part is whole or whole in part.ancestors()


def _owner(value: Value) -> Object | None:
    """The module whose parameter, gradient or state a value is."""
    if isinstance(value, Parameters):
        return value.module
    if isinstance(value, StateDict):
        return value.owner if value.optimizer is None else None
    return value.parent if isinstance(value, Object) else None


def _shards(shard: Shard) -> bool:
    """Not FSDP1 as a kind of DDP, where every rank has everything."""
    strategy = shard.keywords.get("sharding_strategy")
    text = strategy.name if isinstance(strategy, Symbol) else ""
    return not text.endswith("NO_SHARD")


def _local_state(trace: Trace, call: Call) -> bool:
    """Whether FSDP1's state may be this rank's alone, by the type that was chosen for it."""
    chosen = [each for each in trace.of(Call) if each.name in known.FSDP1_STATE_TYPES]
    types = [each.argument(1, "state_dict_type") for each in chosen]
    local = any(isinstance(t, Symbol) and t.name.endswith("LOCAL_STATE_DICT") for t in types)
    return call.name == "state_dict" and local


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
    code = Code.of(program.tree(path))
    if guard.path != path or code.function(guard.test) is not code.function(node):
        return Declined("the test and the call stand in functions that share no caller")
    if not isinstance(node, ir.Call):
        return Declined("the function is called by a library or a decorator")
    own = len(fact.chain) == 1
    if not own and _is_of_a_parameter(code, node):
        return Declined(f"`{code.short(guard.test)}` is asked for whatever function is given here")
    if fact.writes:
        return Declined(f"`{code.short(node.func)}` writes files too, which every rank would do")
    name = fact.collective.call.name
    barrier = name == known.BARRIER
    others = [other.chain[0][1] for other in facts if other.guards[0].test is guard.test]
    result = result_name(name) if own else "result"
    guarded = Guarded(node, guard.test, guard.telling, tuple(others), guard.early, result, barrier)
    return call_on_every_rank(code, guarded)


# Calls in code around a collective that every rank can make as well.
_QUIET = frozenset(
    {
        *("items", "values", "keys", "parameters", "named_parameters", "state_dict", "cpu", "to"),
        *("detach", "clone", "float", "half", "bfloat16", "contiguous", "item", "no_grad", "eval"),
        *("inference_mode", "train", "dict", "list", "tuple", "range", "enumerate", "zip", "len"),
        *("state_dict_type", "FullStateDictConfig", "FullOptimStateDictConfig", "append"),
        *("StateDictOptions", "isinstance", "hasattr", "replace", "startswith", "autocast"),
    }
)

# What a variable for the result is called.
_RESULTS = {
    "forward": "output",
    "full_tensor": "full",
    "state_dict": "state_dict",
    "get_model_state_dict": "state_dict",
    "get_optimizer_state_dict": "optimizer_state",
    "get_state_dict": "state_dict",
    "optim_state_dict": "optimizer_state",
    "full_optim_state_dict": "optimizer_state",
    "clip_grad_norm_": "norm",
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A call that some ranks do not make.

    Attributes:
        test: what keeps them away, in the function of ``call``.
        telling: the operands of ``test`` that do so.
        others: further such calls behind the same test, which keep their order.
        early: they have left before, rather than taken another arm.
        name: what a variable for the result is called.
        fixed: it has to stay behind what comes before it, as a barrier has.
    """

    call: ir.Expr
    test: ir.Node
    telling: tuple[ir.Node, ...]
    others: tuple[ir.Node, ...]
    early: bool
    name: str
    fixed: bool


@builder
def call_on_every_rank(code: Code, guarded: Guarded) -> Fix:
    """Moves the call out of the branch, and leaves there what is done with its result."""
    place = code.statement(guarded.test)
    if isinstance(place, ir.If) and _inside(guarded.test, place.test):
        edits = _out_of_branch(code, guarded, place)
    else:
        edits = _out_of_expression(code, guarded, place)
    title = f"let every rank call `{code.short(_callee(guarded.call))}`"
    return Fix(title, Safety.UNSAFE, tuple(edits))


def result_name(collective: str) -> str:
    """What a variable for the result of a collective is called."""
    return _RESULTS.get(collective.rpartition(".")[2], "result")


def _is_of_a_parameter(code: Code, call: ir.Call) -> bool:
    """Whether a call is of a parameter, as in what a decorator makes of a function."""
    around = [node for node in code.ancestors(call) if isinstance(node, ir.Function)]
    names = {parameter.name for function in around for parameter in function.parameters}
    return isinstance(call.func, ir.Name) and call.func.id in names


def _callee(call: ir.Expr) -> ir.Node:
    return call.func if isinstance(call, ir.Call) else call


def _inside(node: ir.Node, outer: ir.Node) -> bool:
    return outer.start <= node.start and node.end <= outer.end


# Conditional expressions


def _out_of_expression(code: Code, guarded: Guarded, place: ir.Stmt) -> list[Edit]:
    """``x if rank == 0 else y``: the call goes above the statement; ``rank == 0 and x()`` is it."""
    if isinstance(place, ir.Expression) and isinstance(place.value, ir.BoolOp):
        value = place.value
        if value.left is guarded.test and value.right is guarded.call and code.alone(place):
            return [code.edit(value.start, guarded.call.start, "")]
    around = [node for node in code.ancestors(guarded.call) if _inside(node, place)]
    if isinstance(place, ir.Case):
        raise NoFixError(f"`{code.short(place)}` is one of several branches")
    tests = [node for node in around if isinstance(node, ir.Conditional)]
    if isinstance(place, COMPOUND) or len(tests) != 1 or not _inside(guarded.test, tests[0].test):
        raise NoFixError(f"`{code.short(guarded.test)}` is part of a larger expression")
    if isinstance(guarded.test, ir.BoolOp):
        raise NoFixError(f"`{code.short(guarded.test)}` asks for more than the rank")
    return _extracted(code, guarded, place, place, "", besides=tests[0])


# Branches


def _out_of_branch(code: Code, guarded: Guarded, place: ir.If) -> list[Edit]:
    if code.is_elif(place):
        raise NoFixError(f"`{code.short(guarded.test)}` is one of several branches")
    arm = _arm(code, guarded, place)
    statement = next((s for s in arm if _inside(guarded.call, s)), None)
    if statement is None:
        raise NoFixError(f"`{code.short(guarded.test)}` is not in the block of the call")
    for decides in conditions(code, place, statement, (place,)):
        raise NoFixError(
            f"`{code.short(decides.test)}` decides below the test of the rank whether this is "
            "called; test it above, so that all ranks agree on it"
        )
    condition = _condition(code, guarded, place, arm)
    moved = _moved(code, arm, statement, guarded)
    if moved is None:
        earlier = arm[: arm.index(statement)]
        _check_unwritten(code, guarded, _whole(code, guarded.call, statement), earlier)
        return _extracted(code, guarded, statement, place, condition)
    if len(moved) == len(arm) and arm is place.body and not place.orelse:
        return _without_test(code, place, condition)
    return _lifted(code, guarded, place, arm, moved, condition)


def _arm(code: Code, guarded: Guarded, place: ir.If) -> tuple[ir.Stmt, ...]:
    """The statements that only some ranks reach, in order."""
    if guarded.early:
        block = code.block(place).statements
        return block[block.index(place) + 1 :]
    return place.body if any(_inside(guarded.call, s) for s in place.body) else place.orelse


def _condition(code: Code, guarded: Guarded, place: ir.If, arm: Sequence[ir.Stmt]) -> str:
    """What the test asks besides the rank, which goes with the call."""
    if not any(isinstance(node, ir.BoolOp) for node in ir.walk(place.test)):
        return ""
    parts = list(_conjuncts(place.test))
    others = [part for part in parts if part not in guarded.telling]
    mixed = any(isinstance(part, ir.BoolOp) for part in parts if part not in others)
    if arm is not place.body or mixed or len(others) == len(parts):
        raise NoFixError(f"`{code.short(guarded.test)}` asks for more than the rank")
    return " and ".join(code.slice(part) for part in others)


def _conjuncts(test: ir.Expr) -> Iterator[ir.Expr]:
    if isinstance(test, ir.BoolOp) and test.op == "and":
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    else:
        yield test


# What goes along


def _moved(
    code: Code, arm: Sequence[ir.Stmt], statement: ir.Stmt, guarded: Guarded
) -> list[ir.Stmt] | None:
    """The statement of the call with those that prepare it; None if the call leaves it alone."""
    whole = isinstance(statement, (ir.Assign, ir.AugAssign)) or (
        isinstance(statement, ir.Expression) and statement.value is guarded.call
    )
    if isinstance(statement, COMPOUND) and not _contexts(code, guarded, statement):
        _check_quiet(code, statement, guarded)
    elif not whole:
        return None
    moved, reads = [statement], set(names_in(statement).reads)
    for earlier in reversed(arm[: arm.index(statement)]):
        other = any(_inside(call, earlier) for call in guarded.others)
        if other and isinstance(earlier, ir.Assign):
            moved.insert(0, earlier)
            reads |= names_in(earlier).reads
        elif clash(reads, names_in(earlier).writes):
            _check_quiet(code, earlier, guarded)
            moved.insert(0, earlier)
            reads |= names_in(earlier).reads
    return moved


def _check_quiet(code: Code, statement: ir.Stmt, guarded: Guarded) -> None:
    """Raises where a statement does more than its variables show."""
    kinds = (ir.Assign, ir.AugAssign, ir.Expression, ir.For, ir.With, ir.Pass)
    inner = [node for node in ir.walk(statement) if isinstance(node, _STATEMENTS)]
    calls = [node for node in ir.walk(statement) if isinstance(node, ir.Call)]
    others = (call for call in calls if call is not guarded.call)
    loud = [call for call in others if ir.last_name(call.func) not in _QUIET]
    if loud or not all(isinstance(node, kinds) for node in inner):
        raise NoFixError(f"`{code.short(statement)}` does more than the collective needs")


_STATEMENTS = (*COMPOUND, ir.Return, ir.Raise, ir.Delete, ir.Break, ir.Continue, ir.Assign, ir.Pass)


def _check_unwritten(
    code: Code, guarded: Guarded, expression: ir.Node, earlier: Sequence[ir.Stmt]
) -> None:
    written = {name for statement in earlier for name in names_in(statement).writes}
    changed = clash(names_in(expression).reads, written)
    if changed is not None:
        raise NoFixError(f"`{changed}` changes between the rank test and the collective")
    if guarded.fixed and earlier:
        raise NoFixError(f"`{code.short(guarded.call)}` has to stay behind what comes before it")


def _contexts(code: Code, guarded: Guarded, statement: ir.Stmt) -> list[ir.With]:
    """The contexts from ``statement`` in to that of the call, if it stands in nothing else.

    Empty too where the innermost one holds the call's statement alone: that moves as a whole.
    """
    inner = code.statement(guarded.call)
    around = [statement, *_below(code, statement, inner)]
    contexts = [node for node in around if isinstance(node, ir.With)]
    quiet = all(
        ir.last_name(call.func) in _QUIET
        for context in contexts
        for item in context.items
        for call in ir.walk(item)
        if isinstance(call, ir.Call)
    )
    named = any(item.target is not None for context in contexts for item in context.items)
    plain = isinstance(inner, ir.Expression) and inner.value is not guarded.call
    return contexts if len(contexts) == len(around) and quiet and not named and plain else []


def _below(code: Code, outer: ir.Stmt, inner: ir.Stmt) -> list[ir.Node]:
    """The statements between two, the outer ones first."""
    around = [node for node in code.ancestors(inner) if _inside(node, outer) and node is not outer]
    return [node for node in reversed(around) if isinstance(node, COMPOUND)]


# Edits


def _whole(code: Code, call: ir.Expr, statement: ir.Stmt) -> ir.Expr:
    """The call, or the comprehension that makes it for every element.

    Raises:
        NoFixError: the expression may not be evaluated, or not once.
    """
    found = call
    for node in code.ancestors(call):
        if node is statement:
            return found
        if isinstance(node, ir.Comprehension):
            found = node
        elif isinstance(node, (ir.Lambda, ir.BoolOp, ir.Conditional)):
            raise NoFixError(f"`{code.short(node)}` does not always make the call")
    raise NoFixError(f"`{code.short(call)}` is in no statement of its own")


def _extracted(
    code: Code,
    guarded: Guarded,
    statement: ir.Stmt,
    place: ir.Stmt,
    condition: str,
    besides: ir.Expr | None = None,
) -> list[Edit]:
    """``name = call`` above ``place``, and the name where the call was."""
    inner = code.statement(guarded.call)
    expression = guarded.call if besides is not None else _whole(code, guarded.call, inner)
    if not code.starts_line(place):
        raise NoFixError(f"`{code.short(place)}` shares its line with other code")
    name = fresh(code, guarded.call, guarded.name)
    text = f"{name} = {code.slice(expression)}{code.newline}"
    for context in reversed(_contexts(code, guarded, statement)):
        head = code.text[context.start : code.text.index(":", context.items[-1].value.end) + 1]
        text = f"{head}{code.newline}" + _under(code, "", text, code.unit)
    text = _under(code, condition, text, code.indentation(place))
    return [
        code.insert_lines(code.line_start(place.start), text),
        code.edit(expression.start, expression.end, name),
    ]


def _lifted(
    code: Code,
    guarded: Guarded,
    place: ir.If,
    arm: Sequence[ir.Stmt],
    moved: Sequence[ir.Stmt],
    condition: str,
) -> list[Edit]:
    """The moved statements above the test, or below the branch whose end they are."""
    staying = [statement for statement in arm if statement not in moved]
    first, last = arm.index(moved[0]), arm.index(moved[-1])
    below = last == len(arm) - 1 and first == len(arm) - len(moved) and not guarded.early
    result_used = isinstance(moved[-1], ir.Assign)
    if below and not result_used and not place.orelse and staying:
        at = code.after(place)
    else:
        _check_order(code, guarded, place, staying, moved)
        at = code.line_start(place.start)
    indent = code.indentation(place)
    extents = [code.extent(statement) for statement in moved]
    body = "".join(_reindented(code, start, end, moved[0]) for start, end in extents)
    if not code.starts_line(place):
        raise NoFixError(f"`{code.short(place)}` shares its line with other code")
    deletions = [code.delete_lines(start, end) for start, end in extents]
    if not staying:
        deletions = [code.edit(*extents[0], f"{code.indentation(moved[0])}pass{code.newline}")]
    return [code.insert_lines(at, _under(code, condition, body, indent)), *deletions]


def _check_order(
    code: Code,
    guarded: Guarded,
    place: ir.If,
    staying: Sequence[ir.Stmt],
    moved: Sequence[ir.Stmt],
) -> None:
    before = [statement for statement in staying if statement.start < moved[-1].start]
    if guarded.fixed and before:
        raise NoFixError(f"`{code.short(guarded.call)}` has to stay behind what comes before it")
    written = {name for statement in moved for name in names_in(statement).writes}
    read = {name for statement in before for name in names_in(statement).reads}
    used = clash(written, read | names_in(place.test).reads)
    if used is not None:
        raise NoFixError(f"`{used}` is used before the collective changes it")


def _reindented(code: Code, start: int, end: int, statement: ir.Stmt) -> str:
    """The lines without the indentation of their statement; what is in strings stays."""
    old = code.indentation(statement)
    ends = set(code.code_lines(start, end))
    lines = []
    while start < end:
        following = code.line_end(start)
        line = code.text[start:following]
        lines.append(line.removeprefix(old) if start in ends else line)
        start = following
    text = "".join(lines)
    return text if text.endswith(("\n", "\r")) else text + code.newline


def _under(code: Code, condition: str, body: str, indent: str) -> str:
    """Lines that stand at no depth, at ``indent``, or one deeper below ``if condition:``."""
    if condition:
        head, inner = f"{indent}if {condition}:{code.newline}", indent + code.unit
    else:
        head, inner = "", indent
    return head + indented(body, inner)


def _without_test(code: Code, place: ir.If, condition: str) -> list[Edit]:
    """The body alone, or under what else was asked."""
    colon = code.text.index(":", place.test.end)
    first = place.body[0]
    head = f"if {condition}:" if condition else ""
    if first.start < code.line_end(colon):
        return [code.edit(place.start, first.start, f"{head} " if head else "")]
    if head:
        return [code.edit(place.start, colon + 1, head)]
    start, body_start = code.line_start(place.start), code.line_end(colon)
    remark = code.text[colon + 1 : body_start].strip()
    kept = f"{code.indentation(place)}{remark}{code.newline}" if remark else ""
    extra = code.indentation(first).removeprefix(code.indentation(place))
    edits = [code.edit(start, body_start, kept)]
    for at in code.code_lines(body_start, code.after(place)):
        at += len(code.indentation(place))
        if code.text.startswith(extra, at):
            edits.append(code.edit(at, at + len(extra), ""))
    return edits
