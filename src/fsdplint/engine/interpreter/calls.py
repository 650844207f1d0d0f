"""Calls: project functions are entered, classes instantiated, libraries looked up in `effects`.

A call of a module runs its hooks, which gather its parameters; a call of one of its methods, or of
``forward`` itself, bypasses them.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.engine.interpreter import access, optimizers, tensors, tracking
from fsdplint.engine.interpreter.definitions import instantiate
from fsdplint.engine.interpreter.differing import places
from fsdplint.engine.interpreter.events import Call, DirectForward, MethodCall
from fsdplint.engine.interpreter.functions import invoke, open_parameters
from fsdplint.engine.interpreter.modules import is_module, is_unit
from fsdplint.engine.interpreter.state import Effect, Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    Choice,
    ClassValue,
    Const,
    FunctionValue,
    Inner,
    Mapping,
    Method,
    Object,
    Origin,
    Partial,
    Sequence,
    Super,
    Symbol,
    Taint,
    Value,
    class_names,
    contained,
    followed,
    key_of,
    taint_of,
)
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.knowledge.launch import COMMAND_LINES, COMMANDS
from fsdplint.knowledge.names import AUTOGRAD_FUNCTIONS, REGISTER_FORWARD, is_optimizer
from fsdplint.knowledge.ranks import means_agreeing
from fsdplint.knowledge.tensors import means_combining

# What an optimizer of the program's own is called for, however it is written.
_OF_OPTIMIZERS = frozenset({"step", "zero_grad"})


def call(state: PathState, node: ir.Call, frame: Frame) -> Value:
    """Evaluate a call: the callee, the arguments, then what the callee does with them."""
    if (
        isinstance(node.func, ir.Name)
        and node.func.id == "super"
        and isinstance(frame.receiver, Object)
    ):
        owner = None if frame.function is None else frame.function.owner
        return state.unknown() if owner is None else Super(frame.receiver, owner)
    function = evaluate_callee(state, node.func, frame)
    arguments = evaluate_arguments(state, node.args, frame)
    _note_combining(state, node, arguments)
    if means_agreeing(ir.last_name(node.func)):
        state.trace.agreed.update(places(*arguments.values()))
    last, imported = state.serial, state.imported_serial
    result = apply(state, function, arguments, node, frame)
    made = followed(result)
    if isinstance(made, Object) and (made.serial > last or made.serial < imported):
        _note_maker(made, node, frame)
    return result


def _note_maker(made: Object, node: ir.Call, frame: Frame) -> None:
    """Note the call that returned a new unknown object, unless a deeper call is known."""
    if made.origin is Origin.UNKNOWN and made.made_by is None:
        made.made_by = (frame.unit.path, node)


def _note_combining(state: PathState, node: ir.Call, arguments: Arguments) -> None:
    """Note that numbers of this rank go to a function whose name says that it combines them."""
    named = means_combining(ir.last_name(node.func))
    if named and not state.importing and _is_local(*arguments.values()):
        state.trace.combined.append(state.tick())


def evaluate_callee(state: PathState, node: ir.Expr, frame: Frame) -> Value:
    """Evaluate a callee; unlike `evaluate`, an unknown attribute becomes a method to call."""
    if not isinstance(node, ir.Attribute):
        return state.evaluate(node, frame)
    given = state.evaluate(node.value, frame)
    receiver = tensors.in_choice(given) or followed(given)
    if isinstance(receiver, Object) and node.attr not in receiver.attrs:
        cls = receiver.cls
        wraps = node.attr in WRAPPED and receiver.sharded
        if not (wraps or (isinstance(cls, ClassValue) and cls.lookup(node.attr) is not None)):
            bound = given if isinstance(given, Inner) else receiver
            return Method(bound, node.attr, None, state.site(node, frame))
    elif isinstance(receiver, Object) and node.attr == "forward":
        replacement = Method(receiver, "forward", None, state.site(node, frame))
        _direct_forward(state, replacement, node, frame, replaced=True)
    if isinstance(receiver, (Object, Symbol, Super)) or hasattr(receiver, "unit"):
        return access.read(state, receiver, node.attr, node, frame)
    if isinstance(receiver, ClassValue):
        applied = class_names(receiver) & AUTOGRAD_FUNCTIONS if node.attr == "apply" else ()
        if applied or receiver.lookup(node.attr) is not None:
            return access.read(state, receiver, node.attr, node, frame)
    return Method(receiver, node.attr, None, state.site(node, frame))


def evaluate_arguments(state: PathState, nodes: Items[ir.Argument], frame: Frame) -> Arguments:
    """Evaluate arguments; known sequences and mappings behind stars are spread."""
    made = Arguments([], {})
    for node in nodes:
        value = state.evaluate(node.value, frame)
        if node.star == "*":
            inner = followed(value)
            known = isinstance(inner, Sequence) and not inner.rest
            made.args.extend(inner.items if known and isinstance(inner, Sequence) else [value])
            made.open |= not known
        elif node.star == "**":
            _spread(made, followed(value))
        elif node.keyword is not None:
            made.keywords[node.keyword] = value
        else:
            made.args.append(value)
    return made


def _spread(made: Arguments, value: Value) -> None:
    if isinstance(value, Mapping):
        made.keywords.update({k: v for k, v in value.items.items() if isinstance(k, str)})
        made.open |= bool(value.rest)
    else:
        made.open = True


def apply(
    state: PathState, function: Value, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a value: the project's code, a library's, or code that is unknown."""
    called = function.receiver if isinstance(function, Method) else function
    if isinstance(called, Inner):
        state.trace.inside.add(state.site(node, frame))
    if isinstance(function, Choice):
        picked, test = _pick(state, function, node)
        guards = [] if test is None else [state.guard(test, node.func, True, frame)]
        with state.under(guards):
            return apply(state, picked, arguments, node, frame)
    function = followed(function)
    if isinstance(function, Symbol):
        return state.semantics.library_call(state, function, arguments, node, frame)
    if isinstance(function, FunctionValue):
        given, named, more = arguments.args, arguments.keywords, arguments.open
        return invoke(state, function, given, named, frame, node, more=more)
    if isinstance(function, Method):
        return _call_method(state, function, arguments, node, frame)
    if isinstance(function, ClassValue):
        return instantiate(state, function, arguments, node, frame)
    if isinstance(function, Partial):
        keywords = {**function.keywords, **arguments.keywords}
        args = [*function.args, *arguments.args]
        joined = Arguments(args, keywords, arguments.open, function.site)
        return apply(state, function.function, joined, node, frame)
    if isinstance(function, Object):
        return _call_object(state, function, arguments, node, frame)
    return _call_unknown(state, function, arguments, node, frame)


def _pick(state: PathState, function: Choice, node: ir.Call) -> tuple[Value, Value | None]:
    """Return one of several callables, with the condition for that one if it is known.

    An optimizer class represents any other optimizer class: what rules ask about is the same for
    all.
    """
    options = [followed(o) for o in function.options if not isinstance(o, Const)]
    symbols = [option for option in options if isinstance(option, Symbol)]
    if len(symbols) == len(options) and len(symbols) > 1:
        alike = all(is_optimizer(symbol.name) for symbol in symbols)
        return (symbols[0] if alike else state.unknown()), None
    for option, test, leads, place in access.entries(state, function, node):
        prefer = leads and isinstance(followed(option), FunctionValue)
        if state.decisions.decide(test, prefer, 2, place):
            return option, test
    if function.tests:
        return function.options[-1], function.tests[-1]
    return (options[0] if options else function.options[0]), None


def _call_unknown(
    state: PathState, function: Value, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    state.escape(node, frame, *arguments.values())
    tracking.used(state, state.tick(), "?", [function, *arguments.values()], node, frame)
    state.note_unread_code()
    made = result_of(state, ("call", key_of(function)), function, arguments)
    optimizers.offered(state, made, arguments, node, frame)
    return made


def result_of(state: PathState, about: object, function: Value, arguments: Arguments) -> Object:
    """Return an unknown result; equal calls share a key, so that conditions on them agree."""
    taint = taint_of(function, *arguments.values())
    if _is_local(*arguments.values()):
        taint |= Taint.LOCAL
    keywords = sorted(arguments.keywords.items(), key=lambda item: item[0])
    named = [(name, key_of(value)) for name, value in keywords]
    return state.unknown(taint, key=(about, *map(key_of, arguments.args), *named))


def _call_method(
    state: PathState, method: Method, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a method of the project or a library, and note calls that bypass or need hooks."""
    receiver = followed(method.receiver)
    if method.name == "forward" and method.source is not None and isinstance(receiver, Object):
        _direct_forward(state, method, node, frame)
        if is_module(receiver):
            return _forward(state, receiver, arguments, node, frame)
    if method.function is None:
        return state.semantics.library_method(state, receiver, method.name, arguments, node, frame)
    _method_call(state, method, receiver, node, frame)
    with_receiver = [receiver, *arguments.args]
    hooked = isinstance(receiver, Object) and method.name in receiver.hooked_methods
    outermost = hooked and receiver not in state.in_forward
    if hooked and isinstance(receiver, Object):
        state.in_forward.append(receiver)
    named, more = arguments.keywords, arguments.open
    result = invoke(state, method.function, with_receiver, named, frame, node, more=more)
    if hooked:
        state.in_forward.pop()
    if outermost:
        state.note(Call, node, frame, "forward", receiver, arguments, result)
    if isinstance(receiver, Object) and receiver.captures and method.name in _OF_OPTIMIZERS:
        state.note(Call, node, frame, method.name, receiver, arguments, result)
    return result


def _call_object(
    state: PathState, function: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    found = function.cls.lookup("__call__") if isinstance(function.cls, ClassValue) else None
    if isinstance(found, FunctionValue) and not is_module(function):
        return invoke(state, found, [function, *arguments.args], arguments.keywords, frame, node)
    if is_module(function) or function.sharded:
        return _forward(state, function, arguments, node, frame)
    commands = function.attrs.get(COMMANDS)
    only = (
        commands.items[0] if isinstance(commands, Sequence) and len(commands.items) == 1 else None
    )
    if isinstance(only, FunctionValue) and class_names(function.cls) & COMMAND_LINES:
        given = open_parameters(state, only, None)
        return invoke(state, only, given, {}, frame, node, more=True)
    return _call_unknown(state, function, arguments, node, frame)


def _is_local(*values: Value) -> bool:
    """True if one of the values holds a number read from this rank's part of a tensor."""
    return any(item.taint & Taint.LOCAL for value in values for item in contained(value))


# The name of a hooked method if the name is not known.
_ANY_METHOD = "*"


def _forward(
    state: PathState, module: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a module through its hooks, and follow its ``forward`` once per path."""
    result = state.unknown()
    state.note(Call, node, frame, "forward", module, arguments, result)
    found = module.cls.lookup("forward") if isinstance(module.cls, ClassValue) else None
    again = module in state.entered_forwards or state.importing
    if not again and isinstance(found, FunctionValue) and found.scope.unit.follows_forward:
        state.entered_forwards.add(module)
        state.in_forward.append(module)
        invoke(state, found, [module, *arguments.args], arguments.keywords, frame, node)
        state.in_forward.pop()
    return result


def _direct_forward(
    state: PathState, method: Method, node: ir.Node, frame: Frame, *, replaced: bool = False
) -> None:
    """Note a call of ``module.forward``, which bypasses the hooks.

    A method that was saved before ``forward`` was assigned to is called by its replacement, inside
    the hooks.

    Args:
        replaced: whether what is called was assigned to the attribute.
    """
    module = followed(method.receiver)
    if method.source is None or not isinstance(module, Object) or not is_unit(module):
        return
    hooked = module in state.in_forward or "forward" in module.hooked_methods
    if hooked or module.unsharded or ("forward" in module.attrs and not replaced):
        return
    state.note(DirectForward, node, frame, method.source, module)


def _method_call(
    state: PathState, method: Method, receiver: Value, node: ir.Call, frame: Frame
) -> None:
    """Note a method other than forward, called on a unit outside of the unit's forward."""
    if method.source is None or not isinstance(receiver, Object) or not receiver.sharded:
        return
    if receiver in state.in_forward:
        return
    hooked = not receiver.hooked_methods.isdisjoint((method.name, _ANY_METHOD))
    state.note(MethodCall, node, frame, method.source, receiver, method.name, hooked)


def _register_forward(_: PathState, arguments: Arguments, *__: object) -> Value:
    module, method = arguments.get(0, "module"), arguments.get(1, "method_name")
    target = None if module is None else followed(module)
    if isinstance(target, Object) and is_unit(target):
        names = {str(method.value)} if isinstance(method, Const) else {"forward", _ANY_METHOD}
        target.hooked_methods.update(names)
    return NONE


EFFECTS: dict[str, Effect] = {REGISTER_FORWARD: _register_forward}
