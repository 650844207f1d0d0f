"""Options of the command line, and which code their defaults leave out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import NONE, Const, Object, Value, followed, key_of
from fsdplint.knowledge.launch import PARSES
from fsdplint.knowledge.names import KEYWORD_ONLY


def parsed(calls: Iterable[Call]) -> tuple[Value, ...]:
    """What calls give that read the options, with the parts that it is unpacked to."""
    results = [followed(call.result) for call in calls]
    objects = [each for each in results if isinstance(each, Object)]
    return (*results, *(part for each in objects for part in each.elements.values()))


def needs_option(trace: Trace, site: Site) -> bool:
    """Whether a place is only reached where somebody gives an option that has a default."""
    defaults = dict(_defaults(trace))
    keys = {number: key for key, number in trace.keys.items()} if defaults else {}
    outcomes = ((_outcome(guard.key, defaults, keys), guard.taken) for guard in site.guards)
    return any(outcome is not None and outcome is not taken for outcome, taken in outcomes)


def _defaults(trace: Trace) -> Iterator[tuple[object, object]]:
    """The keys of the options that are read, each with its default."""
    holders = [each for each in parsed(trace.calls(*PARSES)) if isinstance(each, Object)]
    for call in trace.calls("add_argument"):
        name, default = _name(call), _default(call)
        for holder in holders if default is not None else ():
            read = holder.attrs.get(name)
            if isinstance(read, Object) and read.parent is holder:
                assert default is not None
                yield key_of(read), default.value


def _name(call: Call) -> str:
    """The attribute by which the program reads an option."""
    dest = call.argument(KEYWORD_ONLY, "dest")
    if isinstance(dest, Const):
        return str(dest.value)
    texts = [str(each.value) for each in call.arguments.args if isinstance(each, Const)]
    long = [text for text in texts if text.startswith("--")]
    return long[0].lstrip("-").replace("-", "_") if long else ""


def _default(call: Call) -> Const | None:
    """The default as the program reads it; None where it is not known, or where there is none."""
    action, default = (call.argument(KEYWORD_ONLY, name) for name in ("action", "default"))
    converted = call.argument(KEYWORD_ONLY, "type") is not None
    if call.arguments.open or call.argument(KEYWORD_ONLY, "required") is not None:
        return None
    if default is None and isinstance(action, Const) and action.value in _SWITCHES:
        return Const(_SWITCHES[action.value])
    default = NONE if default is None else default
    text = isinstance(default, Const) and isinstance(default.value, str)
    return default if isinstance(default, Const) and not (text and converted) else None


_SWITCHES: Mapping[object, bool] = {"store_true": False, "store_false": True}


def _outcome(
    key: object, defaults: Mapping[object, object], keys: Mapping[int, object]
) -> bool | None:
    """The truth of a condition, by its key, where the options have their defaults.

    Args:
        keys: what short keys stand for.
    """
    if key in defaults:
        return bool(defaults[key])
    if not isinstance(key, tuple) or not key:
        return None
    op, *operands = key
    if op == "key":
        return _outcome(keys.get(operands[0]), defaults, keys)
    if op == "==" and operands[0] in defaults and operands[1][0] == "const":
        return bool(defaults[operands[0]] == operands[1][2])
    if op not in ("not", "and", "or"):
        return None
    truths = [_outcome(operand, defaults, keys) for operand in operands]
    if op == "not":
        return None if truths[0] is None else not truths[0]
    if op == "and" and False in truths:
        return False
    return True if op == "or" and True in truths else None
