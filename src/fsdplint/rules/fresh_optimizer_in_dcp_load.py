"""Distributed checkpoints whose load reaches no optimizer or no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.facts.state_files import is_stateless
from fsdplint.engine.facts.weights import driven, related
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Trace, Use
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Mapping,
    Object,
    Sequence,
    StateDict,
    Symbol,
    Value,
    resolved,
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
    FILLS,
    HELPERS,
    LOADS,
    PLAIN_PLANNERS,
    SAVES,
    keeps_fresh,
    starts_empty,
)
from fsdplint.knowledge.names import KEYWORD_ONLY
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD504",
    summary="a distributed checkpoint's load restores no state of a model or an optimizer",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


GIVES_BACK = (
    "load_state_dict",
    *(f"{HELPERS}.set_{what}state_dict" for what in ("model_", "optimizer_", "")),
)
_GETTERS = tuple(f"{HELPERS}.get_{what}state_dict" for what in ("model_", "optimizer_", ""))


class Why(Enum):
    """Why what is loaded does not arrive: the state names no tensor yet, or only a copy of one."""

    FRESH = "fresh"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Entry:
    """State at ``keys`` of what a distributed checkpoint saves or loads.

    Attributes:
        given: the call that gave it; None where the model or the optimizer itself stands there.
        owner: the model, or what the optimizer trains.
        optimizer: None where it is a model's state.
    """

    keys: tuple[object, ...]
    value: Value
    given: Call | None
    owner: Object
    optimizer: Object | None

    @property
    def raw(self) -> bool:
        """Whether the optimizer's own ``state_dict`` gave it, here or in the checkpoint's code."""
        return self.optimizer is not None and (
            self.given is None or self.given.receiver is not None
        )


@dataclass(frozen=True, slots=True)
class LostLoad:
    """A distributed checkpoint's load of ``entries`` that restores none of their state."""

    trace: Trace
    call: Call
    why: Why
    entries: tuple[Entry, ...]
    shard: Shard


def lost_loads(program: Program) -> Iterator[LostLoad]:
    """Loads that lose state on every path that comes to them."""
    found: list[LostLoad] = []
    kept: set[object] = set()
    for trace in program.traces:
        for call in trace.calls(*LOADS):
            fact = _load(program, trace, call)
            if fact is None:
                kept.add(call.site.frames())
            else:
                found.append(fact)
    yield from (fact for fact in found if fact.call.site.frames() not in kept)


def saved_entries(program: Program) -> Iterator[tuple[Trace, Call, Entry]]:
    """What the program's distributed checkpoints are written with, as far as it is known."""
    for trace in program.traces:
        for call in trace.calls(*SAVES):
            yield from ((trace, call, entry) for entry in entries(trace, call))


def entries(trace: Trace, call: Call) -> list[Entry]:
    """The states in the first argument of a save or a load."""
    given = call.argument(0, "state_dict")
    return [] if given is None else list(_entries(trace, call, given, ()))


def _entries(trace: Trace, call: Call, value: Value, keys: tuple[object, ...]) -> Iterator[Entry]:
    value = resolved(value)
    if isinstance(value, Mapping) and len(keys) < 4:
        for key, item in value.items.items():
            yield from _entries(trace, call, item, (*keys, key))
    elif isinstance(value, Object) and value.captures and keys:
        yield Entry(keys, value, None, value.captures[0].module, value)
    elif isinstance(value, (Object, StateDict)):
        entry = _given(trace, call, value, keys)
        if entry is not None:
            yield entry


def _given(
    trace: Trace, call: Call, value: Object | StateDict, keys: tuple[object, ...]
) -> Entry | None:
    for source in trace.calls("state_dict", *_GETTERS):
        part = _part(source, value)
        if source.time > call.time or part is None:
            continue
        if source.receiver is not None:
            owner, optimizer = _owner(source.receiver)
        else:
            model, other = source.argument(0, "model"), source.argument(1, "optimizers")
            owner = model if isinstance(model, Object) else None
            of_model = source.name == _GETTERS[0] or part == 0
            optimizer = other if isinstance(other, Object) and not of_model else None
            if optimizer is None and not of_model:
                return None
        return None if owner is None else Entry(keys, value, source, owner, optimizer)
    return None


def _part(source: Call, value: Object | StateDict) -> int | None:
    """Which result of ``source`` the value is, -1 where there is one; None if it is none."""
    if source.result is value:
        return -1
    if isinstance(source.result, Sequence):
        return next((i for i, item in enumerate(source.result.items) if item is value), None)
    held = source.result.elements if isinstance(source.result, Object) else {}
    return next((i for i, item in held.items() if item is value and isinstance(i, int)), None)


def _owner(receiver: Value) -> tuple[Object | None, Object | None]:
    if not isinstance(receiver, Object):
        return None, None
    if receiver.captures:
        return receiver.captures[0].module, receiver
    return receiver, None


def _load(program: Program, trace: Trace, call: Call) -> LostLoad | None:
    if not _is_plain(call):
        return None
    held = entries(trace, call)
    for why, test in ((Why.FRESH, _is_fresh), (Why.COPY, _is_dropped)):
        lost = [(entry, shard) for entry in held if (shard := test(program, trace, call, entry))]
        if lost:
            dropped = [e for e in held if why is Why.FRESH and _is_dropped(program, trace, call, e)]
            known = tuple(dict.fromkeys([*(entry for entry, _ in lost), *dropped]))
            return LostLoad(trace, call, why, known, lost[0][1])
    return None


def _is_plain(call: Call) -> bool:
    """Whether the load fills what it is given, and no planner of the program's own adds to it."""
    planner = call.argument(KEYWORD_ONLY, "planner")
    if call.arguments.open or len(call.arguments.args) > 4:
        return False
    if planner is None or (isinstance(planner, Const) and planner.value is None):
        return True
    cls = planner.cls if isinstance(planner, Object) else None
    return isinstance(cls, Symbol) and cls.name in PLAIN_PLANNERS


def _is_fresh(program: Program, trace: Trace, call: Call, entry: Entry) -> Shard | None:
    """The sharding of what an optimizer trains that has no state when the load asks for it."""
    optimizer, at = entry.optimizer, entry.given or call
    if optimizer is None or not entry.raw or is_stateless(optimizer):
        return None
    if not isinstance(optimizer.cls, Symbol) or not starts_empty(optimizer.cls.name):
        return None
    if entry.given is None and call.name not in FILLS:
        return None
    build = next((b for b in trace.of(BuildOptimizer) if b.optimizer is optimizer), None)
    if build is None or not driven(build.site, call.site):
        return None
    uses = [u for u in trace.uses if build.time < u.time < at.time and optimizer in u.objects]
    if not all(_leaves_fresh(trace, use, optimizer) for use in uses):
        return None
    if _repeats(program, trace, call, optimizer) or _restored(trace, call, entry):
        return None
    shard = _sharded(trace, entry.owner, call.time)
    if shard is None or not program.together(call.site, shard.site):
        return None
    return shard if program.together(call.site, build.site) else None


def _leaves_fresh(trace: Trace, use: Use, optimizer: Object) -> bool:
    """Whether a use gives the optimizer no state; a scheduler's methods do not."""
    own = [c for c in trace.of(Call) if c.time == use.time and isinstance(c.receiver, Object)]
    if own and own[0].receiver is not optimizer:
        cls = own[0].receiver.cls if isinstance(own[0].receiver, Object) else None
        return isinstance(cls, Symbol) and keeps_fresh(cls.name)
    return keeps_fresh(use.name)


def _repeats(program: Program, trace: Trace, call: Call, optimizer: Object) -> bool:
    """Whether a loop around the load steps the optimizer too, as it has when it comes again."""
    around = _loops(program, call.site)
    steps = (step for step in trace.calls("step") if step.receiver is optimizer)
    return any(around & _loops(program, step.site) for step in steps)


def _loops(program: Program, site: Site) -> set[ir.Node]:
    found: set[ir.Node] = set()
    for path, node in site.frames():
        tree = program.tree(path)
        function = tree.function(node)
        for above in tree.ancestors(node):
            if above is function:
                break
            if isinstance(above, (ir.For, ir.While)):
                found.add(above)
    return found


def _restored(trace: Trace, call: Call, entry: Entry) -> bool:
    """Whether the state comes from elsewhere between the load and the next step."""
    for later in trace.calls("step", *GIVES_BACK):
        if later.time < call.time or entry.optimizer not in (later.receiver, *_given_to(later)):
            continue
        if later.name == "step":
            return False
        values = map(resolved, later.arguments.values())
        if entry.given is None or not any(value is entry.value for value in values):
            return True
    return False


def _given_to(call: Call) -> list[Value]:
    return [resolved(value) for value in call.arguments.args[:2]]


def _is_dropped(program: Program, trace: Trace, call: Call, entry: Entry) -> Shard | None:
    """The sharding of what a copy is loaded of, which nothing can give back."""
    given = entry.given
    if given is None or given.site.calls != call.site.calls or given.site.path != call.site.path:
        return None
    shard = _sharded(trace, entry.owner, given.time)
    if shard is None or not _is_copy(program, given, entry, shard):
        return None
    about = [item for item in (entry.owner, entry.optimizer) if item is not None]
    gone = [escape for escape in trace.escapes if escape.time > call.time]
    if any(related(item, other) for item in about for e in gone for other in e.objects):
        return None
    if isinstance(entry.value, Object) and entry.value.escaped is not None:
        return None
    later = [c for c in trace.calls(*GIVES_BACK) if c.time > call.time]
    if any(_may_give(c, entry) for c in later):
        return None
    if not program.together(call.site, shard.site) or _is_read(program, call, entry):
        return None
    return shard


def _may_give(call: Call, entry: Entry) -> bool:
    """Whether a load by `GIVES_BACK` may be one into what ``entry`` is the state of."""
    position = 1 if entry.optimizer is not None else 0
    if call.receiver is not None:
        target: Value | None = resolved(call.receiver)
    elif call.name.endswith(f"set_{'model' if position else 'optimizer'}_state_dict"):
        return False
    else:
        target = call.argument(position, "optimizers" if position else "model")
    if not isinstance(target, Object):
        return True
    known = target.captures or is_module(target)
    return not known or related(target, entry.optimizer or entry.owner)


def _is_copy(program: Program, given: Call, entry: Entry, shard: Shard) -> bool:
    """Whether the tensors of a state are surely others than those that are trained."""
    flat = shard.generation is Generation.FSDP1
    if given.receiver is not None:
        paths = {path for path, _ in (*given.site.frames(), *shard.site.frames())}
        local = any("LOCAL_STATE_DICT" in program.tree(path).text for path in paths)
        return flat and entry.optimizer is None and not local
    options = given.argument(KEYWORD_ONLY, "options")
    full = options.keywords.get("full_state_dict") if isinstance(options, Object) else None
    return flat or (isinstance(full, Const) and full.value is True)


def _sharded(trace: Trace, module: Object, time: int) -> Shard | None:
    """What surely cut a module's parameters before ``time``."""
    around = {module, *module.ancestors()}
    flat = [s for s in trace.of(Shard) if s.cuts_flat and s.module in around and s.time < time]
    if flat:
        return flat[-1]
    shard = sharding_of(trace, module) if is_module(module) or module.sharded else None
    return shard if shard is not None and shard.time < time else None


def _is_read(program: Program, call: Call, entry: Entry) -> bool:
    """Whether the function may read what was loaded, other than what stands under another key."""
    tree, node = program.tree(call.site.path), call.site.node
    argument = state_argument(node) if isinstance(node, ir.Call) else None
    if not isinstance(argument, (ir.Name, ir.DictDisplay)) or entry.given is None:
        return True
    whole = {argument.id} if isinstance(argument, ir.Name) else set()
    names = set(whole)
    statement = tree.statement(entry.given.site.node)
    for target in statement.targets if isinstance(statement, ir.Assign) else ():
        base = target.value if isinstance(target, ir.Subscript) else target
        parts = base.elements if isinstance(base, ir.Collection) else (base,)
        if not all(isinstance(part, ir.Name) for part in parts):
            return True
        names |= {part.id for part in parts if isinstance(part, ir.Name)}
    key = entry.keys[0] if entry.keys else None
    scope = tree.function(node) or tree.module
    whole, names = _also_named(scope, whole), _also_named(scope, names)
    uses = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id in names]
    return any(n is not argument and not _builds(tree, n, whole, key) for n in uses)


def _also_named(scope: ir.Node, names: set[str]) -> set[str]:
    """``names`` with the other names that a scope gives to the same, in any order."""
    alike = [
        {node.value.id, *(t.id for t in node.targets if isinstance(t, ir.Name))}
        for node in ir.walk(scope)
        if isinstance(node, ir.Assign) and isinstance(node.value, ir.Name)
    ]
    found, before = set(names), set[str]()
    while found != before:
        before = found
        found = found.union(*(group for group in alike if group & found))
    return found


def _builds(tree: Tree, name: ir.Name, whole: set[str], key: object) -> bool:
    """Whether a name is there to be bound, to put the state together, or for what is at another
    key."""
    parent = tree.parent(name)
    if isinstance(parent, ir.Subscript) and parent.value is name:
        stored = tree.parent(parent)
        other = isinstance(parent.index, ir.Constant) and parent.index.value != key
        return other or (isinstance(stored, ir.Assign) and stored.value is not parent)
    if isinstance(parent, ir.Collection):
        parent, item = tree.parent(parent), parent
        return isinstance(parent, ir.Assign) and parent.value is not item
    if isinstance(parent, ir.Assign) and parent.value is name:
        return all(isinstance(t, ir.Name) or _is_in(t, whole) for t in parent.targets)
    return isinstance(parent, (ir.Assign, ir.DictDisplay))


def _is_in(target: ir.Expr, names: set[str]) -> bool:
    """Whether an assignment's target is an element of one of ``names``."""
    base = target.value if isinstance(target, ir.Subscript) else None
    return isinstance(base, ir.Name) and base.id in names


def state_argument(node: ir.Call) -> ir.Expr | None:
    """What a save or a load is told to write or to fill."""
    for index, argument in enumerate(node.args):
        if argument.keyword == "state_dict" or (index == 0 and argument.keyword is None):
            return None if argument.star else argument.value
    return None


def reports(program: Program) -> Iterator[Report]:
    for fact in lost_loads(program):
        site = fact.call.site
        yield Report(
            program.span(site),
            _message(program, fact),
            "loads no optimizer state" if fact.why is Why.FRESH else "what this loads is lost",
            (
                program.evidence(fact.shard.site, "the parameters are sharded"),
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
            "the optimizer has taken no step and has no state yet, so this load asks the "
            "checkpoint for none: its moments are not restored"
        )
    assert entry.given is not None  # a copy is what a call gave
    given = program.text(entry.given.site.path, entry.given.site.node)
    return f"this loads into the copy that `{given}` gives, and nothing gives it back"


def _note(entry: Entry, fact: LostLoad) -> str:
    if entry.raw and fact.why is Why.FRESH:
        return "no state is named here before the first step"
    flat = fact.shard.generation is Generation.FSDP1
    return "a copy under FSDP1" if flat else "a gathered copy"


@dataclass(frozen=True, slots=True)
class _State:
    """Where an entry's state is written, and the texts of what it is of.

    Attributes:
        node: the expression that stands for it.
        model: what the function calls the model, "" where the state is the model's own.
    """

    entry: Entry
    node: ir.Expr
    owner: str
    model: str


@builder
def give_back(program: Program, fact: LostLoad) -> Fix:
    """Has the load fill what the helpers give, and gives that to the model or the optimizer.

    The helpers name parameters where an optimizer numbers them, so that the saves of the same
    checkpoint are changed as well.
    """
    call = fact.call.site.node
    assert isinstance(call, ir.Call)
    code = Code.of(program.tree(fact.call.site.path))
    require_exact(code)
    statement = code.statement(call)
    if not isinstance(statement, ir.Expression) or statement.value is not call:
        raise NoFixError(f"`{code.short(statement)}` does more than the load")
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
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
    title = "load into state that names every tensor, and give it back"
    return Fix(title, Safety.UNSAFE, (*imports.edits(), *named, *after, *saves))


def _state(program: Program, trace: Trace, call: Call, entry: Entry) -> _State:
    """What is written for ``entry`` in the function of ``call``, a save or a load."""
    at = call if entry.given is None else entry.given
    node = _written(program, call, entry)
    if (at.site.path, at.site.calls) != (call.site.path, call.site.calls):
        raise NoFixError("the state is taken in another function than the checkpoint's call")
    target = node
    if entry.given is not None:
        code = Code.of(program.tree(call.site.path))
        own = receiver(node)
        if entry.given.receiver is None:
            own = _argument(node, 0 if entry.optimizer is None else 1)
        if own is None:
            raise NoFixError(f"`{code.short(node)}` is not called as a method")
        target = own
    owner, model = program.text(call.site.path, target), ""
    if entry.optimizer is not None:
        if entry.given is not None and entry.given.receiver is None:
            first = _argument(node, 0)
            known = None if first is None else program.text(call.site.path, first)
        else:
            known = model_name(program, trace, at.site, entry.owner, entry.optimizer)
        if known is None:
            raise NoFixError("it is not clear what the optimizer's model is called there")
        model = known
    return _State(entry, node, owner, model)


def _argument(node: ir.Expr, position: int) -> ir.Expr | None:
    plain = [a.value for a in node.args if not a.keyword] if isinstance(node, ir.Call) else []
    return plain[position] if len(plain) > position else None


def _written(program: Program, call: Call, entry: Entry) -> ir.Expr:
    """The expression of an entry: the call that gives it, or the value in the dict display."""
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
        raise NoFixError("the state is not written as one dictionary")
    return display


def _binds(node: ir.Assign, name: str) -> bool:
    return any(isinstance(target, ir.Name) and target.id == name for target in node.targets)


def _key(key: object) -> str:
    if isinstance(key, str) and key.isprintable() and not set(key) & set('"\\'):
        return f'"{key}"'
    raise NoFixError("a key of the state is no plain text")


def _asked(code: Code, imports: Imports, state: _State) -> Edit:
    """The optimizer's state by its helper, which names what the optimizer does not have yet."""
    get = imports.name(HELPERS, "get_optimizer_state_dict")
    text = f"{get}({state.model}, {state.owner})"
    return code.edit(state.node.start, state.node.end, text)


def _name(code: Code, call: ir.Call, edits: list[Edit]) -> tuple[str, list[Edit]]:
    """The name of what is loaded, and the edits that give it one and make its state complete."""
    argument = state_argument(call)
    if isinstance(argument, ir.Name):
        return argument.id, list(edits)
    if argument is None:
        raise NoFixError(f"`{code.short(call)}` is given its state by other arguments")
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
    """The call that gives the loaded state to the optimizer already."""
    setters = (
        "load_state_dict",
        f"{HELPERS}.set_optimizer_state_dict",
        f"{HELPERS}.set_state_dict",
    )
    for later in fact.trace.calls(*setters):
        values = map(resolved, later.arguments.values())
        same = entry.given is not None and any(value is entry.value for value in values)
        if later.time > fact.call.time and same:
            return later
    return None


def _replaced(imports: Imports, code: Code, later: Call, state: _State) -> list[Edit]:
    """Turns ``optimizer.load_state_dict(…)`` into the helper that reads names."""
    if later.name != "load_state_dict":
        return []
    node = later.site.node
    here = (later.site.path, code.function(node)) if later.site.path == code.path else None
    if here != (code.path, code.function(state.node)) or not isinstance(node, ir.Call):
        raise NoFixError("the state is given to the optimizer in another function")
    if len(node.args) != 1:
        raise NoFixError(f"`{code.short(node)}` has arguments of its own")
    put = imports.name(HELPERS, "set_optimizer_state_dict")
    given = code.slice(node.args[0].value)
    return [code.edit(node.start, node.end, f"{put}({state.model}, {state.owner}, {given})")]


def _saves(program: Program, code: Code, imports: Imports, lost: Iterable[_State]) -> list[Edit]:
    """The edits of the saves that write the optimizers' numbered state under the same keys."""
    keys = {state.entry.keys for state in lost}
    seen: set[ir.Node] = {state.node for state in lost}
    edits: list[Edit] = []
    files = {code.path: (code, imports)}
    found: set[tuple[object, ...]] = set()
    for trace, call, entry in saved_entries(program):
        if entry.keys not in keys or entry.optimizer is None:
            continue
        found.add(entry.keys)
        if not entry.raw:
            continue
        state = _state(program, trace, call, entry)
        if state.node in seen:
            continue
        seen.add(state.node)
        edits.append(_of_save(program, files, call.site, state))
    if found < keys:
        raise NoFixError(
            "no save of this checkpoint is seen, and what `optimizer.state_dict()` saved "
            "does not have the names that the helper asks for"
        )
    others = [other for path, (_, other) in files.items() if path != code.path]
    return [*(edit for other in others for edit in other.edits()), *edits]


def _of_save(
    program: Program, files: dict[str, tuple[Code, Imports]], site: Site, state: _State
) -> Edit:
    if site.path not in files:
        other = Code.of(program.tree(site.path))
        require_exact(other)
        files[site.path] = (other, Imports(other, site.node))
    code, imports = files[site.path]
    taken = code.statement(state.node)
    for condition in () if runs_once(code, taken) else conditions(code, taken, site.node, ()):
        raise NoFixError(
            f"`{code.short(condition.test)}` decides below the save's state whether it is saved, "
            "and the helper above it would run every time; take the state below it"
        )
    return _asked(code, imports, state)
