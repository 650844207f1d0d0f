"""Calls of modules: through the hooks that gather their parameters, or bypassing the hooks."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call, DirectForward, MethodCall
from fsdplint.engine.interpreter.functions import invoke
from fsdplint.engine.interpreter.modules import is_unit
from fsdplint.engine.interpreter.state import Effect, Frame, PathState
from fsdplint.engine.interpreter.values import (
    NONE,
    Arguments,
    ClassValue,
    Const,
    FunctionValue,
    Method,
    Object,
    Value,
    followed,
)
from fsdplint.knowledge.names import REGISTER_FORWARD

# The name of a hooked method if the name is not known.
_ANY_METHOD = "*"


def forward(
    state: PathState, module: Object, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value:
    """Call a module through its hooks, and follow its ``forward`` once per path."""
    result = state.unknown()
    state.emit(Call(state.tick(), state.site(node, frame), "forward", module, arguments, result))
    found = module.cls.lookup("forward") if isinstance(module.cls, ClassValue) else None
    again = module in state.entered_forwards or state.importing
    if not again and isinstance(found, FunctionValue) and found.scope.unit.calls_forward:
        state.entered_forwards.add(module)
        state.in_forward.append(module)
        invoke(state, found, [module, *arguments.args], arguments.keywords, frame, node)
        state.in_forward.pop()
    return result


def direct_forward(
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
    state.emit(DirectForward(state.tick(), state.site(node, frame), method.source, module))


def method_call(
    state: PathState, method: Method, receiver: Value, node: ir.Call, frame: Frame
) -> None:
    """Note a method other than forward, called on a unit outside of the unit's forward."""
    if method.source is None or not isinstance(receiver, Object) or not receiver.sharded:
        return
    if receiver in state.in_forward:
        return
    hooked = not receiver.hooked_methods.isdisjoint((method.name, _ANY_METHOD))
    site = state.site(node, frame)
    state.emit(MethodCall(state.tick(), site, method.source, receiver, method.name, hooked))


def _register_forward(_: PathState, arguments: Arguments, *__: object) -> Value:
    module, method = arguments.get(0, "module"), arguments.get(1, "method_name")
    target = None if module is None else followed(module)
    if isinstance(target, Object) and is_unit(target):
        names = {str(method.value)} if isinstance(method, Const) else {"forward", _ANY_METHOD}
        target.hooked_methods.update(names)
    return NONE


EFFECTS: Mapping[str, Effect] = {REGISTER_FORWARD: _register_forward}
