"""A finding is an ``if`` on what a rank computed of its own batch that skips a collective.

The fact is the test. On the one side of it the path has a forward or backward of a sharded model;
on the other side the rank goes on without one, and nothing tells the other ranks.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.collectives import collectives
from fsdplint.engine.facts.feeding import shared_data
from fsdplint.engine.facts.local_values import LocalValues, local_values
from fsdplint.engine.facts.sharding import runs_alone, unit_of
from fsdplint.engine.facts.training_loops import is_divided
from fsdplint.engine.interpreter.events import Call, Sharding
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard, Site
from fsdplint.engine.interpreter.values import Object, contained, key_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports, qualified
from fsdplint.fixes.names import dotted, fresh, names_in, written_between
from fsdplint.knowledge.calls import BACKWARDS
from fsdplint.knowledge.collectives import C10D_CALLS
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.knowledge.suspicious_words import (
    may_involve_others,
    means_rank_count,
    means_sharding,
)
from fsdplint.knowledge.tensors import REDUCTIONS, SCALE, TESTS_FINITE, computes_alone
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD603",
    summary="a rank can skip a training step that the other ranks take",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has two findings on public code so far; both are correct.",
)


_OF_STEP = ("forward", "step")

# A test of a place, with the outcome that leads there.
Arm = tuple[ir.Node, bool]


@dataclass(frozen=True, slots=True)
class SkippedStep:
    """A test by which a rank alone may leave out ``skipped``.

    Attributes:
        skipped: a forward, a backward, a step of the optimizer alone, or another collective, such
            as a checkpoint.
        source: the forward pass that the test's value is computed from.
    """

    guard: Guard
    branch: ir.If
    skipped: Call
    source: Call
    shard: Sharding


def skipped_steps(program: Program) -> Iterator[SkippedStep]:
    """Tests of what this rank computed alone that decide on a part of the step, or a checkpoint."""
    shared = {data.training.forward for data in shared_data(program)}
    answered = set(_arms_with_collectives(program))
    found = on_every_path(
        pair
        for values in local_values(program.traces)
        for pair in _judged(program, values, answered)
    )
    yield from (fact for fact in found if fact.source not in shared)


def _arms_with_collectives(program: Program) -> Iterator[Arm]:
    """The arms below which some path has what the ranks make together."""
    for trace in program.traces:
        for call in trace.calls("forward", *BACKWARDS, *C10D_CALLS):
            yield from ((guard.test, guard.taken) for guard in call.site.guards)


def _judged(
    program: Program, values: LocalValues, answered: Container[Arm]
) -> Iterator[tuple[ir.Node, SkippedStep | None]]:
    """Each test that a part of a step depends on: None where the ranks may agree on it."""
    trace = values.trace
    if not trace.units() or runs_alone(trace):
        return
    seen: set[ir.Node] = set()
    together = [each.call for each in collectives(trace) if each.call.name != "forward"]
    for call in (*trace.calls(*_OF_STEP, *BACKWARDS), *together):
        guards = [guard for guard in _own_guards(call) if guard.test not in seen]
        asked = bool(guards) and (call in together or _is_of_unit(values, call))
        for guard in guards if asked else ():
            seen.add(guard.test)
            yield guard.test, _skipped(program, values, answered, guard, call)


def _own_guards(call: Call) -> list[Guard]:
    """The branches around a call that do not ask for the rank by its number."""
    return [guard for guard in call.site.guards if guard.ranks == EVERY_RANK]


def _is_of_unit(values: LocalValues, call: Call) -> bool:
    """Whether it is a forward of a unit, the backward of its result, or a step of its optimizer."""
    if call.name == "forward":
        return call in values.forwards
    if call.name == "step":
        optimizer = call.receiver
        captured = optimizer.captures if isinstance(optimizer, Object) else ()
        return any(unit_of(values.trace, each.module, None) for each in captured)
    roots = [call.receiver, *call.arguments.args[:1]]
    held = [item for root in roots if root is not None for item in contained(root)]
    return any(values.sources(key_of(item)) for item in held)


def _skipped(
    program: Program, values: LocalValues, answered: Container[Arm], guard: Guard, call: Call
) -> SkippedStep | None:
    sources, branch = values.sources(guard.key), _branch(program, guard)
    if branch is None:
        return None
    if not sources and call.name == "forward" and _computes(branch.test):
        sources = values.before_forwards.sources(guard.key)
    if not sources:
        return None
    source = min(sources, key=lambda each: each.time)
    shard = values.forwards[call if source.name == "iterate" else source]
    if _may_run_alone(program, call.site, shard.site) or call.site.ranks() != EVERY_RANK:
        return None
    of_step = call.name in (*_OF_STEP, *BACKWARDS)
    if not of_step and not is_divided(values.trace, source):
        return None  # what is evaluated is often the same on every rank
    if (guard.test, not guard.taken) in answered or _may_answer(_other_arm(branch, guard)):
        return None
    return SkippedStep(guard, branch, call, source, shard)


def _computes(test: ir.Expr) -> bool:
    """Whether a test reduces numbers, and does not ask for the kind of a batch."""
    called = (ir.last_name(node.func) for node in ir.walk(test) if isinstance(node, ir.Call))
    return any(name in REDUCTIONS for name in called)


def _may_run_alone(program: Program, site: Site, shard: Site) -> bool:
    """Whether branches there may be those of a run of one process, or of one without sharding."""
    shared = {(guard.key, guard.taken) for guard in shard.guards}
    own = [program.words(each) for each in site.guards if (each.key, each.taken) not in shared]
    hinted = any(means_rank_count(words) or means_sharding(words) for words in own)
    return hinted or not program.together(site, shard)


def _branch(program: Program, guard: Guard) -> ir.If | None:
    """The ``if`` statement that a guard is the whole test of."""
    statement = program.tree(guard.path).statement(guard.test)
    whole = isinstance(statement, ir.If) and guard.test in _negated(statement.test)
    return statement if whole and isinstance(statement, ir.If) else None


def _negated(test: ir.Expr) -> list[ir.Node]:
    """A test, and what is negated in it if it is a ``not``."""
    return [test, *_negated(test.operand)] if isinstance(test, ir.Not) else [test]


def _is_true(branch: ir.If, guard: Guard) -> bool:
    """Whether a rank that makes the step finds the ``if`` to be true."""
    turned = _negated(branch.test).index(guard.test) % 2 == 1
    return guard.taken is not turned


def _other_arm(branch: ir.If, guard: Guard) -> tuple[ir.Stmt, ...]:
    """What a rank runs that skips the step."""
    return branch.orelse if _is_true(branch, guard) else branch.body


def _may_answer(arm: tuple[ir.Stmt, ...]) -> bool:
    """Whether a rank that skips the step may take part in it still, or end the program."""
    nodes = [node for each in arm for node in ir.walk(each)]
    names = [ir.last_name(node.func) for node in nodes if isinstance(node, ir.Call)]
    return (bool(arm) and isinstance(arm[-1], ir.Raise)) or any(map(may_involve_others, names))


def reports(program: Program) -> Iterator[Report]:
    for fact in skipped_steps(program):
        site = Site(fact.guard.path, fact.branch.test)
        skipped, test = fact.skipped.site, program.text(site.path, fact.branch.test)
        yield Report(
            program.span(site),
            f"`{test}` depends on this rank's batch: {_effect(program, fact, site)}",
            "may differ between ranks",
            (
                program.evidence(fact.source.site, "computed from this rank's own batch"),
                program.evidence(skipped, "a rank may skip this"),
                program.evidence(fact.shard.site, "the model is sharded here"),
                *program.conditions(fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _effect(program: Program, fact: SkippedStep, at: Site) -> str:
    site = fact.skipped.site
    call = f"`{program.text(site.path, site.node)}` {program.where(site, at)}"
    if fact.skipped.name == "step":
        return f"a rank that skips {call} keeps old shards while the others update theirs"
    return f"if one rank skips {call}, the others hang there"


def _fix(program: Program, fact: SkippedStep) -> Fix | Declined:
    site = fact.skipped.site
    beside = site.node if site.path == fact.guard.path else None
    code = Code.of(program.tree(fact.guard.path))
    return agree_first(code, fact.branch, beside, go=_is_true(fact.branch, fact.guard))


@builder
def agree_first(code: Code, branch: ir.If, skipped: ir.Node | None, go: bool) -> Fix:
    """Has the ranks agree on a test before they branch on it.

    Args:
        skipped: the call that depends on it, if it is in this file.
        go: whether the test says to make the step, rather than to skip it.
    """
    test = branch.test
    if code.is_elif(branch) or not code.starts_line(branch):
        raise NoFixError(
            f"`{code.short(test)}` is one of several branches; reduce "
            "the test over all ranks by hand"
        )
    if any(isinstance(node, ir.NamedExpr) for node in ir.walk(test)):
        raise NoFixError(
            f"`{code.short(test)}` assigns a variable; reduce the test over all ranks by hand"
        )
    tensor = _tensor(code, branch, skipped)
    imports = Imports(code, branch)
    torch, dist = imports.module("torch", "torch"), imports.module(DISTRIBUTED, "dist")
    flag = fresh(code, branch, "proceed" if go else "skip", names_in(test).reads)
    text = f"bool({code.slice(test)})" if isinstance(test, ir.BoolOp) else code.slice(test)
    operation = f"{dist}.ReduceOp.{'MIN' if go else 'MAX'}"
    lines = (
        f"{flag} = {torch}.tensor(int({text}), device={tensor}.device)",
        f"{dist}.all_reduce({flag}, op={operation})",
    )
    indent = code.indentation(branch)
    above = "".join(f"{indent}{line}{code.newline}" for line in lines)
    edits = (
        code.insert_lines(code.line_start(branch.start), above),
        code.edit(test.start, test.end, flag),
        *imports.edits(),
    )
    return Fix(f"make all ranks agree on `{code.short(test)}` first", Safety.UNSAFE, edits)


def _tensor(code: Code, branch: ir.If, skipped: ir.Node | None) -> str:
    """The name of a tensor of the loss, on whose device the flag can be."""
    asked = [node for node in ir.walk(branch.test) if isinstance(node, ir.Call)]
    by_torch = [call for call in asked if qualified(code, call.func) in TESTS_FINITE and call.args]
    given = [call.args[0].value for call in by_torch]
    if isinstance(skipped, ir.Call) and ir.last_name(skipped.func) == "backward":
        given += [argument.value for argument in skipped.args[:1]]
        given += [skipped.func.value] if isinstance(skipped.func, ir.Attribute) else []
    before = written_between(code, branch, 0, branch.start)
    for name in (_scaled(code, node) for node in given):
        if name in before:
            return name
    raise NoFixError("the loss has no name here; reduce the test over all ranks by hand")


def _scaled(code: Code, node: ir.Expr) -> str:
    """The name of the tensor that an expression scales or reduces, "" for another one."""
    if isinstance(node, ir.BinOp):
        return _scaled(code, node.left)
    if not isinstance(node, ir.Call):
        return dotted(node) or ""
    of_torch = computes_alone(qualified(code, node.func) or "")
    if of_torch or ir.last_name(node.func) == SCALE:
        return _scaled(code, node.args[0].value) if node.args else ""
    return _scaled(code, node.func.value) if isinstance(node.func, ir.Attribute) else ""
