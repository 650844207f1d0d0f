"""A finding is an ``except`` around the forward of a sharded model that goes on to the next batch.

The fact is the handler. The rank that has the error leaves the forward or backward half done, and
its next collective is that of another forward, which is not the one that the others wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.local_values import LocalValues, local_values
from fsdplint.engine.facts.sharding import runs_alone
from fsdplint.engine.interpreter.events import Call, Sharding
from fsdplint.engine.interpreter.shape import exits
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object, contained, key_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.calls import BACKWARDS
from fsdplint.knowledge.suspicious_words import may_involve_others
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD604",
    summary="a rank swallows an error and leaves the others in the middle of a step",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has findings in only one public repository so far; they are correct.",
)

# The errors of a lack of memory, and of a device, by the last part of their names.
_OF_ONE_RANK = frozenset(
    {"AcceleratorError", "BaseException", "Exception", "OutOfMemoryError", "RuntimeError"}
)
# Waits for the rank's own device.
_OWN = frozenset({"synchronize"})


@dataclass(frozen=True, slots=True)
class CaughtError:
    """A handler after which the rank goes on, in the middle of a step."""

    site: Site
    handler: ir.Handler
    forward: Call
    shard: Sharding


def caught_errors(program: Program) -> Iterator[CaughtError]:
    """Handlers around training steps that neither raise nor may let the ranks agree."""
    for values in local_values(program.traces):
        if runs_alone(values.trace):
            continue
        trained = _trained(values)
        for forward, shard in values.forwards.items():
            if not program.together(forward.site, shard.site):
                continue
            for path, around, handler in _handlers(program, values, forward):
                if forward in trained or _inside(values.trace.calls(*BACKWARDS), path, around):
                    yield CaughtError(Site(path, handler), handler, forward, shard)


def _trained(values: LocalValues) -> set[Call]:
    """The forward passes whose result some backward starts from."""
    found: set[Call] = set()
    for call in values.trace.calls(*BACKWARDS):
        roots = [call.receiver, *call.arguments.args[:1]]
        for item in (item for root in roots if root is not None for item in contained(root)):
            found.update(values.sources(key_of(item)))
    return found


def _inside(calls: list[Call], path: str, around: ir.Node) -> bool:
    """Whether a call is made in a part of the code, or in a function that it calls."""
    return any(
        where == path and around.start <= node.start < around.end
        for call in calls
        for where, node in call.site.frames()
    )


def _handlers(
    program: Program, values: LocalValues, forward: Call
) -> Iterator[tuple[str, ir.Try, ir.Handler]]:
    """Handlers between a forward and the innermost loop around it in which an optimizer steps."""
    found: list[tuple[str, ir.Try]] = []
    left = 0  # the first of them that are in functions which the loop calls
    for path, inside, around in _enclosing(program, forward):
        if isinstance(around, ir.Function):
            left = len(found)
        elif isinstance(around, ir.Try) and inside in around.body:
            found.append((path, around))
        elif isinstance(around, (ir.For, ir.While)) and _trains(values, path, around):
            for index, (where, tried) in enumerate(found):
                for each in filter(_is_wide, tried.handlers):
                    if _goes_on(each.body, index < left) and not _meets(each, around):
                        yield where, tried, each
            return


def _enclosing(program: Program, call: Call) -> Iterator[tuple[str, ir.Node, ir.Node]]:
    """The nodes around a call, and around the calls that lead there, up to their functions.

    Each comes with what it holds of them.
    """
    for path, inside in reversed(call.site.frames()):
        for around in program.tree(path).ancestors(inside):
            yield path, inside, around
            if isinstance(around, ir.Function):
                break
            inside = around


def _trains(values: LocalValues, path: str, loop: ir.For | ir.While) -> bool:
    """Whether an optimizer of parameters steps in a loop."""
    steps = values.trace.calls("step")
    return _inside([step for step in steps if _of_parameters(step)], path, loop)


def _of_parameters(step: Call) -> bool:
    held = (step.receiver, *step.arguments.args[:1])  # or what a scaler steps
    return any(isinstance(each, Object) and bool(each.captures) for each in held)


def _is_wide(handler: ir.Handler) -> bool:
    """Whether a handler is for errors that one rank may have alone."""
    if handler.type is None:
        return True
    named = {ir.last_name(node) for node in ir.walk(handler.type) if _is_name(node)}
    return not named.isdisjoint(_OF_ONE_RANK)


def _is_name(node: ir.Node) -> bool:
    return isinstance(node, (ir.Name, ir.Attribute))


def _goes_on(body: tuple[ir.Stmt, ...], returns: bool) -> bool:
    """Whether a rank may get from a handler to the next batch.

    Args:
        returns: whether the loop calls the function of the handler; else a return leaves it.
    """
    for statement in body:
        if isinstance(statement, (ir.Raise, ir.Break)) or exits(statement):
            return False
        if isinstance(statement, ir.With) and not _goes_on(statement.body, returns):
            return False
        if isinstance(statement, ir.If) and not any(
            _goes_on(arm, returns) for arm in (statement.body, statement.orelse)
        ):
            return False
        if isinstance(statement, ir.Return):
            return returns
        if isinstance(statement, ir.Continue):
            return True
    return True


def _meets(handler: ir.Handler, loop: ir.For | ir.While) -> bool:
    """Whether a handler, or a function that gets a variable of its, may involve others."""
    if any(may_involve_others(name) for name in _called(handler) if name not in _OWN):
        return True
    stored = {
        target.id
        for node in ir.walk(handler)
        if isinstance(node, ir.Assign)
        for target in node.targets
        if isinstance(target, ir.Name)
    }
    calls = (node for node in ir.walk(loop) if isinstance(node, ir.Call))
    given = (node for call in calls for argument in call.args for node in ir.walk(argument))
    return any(isinstance(node, ir.Name) and node.id in stored for node in given)


def _called(node: ir.Node) -> list[str]:
    return [ir.last_name(each.func) for each in ir.walk(node) if isinstance(each, ir.Call)]


def reports(program: Program) -> Iterator[Report]:
    for fact in caught_errors(program):
        forward, caught = fact.forward.site, fact.handler.type
        words = "" if caught is None else f" {program.text(fact.site.path, caught)}"
        call = f"`{program.text(forward.path, forward.node)}` {program.where(forward, fact.site)}"
        yield Report(
            program.span(Site(fact.site.path, caught or fact.handler)),
            f"`except{words}` continues with the next batch: if only one rank fails in {call}, "
            "the others hang in the same step",
            "continues while the others are in the step",
            (
                program.evidence(forward, "a rank may stop in the middle of this"),
                program.evidence(fact.shard.site, "the model is sharded here"),
                *program.conditions(fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: CaughtError) -> Fix | Declined:
    return raise_again(Code.of(program.tree(fact.site.path)), fact.handler)


@builder
def raise_again(code: Code, handler: ir.Handler) -> Fix:
    """Ends a handler with ``raise``, which ends the rank and thereby the run."""
    last = handler.body[-1]
    if isinstance(last, ir.If):
        raise NoFixError("the handler ends in its own branch; re-raise the error there by hand")
    if not code.starts_line(last):
        raise NoFixError("the handler's statements share a line")
    if isinstance(last, (ir.Continue, ir.Return)):
        edit = code.edit(last.start, last.end, "raise")
    else:
        line = f"{code.indentation(last)}raise{code.newline}"
        edit = code.insert_lines(code.after(last), line)
    return Fix("re-raise the error, which ends the run", Safety.UNSAFE, (edit,))
