"""Builtins and the standard library, on abstract values."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as MappingType
from dataclasses import replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter import access, batches, calls, names, stores
from fsdplint.engine.interpreter.comparison import exact_class, is_instance
from fsdplint.engine.interpreter.elements import (
    COUNTED,
    copied,
    element_of,
    kinds,
    materialized,
    merge,
)
from fsdplint.engine.interpreter.events import Call, Store
from fsdplint.engine.interpreter.modules import holds_fsdp2, is_in_unit, is_module, is_unit
from fsdplint.engine.interpreter.state import EXIT, Effect, Frame, PathState, is_const
from fsdplint.engine.interpreter.tensors import tensor_of
from fsdplint.engine.interpreter.values import (
    MAX_REACHABLE,
    NONE,
    Arguments,
    ClassValue,
    Condition,
    Const,
    FunctionValue,
    Mapping,
    Method,
    Object,
    Origin,
    Parameters,
    Partial,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Value,
    class_names,
    followed,
    key_of,
    may_be,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.data import DATA_LOADERS, DISTRIBUTED_SAMPLERS
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.knowledge.modules import AVERAGED_MODEL
from fsdplint.knowledge.names import DTENSOR, FSDP1

# The step to an attribute of unknown name.
_SOME = ".?"


def _deepcopy(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    value = followed(arguments.args[0]) if arguments.args else NONE
    if not isinstance(value, Object):
        return _with_own_memory(value)
    made = state.new(Origin.ALLOCATED, value.cls, state.site(node, frame))
    _copy(state, value, made)
    return made


def _copy(state: PathState, value: Object, made: Object) -> None:
    """Give a copy the arguments of the original, and copies of the modules in it."""
    made.args, made.keywords = value.args, dict(value.keywords)
    parts = {
        item: state.part(made, item.step, item.cls)
        for item in (*value.attrs.values(), *value.elements.values())
        if isinstance(item, Object) and item.parent is value and is_module(item)
    }
    made.attrs |= {name: parts[item] for name, item in value.attrs.items() if item in parts}
    made.elements |= {key: parts[item] for key, item in value.elements.items() if item in parts}
    for item, part in parts.items():
        _copy(state, item, part)


def _averaged(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    made = state.new(Origin.ALLOCATED, Symbol(AVERAGED_MODEL), state.site(node, frame))
    hold_copy(state, made, arguments)
    return made


def hold_copy(state: PathState, average: Object, arguments: Arguments) -> None:
    """Give an average of a model's weights its copy of the model."""
    keyword, attribute = known.COPIES_MODULE[AVERAGED_MODEL]
    model = followed(arguments.get(0, keyword) or NONE)
    if isinstance(model, Object):
        made = average.attrs[attribute] = state.part(average, f".{attribute}", model.cls)
        _copy(state, model, made)


def _with_own_memory(value: Value, depth: int = 0) -> Value:
    """Return a copy of a container whose state dicts share no memory with the parameters."""
    made = copied(value)
    if isinstance(made, StateDict):
        return replace(made, live=False)
    if depth < 6 and isinstance(made, (Mapping, Sequence)):
        made.rest = [_with_own_memory(item, depth + 1) for item in made.rest]
        if isinstance(made, Sequence):
            made.items = [_with_own_memory(item, depth + 1) for item in made.items]
        else:
            made.items = {k: _with_own_memory(v, depth + 1) for k, v in made.items.items()}
    return made


def _import_module(
    state: PathState, arguments: Arguments, _: ir.Call, frame: Frame
) -> Value | None:
    """Import a module whose name is known, and not relative."""
    name = followed(arguments.get(0, "name") or NONE)
    if not isinstance(name, Const) or not isinstance(name.value, str) or name.value[:1] == ".":
        return None
    return names.module_named(state, name.value, frame.unit)


def _is_instance(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Evaluate ``isinstance``, and note a test for FSDP1 that an FSDP2 unit fails."""
    if len(arguments.args) != 2:
        return state.unknown()
    value, classes = followed(arguments.args[0]), followed(arguments.args[1])
    if key_of(classes) == ("symbol", DTENSOR) and _is_sharded_tensor(state, value):
        return Const(True)
    options = classes.items if isinstance(classes, Sequence) else [classes]
    if all(map(_is_fsdp1, options)) and isinstance(value, Object) and is_in_unit(state, value):
        return Const(False)
    test = is_instance(value, options)
    denied = isinstance(test, Const) and not test.value
    if denied and isinstance(value, Object) and is_unit(value) and _names_fsdp1(*options):
        state.note(Call, node, frame, "builtins.isinstance", None, arguments, test)
    return test


def _type_of(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    return exact_class(followed(arguments.args[0])) if len(arguments.args) == 1 else None


def _has_attribute(state: PathState, arguments: Arguments, *_: object) -> Value:
    """Evaluate ``hasattr``, as far as FSDP, a class or an assignment decides it."""
    if len(arguments.args) != 2:
        return state.unknown()
    given, name = arguments.args
    value = followed(given)
    if key_of(name) in _OF_DTENSORS and _is_sharded_tensor(state, value):
        return Const(True)
    if isinstance(value, Object) and isinstance(name, Const):
        if _is_set(value, str(name.value)):
            return Const(True)
        defined = isinstance(value.cls, ClassValue) and bool(value.cls.lookup(str(name.value)))
        if value.sharded and name.value in known.METHODS_OF_FSDP2:
            return Const(is_unit(value) or defined)
        if value.sharded and name.value in known.ABSENT_FROM_FSDP2:
            return Const(not is_unit(value) or defined)
    if isinstance(name, Const) and name.value in known.WRAPPED and _is_unwrapped(state, given):
        return Const(False)
    key = ("hasattr", key_of(value), key_of(name))
    return Condition("hasattr", tuple(arguments.args), key, value.taint)


def _is_set(value: Object, name: str) -> bool:
    """True if the program assigned an attribute, rather than only read it."""
    held = value.attrs.get(name)
    return held is not None and (held.__class__ is not Object or _is_set_at_start(value, name))


def _is_set_at_start(value: Object, name: str) -> bool:
    """True if a constructor of the project always assigns an attribute."""
    for cls in value.cls.lineage() if isinstance(value.cls, ClassValue) else ():
        start = cls.attrs.get("__init__") if isinstance(cls, ClassValue) else None
        body = start.function.body if isinstance(start, FunctionValue) else ()
        assigned = (node for node in body if isinstance(node, ir.Assign))
        if any(_is_attribute(each, name) for node in assigned for each in node.targets):
            return True
    return False


def _is_attribute(target: ir.Expr, name: str) -> bool:
    return isinstance(target, ir.Attribute) and target.attr == name and _is_self(target.value)


def _is_unwrapped(state: PathState, given: Value) -> bool:
    """True if a value is an object of a project class and not a wrapper."""
    wrapping = state.trace.calls(*WRAPPERS)
    wrapped = [followed(each) for call in wrapping for each in call.arguments.values()]
    return all(_has_no_module(each) and each not in wrapped for each in may_be(given))


def _has_no_module(value: Value) -> bool:
    """True if an object surely has no attribute that holds a wrapped module."""
    cls = value.cls if isinstance(value, Object) else None
    if not isinstance(cls, ClassValue) or not isinstance(value, Object):
        return False
    if value.sharded or value.escaped is not None or known.WRAPPED & value.attrs.keys():
        return False
    if cls.opaque() or cls.lookup("__getattr__") is not None:
        return False
    own = [each for each in cls.lineage() if isinstance(each, ClassValue)]
    return all(known.WRAPPED.isdisjoint(_own_attributes(each)) for each in own)


def _own_attributes(cls: ClassValue) -> frozenset[str]:
    """Return the attributes of a class body, and those of ``self`` in its methods."""
    nodes = ir.walk(cls.node)
    attributes = (node for node in nodes if isinstance(node, ir.Attribute))
    named = (node.attr for node in attributes if _is_self(node.value))
    return frozenset((*named, *cls.attrs))


def _is_self(node: ir.Expr) -> bool:
    return isinstance(node, ir.Name) and node.id == "self"


def _is_sharded_tensor(state: PathState, value: Value) -> bool:
    tensor = tensor_of(state, value)
    return tensor is not None and holds_fsdp2(state, tensor.module)


def _is_callable(state: PathState, arguments: Arguments, *_: object) -> Value:
    value = followed(arguments.args[0]) if arguments.args else NONE
    if isinstance(value, (Method, FunctionValue, ClassValue, Partial)):
        return Const(True)
    if isinstance(value, Const):
        return Const(False)
    return state.unknown(value.taint, key=("callable", key_of(value)))


def _get_attribute(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Evaluate ``getattr``; an unknown name gives some attribute."""
    if len(arguments.args) < 2:
        return state.unknown()
    value, name = followed(arguments.args[0]), arguments.args[1]
    if not isinstance(name, Const):
        if isinstance(value, Symbol):
            return Symbol(f"{value.name}.?")
        if isinstance(value, Object):
            return state.part(value, _SOME, taint=name.taint & Taint.RANK)
        return state.unknown(taint_of(value, name))
    if isinstance(value, Object) and is_unit(value) and name.value in known.ABSENT_FROM_FSDP2:
        return arguments.args[2] if len(arguments.args) > 2 else state.unknown()
    return access.read(state, value, str(name.value), node, frame)


def _number(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    """Evaluate ``float("inf")``."""
    value = followed(arguments.args[0]) if arguments.args else NONE
    if isinstance(value, Const) and str(value.value).lstrip("+").lower() in ("inf", "infinity"):
        return Const(float("inf"))
    return None


def _set_attribute(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Execute ``setattr``; an unknown name may change any setting."""
    if len(arguments.args) == 3:
        owner, name, value = followed(arguments.args[0]), arguments.args[1], arguments.args[2]
        if isinstance(owner, (Object, Parameters, ClassValue)):
            state.note_change(owner)
        if isinstance(owner, Object):
            known_name = str(name.value) if isinstance(name, Const) else "?"
            if isinstance(name, Const):
                owner.attrs[known_name] = value
            elif not is_module(owner):
                for each in _walked(owner):
                    _unsettle(state, each)
            stores.stored(state, owner, known_name, value, node, frame)
        elif isinstance(owner, ClassValue):  # a class that is a program's configuration
            if isinstance(name, Const):
                owner.attrs[str(name.value)] = value
            else:
                settings = [key for key, old in owner.attrs.items() if isinstance(old, Const)]
                owner.attrs.update({key: state.unknown() for key in settings})
        elif isinstance(owner, Parameters) and isinstance(name, Const):
            state.note(Store, node, frame, owner, str(name.value), value)
    return NONE


def _walked(owner: Object) -> Iterator[Object]:
    """Yield what an object may be that ``getattr`` with unknown names led to.

    A loop over the names may run any number of times: it may be any object of settings that is
    nested in the first one, and that one too.
    """
    first = owner
    while first.step == _SOME and first.parent is not None:
        first = first.parent
    if first is owner or is_module(first):
        yield owner
        return
    seen: set[Object] = set()
    stack = [first]
    while stack and len(seen) < MAX_REACHABLE:
        current = stack.pop()
        if current not in seen and not is_module(current):
            seen.add(current)
            yield current
            held = map(followed, list(current.attrs.values()))
            stack.extend(value for value in held if isinstance(value, Object))


def _unsettle(state: PathState, owner: Object) -> None:
    """Forget the constants among an object's attributes and those of its class."""
    lineage = list(owner.cls.lineage()) if isinstance(owner.cls, ClassValue) else []
    classes = [each for each in reversed(lineage) if isinstance(each, ClassValue)]
    declared = {name: value for each in classes for name, value in each.attrs.items()}
    for name, value in {**declared, **owner.attrs}.items():
        if isinstance(value, Const):
            owner.attrs[name] = state.part(owner, f".{name}")


def _same_iterable(state: PathState, arguments: Arguments, *_: object) -> Value:
    """Return the same elements, for ``list``, ``reversed``, ``tqdm`` and the like."""
    given = arguments.get(0, "iterable")
    if given is None:
        return state.unknown() if arguments.open else Sequence([])
    value = followed(given)
    if isinstance(value, Object) and class_names(value.cls) & DATA_LOADERS:
        return state.part(value, ".iter()")  # it has its batches, and not its attributes
    if isinstance(value, StateDict):
        return Sequence([], [state.unknown(Taint.ELEMENT)])  # its keys
    return materialized(state, copied(value))


def _iterator(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Evaluate ``iter(x)``, which begins to go through a loader."""
    if arguments.args:
        batches.note_iteration(state, node, arguments.args[0], frame)
    return _same_iterable(state, arguments)


def _next_of(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    if not arguments.args:
        return state.unknown()
    batches.note_next(state, node, followed(arguments.args[0]), frame)
    return element_of(state, arguments.args[0])


def _filtered(state: PathState, arguments: Arguments, *_: object) -> Value:
    if len(arguments.args) < 2:
        return state.unknown()
    return followed(arguments.args[1])


def _mapped(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    if len(arguments.args) < 2:
        return state.unknown()
    element = element_of(state, followed(arguments.args[1]))
    result = calls.apply(state, arguments.args[0], Arguments([element], {}), node, frame)
    return Sequence([], [result], "generator", repeated=True)


def _chained(state: PathState, arguments: Arguments, *_: object) -> Value:
    return Sequence([], [element_of(state, followed(value)) for value in arguments.args])


def _enumerated(state: PathState, arguments: Arguments, *_: object) -> Value:
    """Evaluate ``enumerate``: pairs of a count and an element."""
    given = arguments.get(0, "iterable")
    if given is None:
        return state.unknown()
    iterable = followed(given)
    if isinstance(iterable, Sequence) and not iterable.rest:
        pairs: list[Value] = [
            Sequence([Const(i), item], kind="tuple") for i, item in enumerate(iterable.items)
        ]
        return Sequence(pairs)
    counted: list[Value] = [
        Sequence([state.unknown(Taint.ELEMENT), item], kind="tuple")
        for item in kinds(state, iterable)
    ]
    return Sequence([], counted, COUNTED)


def _zipped(state: PathState, arguments: Arguments, *_: object) -> Value:
    columns = [element_of(state, followed(value)) for value in arguments.args]
    return Sequence([], [Sequence(columns, kind="tuple")])


def _partial(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    if not arguments.args:
        return state.unknown()
    function, *args = arguments.args
    made = state.site(node, frame)
    return Partial(function, tuple(args), dict(arguments.keywords), site=made)


def _new_dict(state: PathState, arguments: Arguments, *_: object) -> Value:
    if arguments.args and not isinstance(followed(arguments.args[0]), Mapping):
        return materialized(state, copied(arguments.args[0]))
    made = Mapping(dict(arguments.keywords.items()))
    for value in arguments.args:
        merge(made, followed(value))
    return made


def _new_defaultdict(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value:
    """Create a dict that fills itself by calling its first argument."""
    factory, *others = map(followed, arguments.args or [NONE])
    made = Mapping(dict(arguments.keywords.items()))
    for value in others:
        merge(made, value)
    if not is_const(factory, None):
        made.factory = partial(_first_value, state, factory, node, frame)
    return made


def _first_value(state: PathState, factory: Value, node: ir.Call, frame: Frame) -> Value:
    """Return the value of a new key: a container or an object, or a number of which many differ."""
    made = calls.apply(state, factory, Arguments([], {}), node, frame)
    container = isinstance(made, (Sequence, Mapping))
    allocated = isinstance(made, Object) and made.origin is Origin.ALLOCATED
    return made if container or allocated else state.unknown(made.taint)


def _environment_call(state: PathState, arguments: Arguments, *_: object) -> Value:
    return access.environment(state, arguments.args[0] if arguments.args else NONE)


def _whole(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    """Evaluate ``int``: of a rank read from the environment it is the same rank."""
    value = followed(arguments.args[0]) if len(arguments.args) == 1 else NONE
    if isinstance(value, Object) and value.role is not None:
        return value
    return None


def _length(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    value = followed(arguments.args[0]) if arguments.args else NONE
    if isinstance(value, Const) and isinstance(value.value, (str, tuple)):
        return Const(len(value.value), value.taint)
    if isinstance(value, Object) and _gives_all_ranks_as_many(value):
        return state.unknown(value.taint.without(Taint.RANK), key=("length", key_of(value)))
    return None


def _gives_all_ranks_as_many(loader: Object) -> bool:
    """True if a loader differs by rank only in its sampler, which pads or cuts to equal shares."""
    if not isinstance(loader.cls, Symbol) or loader.cls.name not in DATA_LOADERS:
        return False
    given = Arguments(list(loader.args), loader.keywords)
    samplers = [each for each in may_be(given.get(3, "sampler")) if not is_const(each, None)]
    others = [value for value in given.values() if value is not given.get(3, "sampler")]
    return (
        bool(samplers)
        and all(map(_divides_evenly, samplers))
        and not taint_of(*others) & Taint.RANK
    )


def _divides_evenly(sampler: Value) -> bool:
    """True for a distributed sampler of a dataset that is the same on all ranks."""
    if not isinstance(sampler, Object) or not isinstance(sampler.cls, Symbol):
        return False
    dataset = Arguments(list(sampler.args), sampler.keywords).get(0, "dataset")
    return sampler.cls.name in DISTRIBUTED_SAMPLERS and not taint_of(dataset) & Taint.RANK


def _any_true(_: PathState, arguments: Arguments, *__: object) -> Value | None:
    """Evaluate ``any(isinstance(m, FSDP) for m in …)`` if the known elements decide it."""
    value = followed(arguments.args[0]) if arguments.args else NONE
    items = [*value.items, *value.rest] if isinstance(value, Sequence) else []
    held = value.items if isinstance(value, Sequence) else []
    if any(isinstance(item, Const) and item.value for item in held):
        return Const(True)
    if items and all(isinstance(item, Const) and not item.value for item in items):
        return Const(False)
    return None


def _variables(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    """Evaluate ``vars(options)``, whose items are the attributes."""
    value = followed(arguments.args[0]) if arguments.args else NONE
    if isinstance(value, Symbol):
        return Symbol(f"{value.name}.__dict__")
    if isinstance(value, Object) and not value.attrs:
        return state.part(value, ".__dict__")
    return None


def _exit(*_: object) -> Value:
    return Const(EXIT)


def _names_fsdp1(*classes: Value) -> bool:
    return any(map(_is_fsdp1, classes))


def _is_fsdp1(cls: Value) -> bool:
    cls = followed(cls)
    return isinstance(cls, Symbol) and cls.name == FSDP1


_OF_DTENSORS = [key_of(Const(name)) for name in ("full_tensor", "to_local", "_local_tensor")]
_SAME_ITERABLE = (
    "builtins.list",
    "builtins.tuple",
    "builtins.set",
    "builtins.frozenset",
    "itertools.islice",
    "builtins.sorted",
    "builtins.reversed",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
    "rich.progress.track",
)


EFFECTS: MappingType[str, Effect] = {
    **dict.fromkeys(_SAME_ITERABLE, _same_iterable),
    "builtins.isinstance": _is_instance,
    "builtins.type": _type_of,
    "builtins.hasattr": _has_attribute,
    "builtins.float": _number,
    "builtins.callable": _is_callable,
    "builtins.getattr": _get_attribute,
    "importlib.import_module": _import_module,
    "builtins.setattr": _set_attribute,
    "builtins.iter": _iterator,
    "builtins.next": _next_of,
    "builtins.filter": _filtered,
    "builtins.map": _mapped,
    "builtins.enumerate": _enumerated,
    "builtins.zip": _zipped,
    "builtins.dict": _new_dict,
    "collections.defaultdict": _new_defaultdict,
    "collections.OrderedDict": _new_dict,
    "builtins.int": _whole,
    "builtins.len": _length,
    "builtins.any": _any_true,
    "builtins.vars": _variables,
    "builtins.exit": _exit,
    "builtins.quit": _exit,
    "sys.exit": _exit,
    "os._exit": _exit,
    "itertools.chain": _chained,
    "copy.deepcopy": _deepcopy,
    AVERAGED_MODEL: _averaged,
    "functools.partial": _partial,
    "os.getenv": _environment_call,
    "os.environ.get": _environment_call,
}
