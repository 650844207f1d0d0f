"""Functions and classes: what their statements bind, and what calling a class makes."""

from __future__ import annotations

from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.interpreter import optimizers, tracking
from fsdplint.engine.interpreter.access import open_field, setter_name
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.functions import invoke
from fsdplint.engine.interpreter.live import note_live
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.state import NEVER, Flow, Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    Const,
    FunctionValue,
    ModuleScope,
    Object,
    Origin,
    Partial,
    Scope,
    Sequence,
    Symbol,
    Taint,
    Value,
    class_names,
    followed,
)
from fsdplint.knowledge.data import DATA_LOADERS, DISTRIBUTED_SAMPLERS
from fsdplint.knowledge.launch import COMMAND, COMMANDS, SETTINGS
from fsdplint.knowledge.packages import may_set_up
from fsdplint.knowledge.ranks import FIRST_ONLY, FIRST_ONLY_METHODS


def function_def(state: PathState, node: ir.FunctionDef, frame: Frame) -> Flow:
    """Bind a function, or a decorator's wrapper that only some ranks run it through."""
    made = FunctionValue(node.function, frame.scope)
    if (setter := setter_name(node.function)) is not None:
        frame.scope.names[setter] = made
        return Flow.NEXT
    frame.scope.names[node.function.name] = made
    wrapper = _decorate(state, node.function.decorators, made, frame)
    if wrapper is not None and _tells_ranks_apart(state, wrapper):
        frame.scope.names[node.function.name] = wrapper
    return Flow.NEXT


def _tells_ranks_apart(state: PathState, wrapper: FunctionValue) -> bool:
    """True if a wrapper tests the rank, so that some ranks may skip the function.

    It is asked once per wrapper, not on each path: a test may construct half of the program.
    """
    closure = wrapper.scope.names.items() if wrapper.scope.parent else ()
    key = (wrapper.function, *((name, value.taint) for name, value in closure))
    known = state.project.tells_ranks_apart
    if key not in known:
        known[key] = _tests_the_rank(state, wrapper)
    return known[key]


def _tests_the_rank(state: PathState, wrapper: FunctionValue) -> bool:
    names = {parameter.name: state.unknown() for parameter in wrapper.function.parameters}
    frame = Frame(Scope({**names}, wrapper.scope, wrapper.scope.unit), wrapper.scope.unit)
    nodes = [node for statement in wrapper.function.body for node in ir.walk(statement)]
    tests = [node.test for node in nodes if isinstance(node, (ir.If, ir.Case, ir.Conditional))]
    group = state.group
    state.importing += 1
    try:
        return any(state.evaluate(test, frame).taint & Taint.RANK for test in tests)
    finally:
        state.importing -= 1
        state.group = group  # the wrapper does not run here


def _decorate(
    state: PathState, decorators: Items[ir.Expr], made: Value, frame: Frame
) -> FunctionValue | None:
    """Apply decorators; return the function that the last of them replaces the original by."""
    wrapper = None
    for decorator in reversed(decorators):
        value = followed(state.evaluate(decorator, frame))
        if isinstance(value, Symbol) and may_set_up(value.name):
            state.note_unread_code()  # it runs before what it decorates
        if isinstance(value, FunctionValue):
            result = followed(invoke(state, value, [made], {}, frame, decorator))
            if isinstance(result, FunctionValue) and result is not made:
                wrapper = result
        elif isinstance(value, Partial) and isinstance(value.function, Symbol):
            _register_command(state, value.function, value.args, made)
        elif isinstance(made, FunctionValue) and _is_for_first(value):
            first = state.guard(Const(True, Taint.RANK), decorator, True, frame)
            made.only = first._replace(ranks=frozenset({0}))
    return wrapper


def _register_command(
    state: PathState, decorator: Symbol, given: Items[Value], made: Value
) -> None:
    """Note that a command line has a function among its commands."""
    app = given[0] if decorator.name == COMMAND and given else None
    if isinstance(app, Object):
        state.note_change(app)
        commands = app.attrs.setdefault(COMMANDS, Sequence([]))
        if isinstance(commands, Sequence):
            commands.items.append(made)


def class_def(state: PathState, node: ir.ClassDef, frame: Frame) -> Flow:
    frame.scope.names[node.name] = cls = _make_class(state, node, frame)
    _decorate(state, node.decorators, cls, frame)
    return Flow.NEXT


def _make_class(state: PathState, node: ir.ClassDef, frame: Frame) -> ClassValue:
    """Execute a class body and return the class.

    If the body of an imported class only binds names, it runs on the first path that imports it.
    Decorators of methods often take more steps than the path itself.
    """
    bases = tuple(state.evaluate(ir.base_class(base), frame) for base in node.bases)
    cls = ClassValue(node, frame.scope, bases, {})
    imported = state.importing > 0 and isinstance(frame.scope, ModuleScope)
    known = state.project.plain_bodies.get(node) if imported else None
    if known is not None:
        for name, each in known.items():
            method = isinstance(each, ir.Function)
            cls.attrs[name] = FunctionValue(each, frame.scope, cls) if method else each
        return cls
    body = Frame(Scope(cls.attrs, frame.scope, frame.unit), frame.unit)
    pure = _run_purely(state, node, body)
    plain = {name: _plain(value, body.scope) for name, value in cls.attrs.items()}
    if imported and pure and None not in plain.values():
        state.project.plain_bodies[node] = plain
    for name, value in cls.attrs.items():
        if isinstance(value, FunctionValue):
            # Names in a method are looked up past the class body.
            outer = frame.scope if value.scope is body.scope else value.scope
            cls.attrs[name] = FunctionValue(value.function, outer, cls, only=value.only)
    return cls


def _run_purely(state: PathState, node: ir.ClassDef, body: Frame) -> bool:
    """Execute a class body; return whether it decides nothing and changes nothing older than it.

    Changes by files that are imported meanwhile do not count.
    """
    before, made, decided = state.oldest_changed, state.imported_serial, len(state.decisions.made)
    state.oldest_changed = NEVER
    state.run(node.body, body)
    pure = state.oldest_changed < made and len(state.decisions.made) == decided
    state.oldest_changed = max(before, state.oldest_changed)
    return pure


def _plain(value: Value, body: Scope) -> ir.Function | Const | Symbol | None:
    """Return a value of a class body if it is the same on each path; a method without its scope."""
    if isinstance(value, FunctionValue) and value.scope is body and value.only is None:
        return value.function
    return value if isinstance(value, (Const, Symbol)) else None


def _is_for_first(decorator: Value) -> bool:
    """True if a library's decorator lets only rank 0 run a function."""
    if isinstance(decorator, Symbol):
        return decorator.name in FIRST_ONLY
    if not isinstance(decorator, Object) or decorator.parent is None:
        return False
    accelerate = any(name.startswith("accelerate.") for name in class_names(decorator.parent.cls))
    return accelerate and decorator.step[1:] in FIRST_ONLY_METHODS


def instantiate(
    state: PathState, cls: ClassValue, arguments: Arguments, node: ir.Node, frame: Frame
) -> Value:
    """Create an object of a project class and run its constructor."""
    state.reached.add(cls.node)
    made = state.new(Origin.ALLOCATED, cls, state.site(node, frame))
    made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
    made.open = arguments.open
    if any(map(may_set_up, class_names(cls))):
        state.note_unread_code()
    init = cls.lookup("__init__")
    if optimizers.is_class(cls):
        if isinstance(init, FunctionValue) and not optimizers.captured(state, arguments):
            given, named, more = [made, *arguments.args], arguments.keywords, arguments.open
            invoke(state, init, given, named, frame, node, more=more)
        optimizers.built(state, made, arguments, node, frame)
    elif isinstance(init, FunctionValue):
        given, named, more = [made, *arguments.args], arguments.keywords, arguments.open
        invoke(state, init, given, named, frame, node, more=more)
    else:
        _fill_fields(state, made, cls, arguments)
        if is_sampler(made):
            site = state.site(node, frame)
            state.emit(Call(state.tick(), site, "__init__", made, arguments, made))
    note_construction(state, made)
    note_live(state, made)
    return made


def _fill_fields(state: PathState, made: Object, cls: ClassValue, arguments: Arguments) -> None:
    """Assign arguments to the attributes of a dataclass or named tuple, in declaration order.

    Where more arguments may be given, as by ``Config(**options)``, or the class reads its fields
    from outside, no default is known to hold.
    """
    names = [
        name
        for base in reversed([base for base in cls.lineage() if isinstance(base, ClassValue)])
        for name in _field_names(base)
    ]
    made.attrs.update(zip(names, arguments.args, strict=False))
    made.attrs.update(arguments.keywords)
    for name in names if arguments.open or class_names(cls) & SETTINGS else ():
        made.attrs.setdefault(name, open_field(state, made, name))
    post = cls.lookup("__post_init__")
    if isinstance(post, FunctionValue):
        invoke(state, post, [made], {}, Frame(cls.scope, cls.scope.unit), cls.node)


def _field_names(cls: ClassValue) -> list[str]:
    """Return the annotated or assigned names of a class body, in order."""
    names = []
    for node in cls.node.body:
        target = node.target if isinstance(node, ir.Declare) else None
        if isinstance(node, ir.Assign):
            target = node.targets[0]
        if isinstance(target, ir.Name):
            names.append(target.id)
    return names


def note_construction(state: PathState, made: Object) -> None:
    """Track modules that ranks build differently or on meta, and what feeds a training loop."""
    differs = state.seed_differs or any(guard.divergent for guard in state.guards)
    if (differs or state.on_meta) and made.parent is None and _has_weights(made):
        tracking.track(state, made)
    if class_names(made.cls) & (DATA_LOADERS | DISTRIBUTED_SAMPLERS):
        tracking.track(state, made)


def is_sampler(made: Object) -> bool:
    """True if an object is a distributed sampler, or of a class that derives from one."""
    return not class_names(made.cls).isdisjoint(DISTRIBUTED_SAMPLERS)


def _has_weights(made: Object) -> bool:
    """True if an object is a module, Hugging Face's models included."""
    names = class_names(made.cls)
    return is_module(made) or any(name.startswith("transformers.") for name in names)
