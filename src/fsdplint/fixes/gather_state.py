"""Full state gathered on every rank and written by one of them, instead of shards."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import may_be_alone
from fsdplint.engine.facts.state_files import ShardedWrite
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import Object, StateDict
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder, is_docstring
from fsdplint.fixes.conditions import Condition, conditions, runs_once
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import clash, dotted, fresh, written_between
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.knowledge.launch import TELL_LOCAL
from fsdplint.knowledge.names import DISTRIBUTED

_REPEATS = (ir.For, ir.While, ir.Comprehension, ir.Lambda, ir.Function)
_PATH = re.compile(r"[^\W\d][\w.]*")


@dataclass(frozen=True, slots=True)
class GatheredState:
    """An expression that returns this rank's part of a state, such as ``model.state_dict()``.

    Attributes:
        model: the text of the sharded model, as this function can write it.
        optimizer: the text of the optimizer, if the state is an optimizer's.
        keyword: the argument by which ``node`` gets the gathered state, if ``node`` is a call that
            otherwise takes the state itself.
        gather: the text of the gathering call, if it is not one of PyTorch's helpers.
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
    several: bool = False,
    rank_zero: bool = False,
    every_time: bool = False,
    alone: bool = False,
) -> Fix:
    """Replace each of ``states`` by the gathered one, all in the function of ``write``.

    Args:
        guards: the if statements by which only one rank reaches ``write``: around it, or before it
            with a body that leaves. If there is none, ``write`` gets a new one.
        several: other ranks than rank 0 may pass ``guards``, so that they need the state, too.
        rank_zero: only some ranks call this function, so a gather in it would hang.
        every_time: gather also where other conditions decide that nothing is written, unless that
            would be in each training step.
        alone: the program also runs without a process group.
    """
    if rank_zero:
        raise NoFixError(
            "only some ranks call this function, so gathering in it would hang; gather by hand "
            "where every rank runs"
        )
    for node in (*(state.node for state in states), *guards):
        if code.function(node) is not code.function(write):
            raise NoFixError(
                f"`{code.short(node)}` is not in the function that writes the file; gather by hand "
                "where every rank runs"
            )
    guarded = min(guards, key=lambda guard: guard.start) if guards else _whole_write(code, write)
    place = guarded
    while code.is_elif(place):
        place = code.statement(code.parent(place))
    _check_taken_to_save(code, states, place, write, guards)
    imports = Imports(code, write)
    lines, replaced = _gathers(code, states, imports, write, place, everywhere=several)
    if guards:
        lines = _when_saving(code, guarded, place, write, guards, lines, every_time)
        edits = _put(code, place, lines)
    else:
        dist = imports.module(DISTRIBUTED, "dist")
        test = f"not {dist}.is_initialized() or " * alone + f"{dist}.get_rank() == 0"
        edits = _guard(code, guarded, [*lines, f"if {test}:"], replaced)
    title = "gather the full state on every rank and write it on one"
    return Fix(title, Safety.UNSAFE, (*imports.edits(), *edits, *replaced))


@builder
def gather_on_entry(
    code: Code, states: Sequence[GatheredState], *, alone: bool, on_nodes: bool = False
) -> Fix:
    """Gather all of ``states`` in a function that one rank called, which the others leave then.

    Every rank calls the function afterwards. It gathers first, so that the other ranks do nothing
    else in it, or behind assignments to what is gathered, and get None of it. If the program also
    runs ``alone``, it may have no process group. ``on_nodes``, one rank of each node called it.
    """
    first = min((state.node for state in states), key=lambda node: node.start)
    function = code.function(first)
    if function is None or function.is_generator:
        raise NoFixError("only some ranks run this code; gather the state by hand")
    for state in states:
        around = itertools.takewhile(lambda node: node is not function, code.ancestors(state.node))
        if any(isinstance(node, _REPEATS) for node in around):
            raise NoFixError("the state is taken in a loop of a function that only some ranks call")
    imports = Imports(code, first)
    place, *_ = [each for each in function.body if not is_docstring(each)]
    try:
        lines, replaced = _gathers(code, states, imports, first, place, everywhere=on_nodes)
    except NoFixError:
        above = [each for each in function.body if each.end <= first.start]
        if not all(isinstance(each, ir.Assign) or is_docstring(each) for each in above):
            raise
        place = next(each for each in function.body if each.end > first.start)
        lines, replaced = _gathers(code, states, imports, first, place, everywhere=on_nodes)
    dist = imports.module(DISTRIBUTED, "dist")
    rank = f"{dist}.get_rank()"
    rank = f"{dist}.get_node_local_rank({rank})" if on_nodes else rank
    test = f"{dist}.is_initialized() and " * alone + f"{rank} != 0"
    returns = (n for n in code.nodes_of(function) if isinstance(n, ir.Return))
    nothing = "return None" if any(each.value is not None for each in returns) else "return"
    lines += [f"if {test}:", f"{code.unit}{nothing}"]
    edits = (*imports.edits(), *_put(code, place, lines), *replaced)
    return Fix("gather the full state on every rank", Safety.UNSAFE, edits)


@builder
def write_on_one(code: Code, write: ir.Call) -> Fix:
    """Put a write under a test of rank 0."""
    statement = _whole_write(code, write)
    imports = Imports(code, write)
    test = f"{imports.module(DISTRIBUTED, 'dist')}.get_rank() == 0"
    edits = _guard(code, statement, [f"if {test}:"], ())
    return Fix("write the file on rank 0 only", Safety.UNSAFE, (*imports.edits(), *edits))


def _whole_write(code: Code, write: ir.Call) -> ir.Stmt:
    """Return the statement of ``write``, with the ``with`` statements that open its file."""
    statement = code.statement(write)
    if not isinstance(statement, ir.Expression) or statement.value is not write:
        raise NoFixError(
            f"`{code.short(statement)}` does more than write the file; put the write under a test "
            "of the rank by hand"
        )
    around = code.parent(statement)
    while isinstance(around, ir.With) and any(map(_opens, around.items)):
        statement, around = around, code.parent(around)
    if not code.alone(statement):
        raise NoFixError(
            f"`{code.short(statement)}` shares its line with other code; put it on its own line"
        )
    return statement


def _opens(item: ir.WithItem) -> bool:
    call = item.value
    path = dotted(call.func) if isinstance(call, ir.Call) else None
    return path is not None and path.rpartition(".")[2] == "open"


def _gathers(
    code: Code,
    states: Sequence[GatheredState],
    imports: Imports,
    use: ir.Expr,
    place: ir.Stmt,
    *,
    everywhere: bool = False,
) -> tuple[list[str], list[Edit]]:
    """Return the assignments to put before ``place``, and the edits that use their results.

    The names are new in the function of ``use``. A state taken before ``place`` is gathered where
    it is.
    """
    names: dict[str, str] = {}
    edits = []
    # That of a model first: it reshards what an evaluation leaves whole, on which others fail.
    for state in sorted(states, key=lambda each: each.optimizer is not None):
        text = _call(imports, state, everywhere=everywhere)
        if state.node.start >= place.start:
            _check_available(code, state, place)
            if text not in names:
                base = "state_dict" if state.optimizer is None else "optimizer_state"
                names[text] = fresh(code, use, base, names.values())
            text = names[text]
        elif _is_used_beside(code, state, place):
            text = _call(imports, state, everywhere=True)
        edits.append(_given(code, state, text))
    return [f"{name} = {text}" for text, name in names.items()], edits


def _given(code: Code, state: GatheredState, text: str) -> Edit:
    if not state.keyword:
        return code.edit(state.node.start, state.node.end, text)
    assert isinstance(state.node, ir.Call)
    return add_argument(code, state.node, f"{state.keyword}={text}")


def _is_used_beside(code: Code, state: GatheredState, place: ir.Stmt) -> bool:
    """True if a variable that the state is taken for is read outside of ``place``, too."""
    taken = code.statement(state.node)
    targets = taken.targets if isinstance(taken, ir.Assign) else ()
    names = {target.id for target in targets if isinstance(target, ir.Name)}
    nodes = code.nodes_of(code.scope(state.node)) if names else ()
    uses = [n for n in nodes if isinstance(n, ir.Name) and n.id in names and n not in targets]
    return any(not place.start <= use.start < place.end for use in uses)


def _call(imports: Imports, state: GatheredState, *, everywhere: bool = False) -> str:
    if state.gather:
        return state.gather
    of = state.model if state.optimizer is None else f"{state.model}, {state.optimizer}"
    kind = "model" if state.optimizer is None else "optimizer"
    get = imports.name(HELPERS, f"get_{kind}_state_dict")
    options = imports.name(HELPERS, "StateDictOptions")
    offload = "" if everywhere else ", cpu_offload=True"  # gives other ranks nothing
    return f"{get}({of}, options={options}(full_state_dict=True{offload}))"


def _check_available(code: Code, state: GatheredState, place: ir.Stmt) -> None:
    needed = _PATH.findall(f"{state.model} {state.optimizer or ''}")
    changed = clash(needed, written_between(code, place, place.start, state.node.start))
    if changed is not None:
        raise NoFixError(
            f"`{changed}` changes between the rank test and the state dict; gather above the test "
            "by hand"
        )


def _put(code: Code, place: ir.Stmt, lines: Sequence[str]) -> list[Edit]:
    at, indent = code.line_start(place.start), code.indentation(place)
    text = "".join(indent + line + code.newline for line in lines)
    return [code.insert_lines(at, text)] if lines else []


def _guard(
    code: Code, statement: ir.Stmt, lines: Sequence[str], replaced: Sequence[Edit]
) -> list[Edit]:
    """Indent ``statement`` one level under ``lines``, the last of which opens a block."""
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
    """Raise `NoFixError` if a state that is taken above ``place`` may not be written at all."""
    for state in states:
        taken = code.statement(state.node)
        if state.node.start >= place.start or runs_once(code, taken):
            continue
        for condition in conditions(code, taken, write, guards):
            raise NoFixError(
                f"`{code.short(condition.test)}` decides after the state dict is taken whether it "
                "is written, so a gather would run every time; take the state below that test"
            )


def _when_saving(
    code: Code,
    guard: ir.Stmt,
    place: ir.Stmt,
    write: ir.Call,
    guards: Sequence[ir.If],
    lines: Sequence[str],
    every_time: bool,
) -> list[str]:
    """Return lines that gather only in steps that save, if the write also tests ``step % n``.

    Other conditions may differ between ranks, and a gather that some ranks skip hangs.
    """
    tests = _periods(code, guard, write) if place is guard else []
    for condition in conditions(code, place, write, guards) if lines else ():
        agreed = _periodic(condition.test) or _asks_the_same(code, condition.test, tests)
        if agreed and _is_unchanged(code, place, condition.test):
            tests.append(condition.text(code))
        elif not (
            runs_once(code, place) or (every_time and (tests or _between_steps(code, place)))
        ):
            raise NoFixError(
                f"`{code.short(condition.test)}` also decides whether the file is written, so a "
                "gather above the rank test would run every time; test it first, on every rank"
            )
    if not tests or not lines:
        return list(lines)
    return [f"if {' and '.join(tests)}:", *(code.unit + line for line in lines)]


def _periods(code: Code, guard: ir.Stmt, write: ir.Call) -> list[str]:
    """Return the conditions on ``step % n`` in the rank test that the write depends on."""
    if not isinstance(guard, ir.If):
        return []
    inside = any(statement.start <= write.start < statement.end for statement in guard.body)
    parts = _parts(guard.test, "and" if inside else "or")
    return [Condition(part, inside).text(code) for part in parts if _periodic(part)]


def _between_steps(code: Code, place: ir.Stmt) -> bool:
    """True if the innermost loop around ``place`` does not itself make training steps."""
    loops = (n for n in code.ancestors(place) if isinstance(n, (ir.For, ir.While)))
    loop = next(loops, None)
    if loop is None:
        return False  # the loop around calls of this function may make them
    inner = [node for node in ir.walk(loop) if isinstance(node, (ir.For, ir.While))]
    steps = [n for n in ir.walk(loop) if isinstance(n, ir.Call) and _is_backward(n)]
    return all(any(i is not loop and i.start <= s.start < i.end for i in inner) for s in steps)


def _is_backward(call: ir.Call) -> bool:
    return ir.last_name(call.func) in ("backward", "step")


def _asks_the_same(code: Code, test: ir.Expr, tests: Sequence[str]) -> bool:
    """True if ``test`` reads only what ``tests`` do, as ``step > 0`` besides ``step % n``."""
    needed = set(_PATH.findall(code.slice(test)))
    return bool(needed) and needed <= set(_PATH.findall(" ".join(tests)))


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
    """Gather the states of a write on every rank, in the function that writes them."""
    site = fact.write.site
    if any(state.source.calls != site.calls for state in fact.states):
        return Declined(
            "the state dict is taken in one function and written in another; gather it by hand "
            "where it is taken"
        )
    code = Code.of(program.tree(site.path))
    write = site.node
    assert isinstance(write, ir.Call)
    found = [gathered(program, fact.trace, state) for state in fact.states]
    states = [state for state in found if state is not None]
    if len(states) < len(found):
        return Declined("the model of this state has no known name here; gather the state by hand")
    local = local_tests(code, site, fact.guards)
    alone = may_be_alone(program, site)
    rank_zero = len(local) < len(fact.guards)
    several = several_pass(fact.guards)
    return gather_state(
        code, write, states, local, several=several, rank_zero=rank_zero, alone=alone
    )


def several_pass(guards: Sequence[Guard]) -> bool:
    """True if there are ``guards`` and others than rank 0 of the whole run may pass all of them.

    The rank among those of one node is 0 on each node.
    """
    one = (each.ranks == {0} and TELL_LOCAL.isdisjoint(each.rank_sources) for each in guards)
    return bool(guards) and not any(one)


def on_each_node(guards: Sequence[Guard]) -> bool:
    """True if rank 0 of each node passes ``guards``."""
    local = (each.ranks == {0} and not TELL_LOCAL.isdisjoint(each.rank_sources) for each in guards)
    return several_pass(guards) and any(local)


def local_tests(code: Code, site: Site, guards: Sequence[Guard]) -> list[ir.If]:
    """Return the tests of ``guards`` that are if statements in the function of ``site``."""
    function = code.function(site.node)
    tests = [code.statement(guard.test) for guard in guards if guard.path == site.path]
    return [test for test in tests if isinstance(test, ir.If) and code.function(test) is function]


def model_name(
    program: Program, trace: Trace, site: Site, model: Object, optimizer: Object
) -> str | None:
    """Return the text of an optimizer's module in the function of the call at ``site``.

    That is ``model`` if no parameters show, and a list for those of several models.
    """
    models = list(dict.fromkeys(each.module for each in optimizer.captures)) or [model]
    named = {
        name: item
        for call in trace.of(Call)
        if call.names and (call.site.node, call.site.calls) == (site.node, site.calls)
        for name, item in call.names.items()
    }
    around = [[each, *each.ancestors()] for each in models]
    whole = [name for name, item in named.items() if all(item in each for each in around)]
    if whole:
        return min(whole, key=lambda name: around[0].index(named[name]))
    texts = [
        next((name for name, item in named.items() if item is each), None)
        or _captured_name(program, site, each, optimizer)
        for each in models
    ]
    if len(texts) == 1 or None in texts:
        return texts[0] if len(texts) == 1 else None
    imports = Imports(Code.of(program.tree(site.path)), site.node)
    torch = imports.module("torch", "torch")
    listed = f"{torch}.nn.ModuleList([{', '.join(filter(None, texts))}])"
    return None if list(imports.edits()) else listed


def _captured_name(program: Program, site: Site, model: Object, optimizer: Object) -> str | None:
    """Return the name that a function takes an optimizer's parameters of ``model`` by."""
    for capture in optimizer.captures:
        taken = receiver(capture.source.node)
        here = capture.source.calls == site.calls and capture.module is model
        if here and taken is not None and not program.tree(site.path).is_rebound(taken):
            return program.text(site.path, taken)
    return None


def gathered(program: Program, trace: Trace, state: StateDict) -> GatheredState | None:
    """Return the expression to replace, with the texts of its model and optimizer."""
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
    """Return the object of a method call."""
    function = node.func if isinstance(node, ir.Call) else None
    return function.value if isinstance(function, ir.Attribute) else None
