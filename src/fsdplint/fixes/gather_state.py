"""Whole state gathered on every rank and written by one of them, in the place of slices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.state_files import ShardedWrite
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import Object, StateDict
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.conditions import Condition, conditions, runs_once
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import clash, dotted, fresh, written_between
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.knowledge.names import DISTRIBUTED

_PATH = re.compile(r"[^\W\d][\w.]*")


@dataclass(frozen=True, slots=True)
class GatheredState:
    """An expression that gives this rank's part of a state, such as ``model.state_dict()``.

    Attributes:
        model: the text of the sharded model, as it can be written in this function.
        optimizer: the text of the optimizer, if it is an optimizer's state.
        keyword: what the gathered state is given to ``node`` as, which is then a call that takes
            the state by itself.
        gather: the text that gathers, where it is not a helper of torch.
    """

    node: ir.Expr
    model: str
    optimizer: str | None = None
    keyword: str = ""
    gather: str = ""


@builder
def gather_state(
    code: Code,
    write: ir.Call,
    states: Sequence[GatheredState],
    guards: Sequence[ir.If],
    *,
    rank_zero: bool = False,
) -> Fix:
    """Replaces each of ``states`` by the gathered one, all in the function of ``write``.

    Args:
        guards: the if statements that let one rank only get to ``write``, around it or before it
            with a body that leaves. Where there is none, ``write`` gets one of its own.
        rank_zero: no other rank calls this function, so that a gather in it would wait for ever.
    """
    if rank_zero:
        raise NoFixError("the function that saves runs on one rank and cannot gather from others")
    for node in (*(state.node for state in states), *guards):
        if code.function(node) is not code.function(write):
            raise NoFixError(f"`{code.short(node)}` is in another function than the write")
    guarded = min(guards, key=lambda guard: guard.start) if guards else _whole_write(code, write)
    place = guarded
    while code.is_elif(place):
        place = code.statement(code.parent(place))
    _check_taken_to_save(code, states, place, write, guards)
    imports = Imports(code, write)
    lines, replaced = _gathers(code, states, imports, write, place)
    if guards:
        edits = _put(code, place, _when_saving(code, guarded, place, write, guards, lines))
    else:
        test = f"{imports.module(DISTRIBUTED, 'dist')}.get_rank() == 0"
        edits = _guard(code, guarded, [*lines, f"if {test}:"], replaced)
    title = "gather the whole state on every rank, and write it on one"
    return Fix(title, Safety.UNSAFE, (*imports.edits(), *edits, *replaced))


@builder
def write_on_one(code: Code, write: ir.Call) -> Fix:
    """Has rank 0 alone write a file."""
    statement = _whole_write(code, write)
    imports = Imports(code, write)
    test = f"{imports.module(DISTRIBUTED, 'dist')}.get_rank() == 0"
    edits = _guard(code, statement, [f"if {test}:"], ())
    return Fix("write it on rank 0 only", Safety.UNSAFE, (*imports.edits(), *edits))


def _whole_write(code: Code, write: ir.Call) -> ir.Stmt:
    """The statement of ``write``, with the file that is opened for it."""
    statement = code.statement(write)
    if not isinstance(statement, ir.Expression) or statement.value is not write:
        raise NoFixError(f"`{code.short(statement)}` does more than the write")
    around = code.parent(statement)
    while isinstance(around, ir.With) and any(map(_opens, around.items)):
        statement, around = around, code.parent(around)
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
    return statement


def _opens(item: ir.WithItem) -> bool:
    call = item.value
    path = dotted(call.func) if isinstance(call, ir.Call) else None
    return path is not None and path.rpartition(".")[2] == "open"


def _gathers(
    code: Code,
    states: Sequence[GatheredState],
    imports: Imports,
    write: ir.Call,
    place: ir.Stmt,
) -> tuple[list[str], list[Edit]]:
    """The assignments to put before ``place``, and the edits that use what they gather.

    A state taken before ``place`` is gathered where it stands.
    """
    names: dict[str, str] = {}
    edits = []
    for state in states:
        text = _call(imports, state)
        if state.node.start >= place.start:
            _check_available(code, state, place)
            if text not in names:
                base = "state_dict" if state.optimizer is None else "optimizer_state"
                names[text] = fresh(code, write, base, names.values())
            text = names[text]
        edits.append(_given(code, state, text))
    return [f"{name} = {text}" for text, name in names.items()], edits


def _given(code: Code, state: GatheredState, text: str) -> Edit:
    if not state.keyword:
        return code.edit(state.node.start, state.node.end, text)
    assert isinstance(state.node, ir.Call)
    return add_argument(code, state.node, f"{state.keyword}={text}")


def _call(imports: Imports, state: GatheredState) -> str:
    if state.gather:
        return state.gather
    of = state.model if state.optimizer is None else f"{state.model}, {state.optimizer}"
    kind = "model" if state.optimizer is None else "optimizer"
    get = imports.name(HELPERS, f"get_{kind}_state_dict")
    options = imports.name(HELPERS, "StateDictOptions")
    return f"{get}({of}, options={options}(full_state_dict=True, cpu_offload=True))"


def _check_available(code: Code, state: GatheredState, place: ir.Stmt) -> None:
    needed = _PATH.findall(f"{state.model} {state.optimizer or ''}")
    changed = clash(needed, written_between(code, place, place.start, state.node.start))
    if changed is not None:
        raise NoFixError(f"`{changed}` changes between the rank test and the state")


def _put(code: Code, place: ir.Stmt, lines: Sequence[str]) -> list[Edit]:
    at, indent = code.line_start(place.start), code.indentation(place)
    text = "".join(indent + line + code.newline for line in lines)
    return [code.insert_lines(at, text)] if lines else []


def _guard(
    code: Code, statement: ir.Stmt, lines: Sequence[str], replaced: Sequence[Edit]
) -> list[Edit]:
    """Puts ``statement`` one level deeper below ``lines``, of which the last opens a block."""
    first, *others = code.code_lines(code.line_start(statement.start), code.after(statement))
    indent = code.indentation(statement)
    text = "".join(indent + line + code.newline for line in lines)
    inside = [at for at in others if not any(e.span.start < at < e.span.end for e in replaced)]
    edits = [code.edit(at, at, code.unit) for at in inside]
    return [code.edit(first, first, text + code.unit), *edits]


def _check_taken_to_save(
    code: Code,
    states: Sequence[GatheredState],
    place: ir.Stmt,
    write: ir.Call,
    guards: Sequence[ir.If],
) -> None:
    """Raises `NoFixError` where a state that is taken above ``place`` may not be written at all."""
    for state in states:
        taken = code.statement(state.node)
        if state.node.start >= place.start or runs_once(code, taken):
            continue
        for condition in conditions(code, taken, write, guards):
            raise NoFixError(
                f"`{code.short(condition.test)}` decides below the state whether it is written, "
                "and a gather above it would run every time; take the state below it"
            )


def _when_saving(
    code: Code,
    guard: ir.Stmt,
    place: ir.Stmt,
    write: ir.Call,
    guards: Sequence[ir.If],
    lines: Sequence[str],
) -> list[str]:
    """Gathers in the steps only that save, where the way to the write also asks for ``step % n``.

    Other conditions may differ from rank to rank, and a gather that some ranks skip hangs.
    """
    tests = _periods(code, guard, write) if place is guard else []
    for condition in conditions(code, place, write, guards) if lines else ():
        if _periodic(condition.test) and _is_unchanged(code, place, condition.test):
            tests.append(condition.text(code))
        elif not runs_once(code, place):
            raise NoFixError(
                f"`{code.short(condition.test)}` also decides whether this writes, and a gather "
                "in front of it would run every time; test it first, on all ranks alike"
            )
    if not tests or not lines:
        return list(lines)
    return [f"if {' and '.join(tests)}:", *(code.unit + line for line in lines)]


def _periods(code: Code, guard: ir.Stmt, write: ir.Call) -> list[str]:
    """What the test of the rank also asks of ``step % n``, for the write to be reached."""
    if not isinstance(guard, ir.If):
        return []
    inside = any(statement.start <= write.start < statement.end for statement in guard.body)
    parts = _parts(guard.test, "and" if inside else "or")
    return [Condition(part, inside).text(code) for part in parts if _periodic(part)]


def _is_unchanged(code: Code, place: ir.Stmt, test: ir.Expr) -> bool:
    needed = _PATH.findall(code.slice(test))
    changed = written_between(code, place, place.start, test.start)
    return not code.breaks(test.start, test.end) and clash(needed, changed) is None


def _parts(test: ir.Expr, op: str) -> Iterator[ir.Expr]:
    chained = isinstance(test, ir.BoolOp) and (test.left.start, test.left.end) == (
        test.start,
        test.end,
    )
    if isinstance(test, ir.BoolOp) and test.op == op and not chained:
        yield from _parts(test.left, op)
        yield from _parts(test.right, op)
    else:
        yield test


def _periodic(test: ir.Expr) -> bool:
    nodes = list(ir.walk(test))
    plain = (ir.Compare, ir.BinOp, ir.Not, ir.Name, ir.Attribute, ir.Constant)
    modulo = any(isinstance(node, ir.BinOp) and node.op == "Modulo" for node in nodes)
    return modulo and all(isinstance(node, plain) for node in nodes)


def gathered_write(program: Program, fact: ShardedWrite) -> Fix | Declined:
    """Have the states of a write gathered on every rank, in the function that writes them."""
    site = fact.write.site
    if any(state.source.calls != site.calls for state in fact.states):
        return Declined("the state is taken in one function and written in another")
    code = Code.of(program.tree(site.path))
    write = site.node
    assert isinstance(write, ir.Call)
    gathered = [_gathered(program, fact.trace, state) for state in fact.states]
    states = [state for state in gathered if state is not None]
    if len(states) < len(gathered):
        return Declined("it is not clear which model the state belongs to")
    local = local_tests(code, site, fact.guards)
    return gather_state(code, write, states, local, rank_zero=len(local) < len(fact.guards))


def local_tests(code: Code, site: Site, guards: Sequence[Guard]) -> list[ir.If]:
    """The tests of ``guards`` that are if statements in the function of a place."""
    function = code.function(site.node)
    tests = [code.statement(guard.test) for guard in guards if guard.path == site.path]
    return [test for test in tests if isinstance(test, ir.If) and code.function(test) is function]


def model_name(
    program: Program, trace: Trace, site: Site, model: Object, optimizer: Object
) -> str | None:
    """What the function of the call at ``site`` calls the model of an optimizer."""
    for call in trace.of(Call):
        if call.names and (call.site.node, call.site.calls) == (site.node, site.calls):
            for name, item in call.names.items():
                if item is model:
                    return name
    for capture in optimizer.captures:
        taken = receiver(capture.source.node)
        here = capture.source.calls == site.calls and capture.module is model
        if here and taken is not None and not program.tree(site.path).is_rebound(taken):
            return program.text(site.path, taken)
    return None


def _gathered(program: Program, trace: Trace, state: StateDict) -> GatheredState | None:
    """The expression to replace, with the texts of its model and optimizer."""
    path, node = state.source.path, state.source.node
    target = receiver(node)
    if target is None or not isinstance(node, ir.Call):
        return None
    text = program.text(path, target)
    if state.optimizer is None:
        return GatheredState(node, text)
    model = model_name(program, trace, state.source, state.owner, state.optimizer)
    return None if model is None else GatheredState(node, model, text)


def receiver(node: ir.Node) -> ir.Expr | None:
    """What the method is called on, of a method call."""
    function = node.func if isinstance(node, ir.Call) else None
    return function.value if isinstance(function, ir.Attribute) else None
