"""Values in a checkpoint that are no state of a model or an optimizer."""

from __future__ import annotations

import re

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.migrate.dcp.reads import Taken
from fsdplint.migrate.dcp.writes import Entry, Write
from fsdplint.migrate.step import Context, Question

# DCP loads a number, a string or a list of them without knowing it, but a tensor only into one of
# its shape, and of a dict only the keys that it is given (run on torch 2.13).
_NUMBERS = frozenset({"int", "float", "str", "bool", "len", "round", "item", "time", "tolist"})
# What restores a state, and what gives one of the same kind.
_GENERATORS = {
    "set_rng_state": "get_rng_state",
    "set_rng_state_all": "get_rng_state_all",
    "setstate": "getstate",
    "set_state": "get_state",
}
_DICTS = frozenset({"vars", "dict", "asdict", "to_dict", "to_container"})
# Words of variables that count, which are numbers in all code that saves them.
_COUNTS = re.compile(r"epoch|step|iter|(^|_)(num|n|count|seed|version|lr)(_|$)|tokens")


def is_random_state(value: ir.Expr) -> bool:
    """Return whether a value is the state of a generator of PyTorch."""
    name = ir.last_name(value.func) if isinstance(value, ir.Call) else ""
    return name in ("get_rng_state", "get_rng_state_all")


def template(context: Context, code: Code, taken: Taken, entry: Entry, write: Write) -> str:
    """Return the text of what DCP loads a value into.

    Raises:
        NoFixError: it cannot be loaded without knowing what was saved.
        UndecidedError: it is not known whether it can.
    """
    call = taken.call
    if call is not None and isinstance(call.func, ir.Attribute) and call.func.attr in _GENERATORS:
        getter = _GENERATORS[call.func.attr]
        return f"{code.slice(call.func.value)}.{getter}()"
    kind = _kind(write.code, entry.value)
    if kind == "":
        kind = _asked(context, write, entry)
    if kind != "plain":
        raise NoFixError(
            f'`"{entry.key}"` is read back, but DCP cannot load a {kind} without one like it to '
            "load into; save it in a file of its own"
        )
    return "None"


def _asked(context: Context, write: Write, entry: Entry) -> str:
    code = write.code
    span = code.span(entry.value)
    what = f'`{code.short(entry.value)}`, which is saved as "{entry.key}"'
    text = f"Is {what}, a number, a string or a list of them (plain), a tensor, or a dict?"
    question = Question(span, f"saved-{entry.key}", text, ("plain", "tensor", "dict"))
    return context.decided(question)


def _kind(code: Code, value: ir.Expr) -> str:
    """Return "plain" for what DCP loads as it is, "dict" for a dict, "" for what is not known."""
    meant = code.meaning(value)
    if isinstance(meant, (ir.Constant, ir.FormattedString, ir.Compare)):
        return "plain"
    if isinstance(meant, ir.DictDisplay):
        return "dict"
    if isinstance(meant, ir.Attribute) and meant.attr == "__dict__":
        return "dict"
    if isinstance(meant, ir.Call):
        name = ir.last_name(meant.func)
        return "plain" if name in _NUMBERS else "dict" if name in _DICTS else ""
    if isinstance(meant, ir.BinOp):
        kinds = {_kind(code, meant.left), _kind(code, meant.right)}
        return "plain" if kinds == {"plain"} else ""
    path = dotted(meant)
    if path is not None and _COUNTS.search(path.rpartition(".")[2]):
        return "plain"
    return _given(code, meant) if isinstance(meant, ir.Name) else ""


def _given(code: Code, name: ir.Name) -> str:
    """Return the kind of a variable by what its scope assigns, or how a parameter is declared."""
    values = code.assigned(name)
    kinds = {_kind(code, each) for each in values if each is not name}
    if len(kinds) == 1:
        return kinds.pop()
    scope = code.function(name)
    for each in scope.parameters if scope is not None else ():
        if each.name == name.id and each.annotation is not None:
            return "plain" if code.slice(each.annotation) in ("int", "float", "str") else ""
    return ""
