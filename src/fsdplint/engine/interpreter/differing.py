"""What surely differs between ranks: the rank, what each process makes up, and texts with these.

`Taint` is what a value may depend on. To say that a name differs takes more: the difference has to
be in it. So only what is known to keep the difference passes it on; any other result is taken to
be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.values import (
    Arguments,
    Choice,
    Const,
    Mapping,
    Object,
    Sequence,
    Taint,
    Value,
    contained,
    may_be,
)
from fsdplint.knowledge.ranks import (
    CLOCKS,
    FINE_FORMAT,
    FORMATS_TIME,
    KEEPING_FUNCTIONS,
    KEEPING_METHODS,
    UNEQUAL,
    Role,
)


def differing(*values: Value | None) -> Object | None:
    """Return the rank or made-up value by which one of ``values`` surely differs between ranks."""
    return next(filter(None, map(_of_one, values)), None)


def _of_one(value: Value | None) -> Object | None:
    found = [_source(option) for option in may_be(value)]
    return found[0] if found and all(found) else None


def _source(value: Value) -> Object | None:
    if not isinstance(value, Object):
        return None
    return value if value.role is Role.NUMBER or is_made_up(value) else value.differs


def is_made_up(value: Object) -> bool:
    """True if each process makes the value up for itself, as a random name is."""
    return value.role is None and value.rank_source in UNEQUAL


def called(name: str, result: Value, arguments: Arguments) -> None:
    """Note whether the result of a library's function surely differs between ranks."""
    if not isinstance(result, Object):
        return
    if name in FORMATS_TIME:
        time = arguments.get(1, "t")
        made_up = is_fine(arguments.get(0, "format"))
        if made_up and time is None:
            result.rank_source = name
        elif made_up:
            result.differs = differing(time)
    elif name in UNEQUAL:
        result.rank_source = name
    elif name in KEEPING_FUNCTIONS:
        result.differs = differing(*arguments.values())


def called_method(name: str, receiver: Value, result: Object, arguments: Arguments) -> None:
    """Note whether the result of a method surely differs between ranks."""
    source = differing(receiver)
    if name == "strftime":
        result.differs = source if is_fine(arguments.get(0, "format")) else None
    elif name in KEEPING_METHODS and arguments.keywords.keys() <= KEEPING_METHODS[name]:
        joined = [item for value in arguments.values() for item in parts(value)]
        text = isinstance(receiver, Const) or name == "joinpath"
        result.differs = source or (differing(*joined) if text else None)


def parts(value: Value) -> list[Value]:
    """Return the elements of a list or tuple, or else the value."""
    return value.items if isinstance(value, Sequence) else [value]


def is_fine(pattern: Value | None) -> bool:
    """True if a format of times tells minutes apart, at which some ranks read their clocks."""
    return isinstance(pattern, Const) and bool(FINE_FORMAT.search(str(pattern.value)))


def sliced(value: Value) -> Object | None:
    """Return by what a slice of ``value`` differs; one of a time may be its date alone."""
    source = differing(value)
    random = source is not None and is_made_up(source) and source.rank_source not in CLOCKS
    return source if random else None


def places(*values: Value) -> Iterator[ir.Node]:
    """Yield the calls that made up what is in ``values``."""
    for value in values:
        for source in map(differing, contained(value)):
            if source is not None and source.site is not None:
                yield source.site.node


def forget(held: Value, unknown: Callable[[Taint], Value]) -> None:
    """Note that the elements of a list or dict may be the same on all ranks now."""
    if isinstance(held, Sequence) and held.kind == "list":
        held.items[:] = [unknown(i.taint) if _is_own(i) else i for i in held.items]
    elif isinstance(held, Mapping):
        held.items.update({k: unknown(i.taint) for k, i in held.items.items() if _is_own(i)})


def _is_own(value: Value) -> bool:
    """True if it differs and is not the rank itself, which nobody makes the same."""
    source = differing(value) if value.taint or isinstance(value, Choice) else None
    return source is not None and (source is not value or is_made_up(source))
