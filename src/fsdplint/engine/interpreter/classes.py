"""Classes: what is made by calling one."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.interpreter import optimizers, tracking
from fsdplint.engine.interpreter.functions import invoke
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    FunctionValue,
    Object,
    Origin,
    Value,
    class_names,
)
from fsdplint.knowledge.data import DATA_LOADERS, DISTRIBUTED_SAMPLERS
from fsdplint.knowledge.names import OPTIMIZER, is_optimizer
from fsdplint.knowledge.packages import may_set_up


def instantiate(
    state: PathState, cls: ClassValue, arguments: Arguments, node: ir.Node, frame: Frame
) -> Value:
    state.reached.add(cls.node)
    made = state.new(Origin.ALLOCATED, cls, state.site(node, frame))
    made.args, made.keywords = tuple(arguments.args), dict(arguments.keywords)
    if any(map(may_set_up, class_names(cls))):
        state.note_unread_code()
    init = cls.lookup("__init__")
    if any(is_optimizer(name) or name == OPTIMIZER for name in class_names(cls)):
        optimizers.built(state, made, arguments, node, frame)
    elif isinstance(init, FunctionValue):
        given, named, more = [made, *arguments.args], arguments.keywords, arguments.open
        invoke(state, init, given, named, frame, node, more=more)
    else:
        _fill_fields(state, made, cls, arguments)
    note_construction(state, made)
    return made


def _fill_fields(state: PathState, made: Object, cls: ClassValue, arguments: Arguments) -> None:
    """A dataclass or named tuple: arguments become attributes in the order of declaration."""
    names = [
        name
        for base in reversed([base for base in cls.lineage() if isinstance(base, ClassValue)])
        for name in _field_names(base)
    ]
    made.attrs.update(zip(names, arguments.args, strict=False))
    made.attrs.update(arguments.keywords)
    post = cls.lookup("__post_init__")
    if isinstance(post, FunctionValue):
        invoke(state, post, [made], {}, Frame(cls.scope, cls.scope.unit), cls.node)


def _field_names(cls: ClassValue) -> list[str]:
    """Annotated names of a class body, in order."""
    names = []
    for node in cls.node.body:
        target = node.target if isinstance(node, ir.Declare) else None
        if isinstance(node, ir.Assign):
            target = node.targets[0]
        if isinstance(target, ir.Name):
            names.append(target.id)
    return names


def note_construction(state: PathState, made: Object) -> None:
    """Tracks modules that ranks build differently, and what feeds a training loop."""
    alone = any(guard.divergent for guard in state.guards)
    if (alone or state.seed_differs) and made.parent is None and _has_weights(made):
        tracking.track(state, made)
    if class_names(made.cls) & (DATA_LOADERS | DISTRIBUTED_SAMPLERS):
        tracking.track(state, made)


def _has_weights(made: Object) -> bool:
    """Whether an object is a module, Hugging Face's models included."""
    names = class_names(made.cls)
    return is_module(made) or any(name.startswith("transformers.") for name in names)
