"""Gradient reduction that is off in every backward before a step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_sync import UnreducedStep, unreduced_steps
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.conditions import negated
from fsdplint.fixes.names import clash, names_in, written_between
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD307",
    summary="gradient reduction is off in every backward before an optimizer step",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="gradients",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in unreduced_steps(program):
        site, call = fact.off.site, fact.off.site.node
        assert isinstance(call, ir.Call)
        step = fact.step.site
        switch = program.text(site.path, call)
        what, done = _reduction(fact)
        evidence = [
            program.evidence(fact.shard.site, "sharded here"),
            program.evidence(fact.backward.site, f"gradients are not {done} here"),
        ]
        if fact.late is not None:
            evidence.append(program.evidence(fact.late.site, "too late: no backward follows"))
        evidence.append(program.evidence(step, "this step finds no gradient"))
        yield Report(
            program.span(site),
            f"`{switch}` {_until(fact)}: no gradient is {done}, and the step "
            f"{program.where(step, site)} changes nothing",
            f"turns {what} off here",
            (*evidence, *program.conditions(site)),
            partial(
                reduce_last_micro_batch,
                Code.of(program.tree(site.path)),
                call,
                step.node if step.path == site.path else None,
            ),
        )


def _reduction(fact: UnreducedStep) -> tuple[str, str]:
    """Return what is off, and what it would do to the gradients."""
    if fact.off.name == "set_requires_all_reduce":
        return "the all-reduce", "all-reduced"
    return "gradient reduction", "reduced"


def _until(fact: UnreducedStep) -> str:
    if fact.late is not None:
        return "is undone only after the last backward"
    return "stays in effect once it runs" if fact.sticky else "is in effect in every backward"


_PURE = frozenset({"len", "range", "int", "bool", "min", "max"})


@builder
def reduce_last_micro_batch(code: Code, off: ir.Call, step: ir.Node | None) -> Fix:
    """Replace the ``False`` that ``off`` passes by a condition for reducing the gradients.

    That is the opposite of the condition that only ``off`` depends on, the condition of the step,
    or the last iteration of the loop of micro-batches; otherwise ``True``. If the step is in the
    other arm of a branch, that arm turns reduction on instead.

    Args:
        step: the optimizer's step, if it is in the same file.
    """
    flag = _flag(code, off)
    choice = _only_choice(code, off)
    if choice is not None:
        call = code.text[off.start : flag.start] + negated(code, choice.test)
        call += code.text[flag.end : off.end]
        return _fix("reduce gradients when this condition is false", _whole(code, choice, call))
    other = _other_arm(code, off, step)
    if other is not None:
        return _fix(
            "turn gradient reduction on before the step's backward", _on(code, off, flag, other)
        )
    condition = next(_conditions(code, off, step), None)
    if condition is None:
        return _fix("reduce gradients in every backward", _argument(code, flag, "True"))
    return _fix(f"reduce gradients when `{condition}`", _argument(code, flag, condition))


def _fix(title: str, edit: Edit) -> Fix:
    return Fix(title, Safety.UNSAFE, (edit,))


def _argument(code: Code, flag: ir.Expr, text: str) -> Edit:
    return code.edit(flag.start, flag.end, text)


def _flag(code: Code, off: ir.Call) -> ir.Constant:
    values = [argument.value for argument in off.args if argument.keyword != "recurse"]
    if len(values) != 1 or not isinstance(values[0], ir.Constant):
        raise NoFixError(
            f"`{code.short(off)}` takes its value from elsewhere; turn reduction on there by hand"
        )
    return values[0]


def _only_choice(code: Code, off: ir.Call) -> ir.If | None:
    """Return the if statement in a loop that contains nothing but ``off``."""
    statement = code.statement(off)
    choice = code.parent(statement)
    if not isinstance(choice, ir.If) or choice.body != (statement,) or choice.orelse:
        return None
    tests_support = any(
        isinstance(node, ir.Call) and isinstance(node.func, ir.Name) and node.func.id == "hasattr"
        for node in ir.walk(choice.test)
    )
    return None if tests_support or _loop(code, off) is None else choice


def _other_arm(code: Code, off: ir.Call, step: ir.Node | None) -> ir.Stmt | None:
    """Return the first statement of the arm that steps, if the other arm contains ``off``."""
    if step is None or code.function(step) is not code.function(off):
        return None
    around = set(code.ancestors(off))
    for above in code.ancestors(step):
        if above not in around:
            continue
        arms = (above.body, above.orelse) if isinstance(above, ir.If) else ()
        apart = [arm for arm in arms if arm and arm[0].start <= step.start < arm[-1].end]
        return apart[0][0] if apart and not _holds_node(apart[0], off) else None
    return None


def _holds_node(arm: tuple[ir.Stmt, ...], node: ir.Node) -> bool:
    return arm[0].start <= node.start < arm[-1].end


def _on(code: Code, off: ir.Call, flag: ir.Expr, first: ir.Stmt) -> Edit:
    """Insert ``off`` with ``True`` as a line before ``first``."""
    receiver = off.func.value if isinstance(off.func, ir.Attribute) else off.func
    if not isinstance(receiver, (ir.Name, ir.Attribute)) or not code.starts_line(first):
        raise NoFixError(
            f"`{code.short(off)}` cannot be repeated before the step's backward; turn reduction on "
            "there by hand"
        )
    call = f"{code.text[off.start : flag.start]}True{code.text[flag.end : off.end]}"
    start, _ = code.extent(first) if code.alone(first) else (code.line_start(first.start), 0)
    return code.insert_lines(start, f"{code.indentation(first)}{call}{code.newline}")


def _whole(code: Code, choice: ir.If, call: str) -> Edit:
    if not code.alone(choice) or code.is_elif(choice) or code.comments(choice.start, choice.end):
        raise NoFixError(
            f"`{code.short(choice)}` shares its lines with other code; change it by hand"
        )
    return code.edit(choice.start, choice.end, call)


def _conditions(code: Code, off: ir.Call, step: ir.Node | None) -> Iterator[str]:
    """Yield the conditions under which a step follows, first the one in the code."""
    if step is None or code.function(step) is not code.function(off):
        return
    around = list(code.ancestors(off))
    if _is_chosen(code, off, step):
        return
    for above in code.ancestors(step):
        if above in around:
            break
        if isinstance(above, ir.If) and step.start < _else(above) and _holds(code, off, above):
            yield code.slice(above.test)
    loop = _loop(code, off)
    if loop is not None and loop not in code.ancestors(step):
        yield from _last(code, loop, off)


def _is_chosen(code: Code, off: ir.Call, step: ir.Node) -> bool:
    """True if ``off`` depends on a branch that the step is not in."""
    stepped = set(code.ancestors(step))
    return any(
        isinstance(above, (ir.If, ir.Case)) and above not in stepped
        for above in code.ancestors(off)
    )


def _else(choice: ir.If) -> int:
    return choice.orelse[0].start if choice.orelse else choice.end


def _holds(code: Code, off: ir.Call, choice: ir.If) -> bool:
    """True if a condition has the same value at ``off`` as at the if statement below."""
    test = choice.test
    if choice.start < off.start or not _is_pure(test):
        return False
    changed = written_between(code, off, off.end, test.start)
    return clash(names_in(test).reads, changed) is None and _is_bound(code, off, test)


def _is_bound(code: Code, off: ir.Call, test: ir.Expr) -> bool:
    """True if nothing that ``test`` reads is assigned in between."""
    return clash(names_in(test).reads, written_between(code, off, off.start, test.start)) is None


def _is_pure(test: ir.Expr) -> bool:
    return all(
        isinstance(node.func, ir.Name) and node.func.id in _PURE
        for node in ir.walk(test)
        if isinstance(node, ir.Call)
    ) and not any(isinstance(node, (ir.NamedExpr, ir.Yield)) for node in ir.walk(test))


def _loop(code: Code, off: ir.Call) -> ir.For | ir.While | None:
    """Return the loop whose body runs ``off`` in each iteration."""
    for above in code.ancestors(off):
        if isinstance(above, (ir.For, ir.While)):
            return above
        if isinstance(above, (ir.Function, ir.ClassDef)):
            return None
    return None


def _last(code: Code, loop: ir.For | ir.While, off: ir.Call) -> Iterator[str]:
    """Yield the condition of the last iteration of ``loop``, if its header counts."""
    if not isinstance(loop, ir.For) or not isinstance(loop.iterable, ir.Call):
        return
    function, args = loop.iterable.func, loop.iterable.args
    if not isinstance(function, ir.Name) or len(args) != 1 or args[0].keyword or args[0].star:
        return
    counted = args[0].value
    if not isinstance(counted, (ir.Name, ir.Attribute, ir.Constant)):
        return
    if clash(names_in(counted).reads, written_between(code, off, loop.start, loop.end)):
        return
    end = code.slice(counted)
    if function.id == "range" and isinstance(loop.target, ir.Name):
        yield f"{loop.target.id} == {end} - 1"
    pair = loop.target
    if function.id == "enumerate" and isinstance(pair, ir.Collection) and len(pair.elements) == 2:
        index = pair.elements[0]
        if isinstance(index, ir.Name) and isinstance(counted, ir.Name):
            yield f"{index.id} == len({end}) - 1"
