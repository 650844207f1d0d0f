"""Loads of distributed checkpoints that restore nothing on any path, by `facts/lost_loads`.

The fix loads into the state that PyTorch's helpers return, which names every tensor, and changes
the saves that write the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.lost_loads import (
    Entry,
    LostLoad,
    Why,
    lost_loads,
    saved_entries,
    state_argument,
)
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder, require_exact
from fsdplint.fixes.conditions import conditions, runs_once
from fsdplint.fixes.gather_state import model_name, receiver
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import (
    HELPERS,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD504",
    summary="a distributed checkpoint is loaded into an empty optimizer state or an unused copy",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in lost_loads(program):
        site = fact.call.site
        yield Report(
            program.span(site),
            _message(program, fact),
            "restores no optimizer state" if fact.why is Why.FRESH else "loads into an unused copy",
            (
                program.evidence(fact.shard.site, "parameters are sharded here"),
                *(
                    program.evidence(entry.given.site, _note(entry, fact))
                    for entry in fact.entries
                    if entry.given is not None
                ),
                *program.conditions(site, fact.shard.site),
            ),
            partial(give_back, program, fact),
        )


def _message(program: Program, fact: LostLoad) -> str:
    entry = fact.entries[0]
    if fact.why is Why.FRESH:
        return (
            "this load restores no optimizer state: the optimizer has not stepped yet, so its "
            "state dict is empty"
        )
    assert entry.given is not None  # a call returned the copy
    given = program.text(entry.given.site.path, entry.given.site.node)
    return (
        f"this loads into the copy that `{given}` returns, and nothing sets it on the "
        f"{'model' if entry.optimizer is None else 'optimizer'}: the loaded state is lost"
    )


def _note(entry: Entry, fact: LostLoad) -> str:
    if entry.raw and fact.why is Why.FRESH:
        return "empty before the first step"
    flat = fact.shard.generation is Generation.FSDP1
    return "returns a copy under FSDP1" if flat else "returns a gathered copy"


@dataclass(frozen=True, slots=True)
class _State:
    """The expression of an entry's state, and the texts of its owner.

    Attributes:
        node: the expression of the state.
        owner: the text of the model or the optimizer that has the state.
        model: the text of the optimizer's model, "" if the state is a model's.
    """

    entry: Entry
    node: ir.Expr
    owner: str
    model: str


@builder
def give_back(program: Program, fact: LostLoad) -> Fix:
    """Load into the helpers' state, and set it on the model or the optimizer.

    The helpers name parameters where an optimizer numbers them, so the saves of the same
    checkpoint change as well.
    """
    call = fact.call.site.node
    assert isinstance(call, ir.Call)
    code = Code.of(program.tree(fact.call.site.path))
    require_exact(code)
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or statement.value is not call:
        raise NoFixError(
            f"`{code.short(statement)}` does more than load; set the loaded state by hand"
        )
    if not code.alone(statement):
        raise NoFixError(
            f"`{code.short(statement)}` shares its line with other code; put it on its own line"
        )
    states = [_state(program, fact.trace, fact.call, entry) for entry in fact.entries]
    imports = Imports(code, call)
    edits = [_asked(code, imports, state) for state in states if state.entry.raw]
    name, named = _name(code, call, edits)
    lines: list[str] = []
    for state in states:
        given = name + "".join(f"[{_key(key)}]" for key in state.entry.keys)
        later = _given_later(fact, state.entry)
        if later is None:
            lines.append(_put(code, imports, state, given))
        else:
            named += _replaced(imports, code, later, state)
    indent = code.indentation(statement)
    text = "".join(indent + line + code.newline for line in lines)
    after = [code.insert_lines(code.after(statement), text)] if lines else []
    saves = _saves(program, code, imports, [state for state in states if state.entry.raw])
    title = "load into the state of PyTorch's helpers and set it afterwards"
    return Fix(title, Safety.UNSAFE, (*imports.edits(), *named, *after, *saves))


def _state(program: Program, trace: Trace, call: Call, entry: Entry) -> _State:
    """Return the expression of ``entry`` in the function of ``call``, a save or a load."""
    at = call if entry.given is None else entry.given
    node = _written(program, call, entry)
    if (at.site.path, at.site.calls) != (call.site.path, call.site.calls):
        raise NoFixError(
            "the state dict is built in another function than the checkpoint call; change both by "
            "hand"
        )
    target = node
    if entry.given is not None:
        code = Code.of(program.tree(call.site.path))
        own = receiver(node)
        if entry.given.receiver is None:
            own = _argument(node, 0 if entry.optimizer is None else 1)
        if own is None:
            raise NoFixError(
                f"`{code.short(node)}` is not called as a method here; replace it by hand"
            )
        target = own
    owner, model = program.text(call.site.path, target), ""
    if entry.optimizer is not None:
        if entry.given is not None and entry.given.receiver is None:
            first = _argument(node, 0)
            known = None if first is None else program.text(call.site.path, first)
        else:
            known = model_name(program, trace, at.site, entry.owner, entry.optimizer)
        if known is None:
            raise NoFixError(
                "the optimizer's model has no known name here; use `get_optimizer_state_dict` by "
                "hand"
            )
        model = known
    return _State(entry, node, owner, model)


def _argument(node: ir.Expr, position: int) -> ir.Expr | None:
    plain = [a.value for a in node.args if not a.keyword] if isinstance(node, ir.Call) else []
    return plain[position] if len(plain) > position else None


def _written(program: Program, call: Call, entry: Entry) -> ir.Expr:
    """Return the expression of an entry: the call that returns it, or a value in a dict."""
    if entry.given is not None:
        assert isinstance(entry.given.site.node, ir.Call)
        return entry.given.site.node
    tree = program.tree(call.site.path)
    assert isinstance(call.site.node, ir.Call)
    display: ir.Node | None = state_argument(call.site.node)
    if isinstance(display, ir.Name):
        scope = tree.function(call.site.node) or tree.module
        name = display.id
        bound = [n for n in ir.walk(scope) if isinstance(n, ir.Assign) and _binds(n, name)]
        display = bound[0].value if len(bound) == 1 else None
    for key in entry.keys:
        items = display.items if isinstance(display, ir.DictDisplay) else ()
        values = [v for k, v in items if isinstance(k, ir.Constant) and k.value == key]
        display = values[0] if len(values) == 1 else None
    if not isinstance(display, (ir.Name, ir.Attribute)):
        raise NoFixError(
            "the state is not a dict literal here; use `get_optimizer_state_dict` by hand"
        )
    return display


def _binds(node: ir.Assign, name: str) -> bool:
    return any(isinstance(target, ir.Name) and target.id == name for target in node.targets)


def _key(key: object) -> str:
    if isinstance(key, str) and key.isprintable() and not set(key) & set('"\\'):
        return f'"{key}"'
    raise NoFixError("a key of the state is not a plain string; set the loaded state by hand")


def _asked(code: Code, imports: Imports, state: _State) -> Edit:
    """Return the edit that takes the optimizer's state with the helper, which names all of it."""
    get = imports.name(HELPERS, "get_optimizer_state_dict")
    text = f"{get}({state.model}, {state.owner})"
    return code.edit(state.node.start, state.node.end, text)


def _name(code: Code, call: ir.Call, edits: list[Edit]) -> tuple[str, list[Edit]]:
    """Return the name of the loaded state, and the edits that name and complete it."""
    argument = state_argument(call)
    if isinstance(argument, ir.Name):
        return argument.id, list(edits)
    if argument is None:
        raise NoFixError(
            f"`{code.short(call)}` does not show its state argument; set the loaded state by hand"
        )
    name, text = fresh(code, call, "state_dict"), code.slice(argument)
    outside = []
    for edit in sorted(edits, key=lambda edit: -edit.span.start):
        start, end = edit.span.start - argument.start, edit.span.end - argument.start
        if start >= 0 and end <= len(text):
            text = text[:start] + edit.text + text[end:]
        else:
            outside.append(edit)
    statement = code.statement(call)
    line = f"{code.indentation(statement)}{name} = {text}{code.newline}"
    above = code.insert_lines(code.line_start(statement.start), line)
    return name, [above, code.edit(argument.start, argument.end, name), *outside]


def _put(code: Code, imports: Imports, state: _State, given: str) -> str:
    entry = state.entry
    options = ""
    if entry.given is not None and entry.given.receiver is None:
        assert isinstance(state.node, ir.Call)
        named = [a for a in state.node.args if a.keyword == "options"]
        options = f", options={code.slice(named[0].value)}" if named else ""
    if entry.optimizer is not None:
        put = imports.name(HELPERS, "set_optimizer_state_dict")
        return f"{put}({state.model}, {state.owner}, {given}{options})"
    if entry.given is not None and entry.given.receiver is not None:
        return f"{state.owner}.load_state_dict({given})"
    return f"{imports.name(HELPERS, 'set_model_state_dict')}({state.owner}, {given}{options})"


def _given_later(fact: LostLoad, entry: Entry) -> Call | None:
    """Return the call that already sets the loaded state on the optimizer."""
    setters = (
        "load_state_dict",
        f"{HELPERS}.set_optimizer_state_dict",
        f"{HELPERS}.set_state_dict",
    )
    for later in fact.trace.calls(*setters):
        values = map(followed, later.arguments.values())
        same = entry.given is not None and entry.value in values
        if later.time > fact.call.time and same:
            return later
    return None


def _replaced(imports: Imports, code: Code, later: Call, state: _State) -> list[Edit]:
    """Return edits from ``optimizer.load_state_dict(…)`` to the helper that reads names."""
    if later.name != "load_state_dict":
        return []
    node = later.site.node
    here = (later.site.path, code.function(node)) if later.site.path == code.path else None
    if here != (code.path, code.function(state.node)) or not isinstance(node, ir.Call):
        raise NoFixError(
            "another function loads the state into the optimizer; use `set_optimizer_state_dict` "
            "there by hand"
        )
    if len(node.args) != 1:
        raise NoFixError(
            f"`{code.short(node)}` has extra arguments; use `set_optimizer_state_dict` by hand"
        )
    put = imports.name(HELPERS, "set_optimizer_state_dict")
    given = code.slice(node.args[0].value)
    return [code.edit(node.start, node.end, f"{put}({state.model}, {state.owner}, {given})")]


def _saves(program: Program, code: Code, imports: Imports, lost: Iterable[_State]) -> list[Edit]:
    """Return the edits of the saves that write optimizers' numbered state under these keys."""
    keys = {state.entry.keys for state in lost}
    seen: set[ir.Node] = {state.node for state in lost}
    edits: list[Edit] = []
    found: set[tuple[object, ...]] = set()
    for trace, call, entry in saved_entries(program):
        if entry.keys not in keys or entry.optimizer is None:
            continue
        found.add(entry.keys)
        state = _state(program, trace, call, entry) if entry.raw else None
        if state is not None and state.node not in seen:
            seen.add(state.node)
            _check_saved(code, call.site, state)
            edits.append(_asked(code, imports, state))
    if found < keys:
        raise NoFixError(
            "the code that saves this checkpoint was not found, and the helpers cannot read what "
            "`optimizer.state_dict()` saved; change the save and the load by hand"
        )
    return edits


def _check_saved(code: Code, save: Site, state: _State) -> None:
    """Raise ``NoFixError`` unless the helper can replace a save's state."""
    if save.path != code.path:
        raise NoFixError(
            "the checkpoint is saved in another file; use `get_optimizer_state_dict` in both by "
            "hand"
        )
    taken = code.statement(state.node)
    for condition in () if runs_once(code, taken) else conditions(code, taken, save.node, ()):
        raise NoFixError(
            f"`{code.short(condition.test)}` decides after the state dict is taken whether it is "
            "saved, so the helper would run every time; take the state below that test"
        )
