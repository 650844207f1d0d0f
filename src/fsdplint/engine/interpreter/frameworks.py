"""What a framework shards, where the settings in the program surely say so.

Settings that come from a file, the environment or unknown code say nothing.
"""

from __future__ import annotations

from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.values import (
    NONE,
    Const,
    Mapping,
    Object,
    Sequence,
    Symbol,
    Value,
    class_names,
    must_be,
)
from fsdplint.knowledge import frameworks as known
from fsdplint.knowledge.frameworks import Framework


def framework_of(value: Value | None) -> Framework | None:
    """Return the framework whose object a value is, if it is one."""
    if not isinstance(value, Object):
        return None
    return next(filter(None, map(known.framework, sorted(class_names(value.cls)))), None)


def class_of_part(value: Object, name: str) -> Symbol | None:
    """Return the class of an attribute of a framework's object."""
    found = framework_of(value)
    cls = None if found is None else found.parts.get(name)
    return None if cls is None else Symbol(cls)


def is_watched(receiver: Value, name: str) -> bool:
    """True if a method of a framework's object shards, or all ranks have to call it."""
    found = framework_of(receiver)
    return found is not None and name in found.shards | found.together | found.gathers


def has_sharded(call: Call) -> bool:
    """True if a call surely makes a framework shard a model."""
    found = framework_of(call.receiver)
    return found is not None and call.name in found.shards and settings_of(call) is not None


def is_for_all(call: Call) -> bool:
    """True if all ranks have to make a call of a framework's object once that has sharded."""
    found, settings = framework_of(call.receiver), settings_of(call)
    if found is None or settings is None:
        return False
    gathers = call.name in found.gathers and _saves_whole(settings)
    return gathers or call.name in found.shards | found.together


def settings_of(call: Call) -> Value | None:
    """Return the argument that surely makes the object of a call shard with FSDP."""
    made = call.receiver
    while isinstance(made, Object) and framework_of(made.parent) is not None:
        made = made.parent
    found = framework_of(made)
    if not isinstance(made, Object) or found is None or _is_off(made):
        return None
    given = [made.keywords[found.setting]] if found.setting in made.keywords else [*made.args]
    given += [made.keywords[known.PLUGIN]] if known.PLUGIN in made.keywords else []  # of a launch
    return next((value for value in map(must_be, given) if _shards(value, made)), None)


def _shards(value: Value | None, made: Object) -> bool:
    if isinstance(value, Const):
        return value.value in known.STRATEGY_NAMES
    if not isinstance(value, Object) or value.open or _is_off(value):
        return False
    if value.escaped is not None and value.escaped < made.born:
        return False
    names = class_names(value.cls)
    if any(map(known.is_strategy, names)):
        return True
    return any(map(known.is_training_arguments, names)) and _says_so(value)


def _is_off(settings: Object) -> bool:
    """True if an option keeps the model whole or its parts apart, or may do so."""
    options = settings.keywords
    if any(not _is_false(options[name]) for name in known.OFF & options.keys()):
        return True
    texts = [_text(options[name]) for name in known.KINDS & options.keys()]
    return any(not text or known.WITHOUT_SHARDING.search(text) for text in texts)


def _says_so(arguments: Object) -> bool:
    """True if ``TrainingArguments`` turn PyTorch's FSDP on."""
    config, value = _config(arguments), _option(arguments, "fsdp")
    backends = () if config is None else known.OTHER_BACKENDS & config.keys()
    if value is None or config is None or not all(_is_false(config[name]) for name in backends):
        return False
    items = value.items if isinstance(value, Sequence) and not value.rest else [value]
    words = {word for item in items for word in _text(item).lower().split()}
    return bool(words & known.SHARDING_WORDS) or (isinstance(value, Const) and value.value is True)


def _saves_whole(settings: Value) -> bool:
    return known.WHOLE_STATE in state_type(settings)


def state_type(settings: Value | None) -> str:
    """Return the type of the states that settings have saved, "" if it is unknown."""
    if not isinstance(settings, Object):
        return ""
    # The default is that of a plugin for FSDP1.
    is_plugin = any(map(known.is_strategy, class_names(settings.cls)))
    given = settings.keywords if is_plugin else _config(settings)
    default = Const(known.WHOLE_STATE)
    return "" if given is None else _text(given.get(known.STATE_TYPE, default)).upper()


def _config(arguments: Object) -> dict[str, Value] | None:
    """Return the options of ``fsdp_config``, None if they are not known."""
    value = _option(arguments, "fsdp_config", NONE)
    if isinstance(value, Const) and value.value is None:
        return {}
    if not isinstance(value, Mapping) or value.rest:
        return None
    return {str(name).removeprefix("fsdp_"): each for name, each in value.items.items()}


def _option(arguments: Object, name: str, default: Value | None = None) -> Value | None:
    """Return an option as it is given to the constructor, or assigned since."""
    held = arguments.attrs.get(name)
    if held is None or (isinstance(held, Object) and held.parent is arguments):
        held = arguments.keywords.get(name, default)
    return must_be(held)


def _is_false(value: Value) -> bool:
    return isinstance(value, Const) and not value.value


def _text(value: Value) -> str:
    """Return a constant as text, or the name of a member of an enumeration; "" if unknown."""
    if isinstance(value, Symbol):
        return value.name.rpartition(".")[2]
    return str(value.value) if isinstance(value, Const) else ""
