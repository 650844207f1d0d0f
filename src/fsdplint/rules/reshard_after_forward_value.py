"""Values of `reshard_after_forward` that are invalid, or 1 instead of True."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Sequence, Symbol, Value
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import argument_of, set_argument
from fsdplint.fixes.code import Code, Declined
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD212",
    summary="`reshard_after_forward` gets an invalid value, or 1 instead of `True`",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_KEYWORD = "reshard_after_forward"
# The booleans that FSDP1's strategies, and strings, stand for.
_MEANT: dict[str, bool] = {"FULL_SHARD": True, "SHARD_GRAD_OP": False, "True": True, "False": False}


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that is neither a boolean nor a useful number of ranks.

    Attributes:
        setter: it is passed to ``set_reshard_after_forward``.
        quiet: it is accepted, as a group of one rank.
        meant: the intended boolean, None if it is not known.
    """

    site: Site
    setter: bool
    quiet: bool
    meant: bool | None


def bad_values(program: Program) -> Iterator[BadValue]:
    """Yield arguments of FSDP2's calls that are neither booleans nor numbers of ranks."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            value = shard.keywords.get(_KEYWORD)
            if shard.generation is Generation.FSDP2 and value is not None and _is_bad(value):
                yield BadValue(shard.site, False, _number(value) == 1, _meant(value))
        for call in trace.calls("set_reshard_after_forward"):
            given = call.arguments.get(0, _KEYWORD)
            module = call.receiver
            if given is None or not isinstance(module, Object):
                continue
            if unit_of(trace, module) is not None and (_is_bad(given) or _is_number(given)):
                yield BadValue(call.site, True, False, _meant(given))


def _is_number(value: Value) -> bool:
    return isinstance(value, Const) and not isinstance(value.value, bool)


def _number(value: Value) -> int | None:
    """Return an integer that is known and not a boolean, else None."""
    if not isinstance(value, Const) or isinstance(value.value, bool):
        return None
    return value.value if isinstance(value.value, int) else None


def _is_bad(value: Value) -> bool:
    if isinstance(value, Const):
        number = _number(value)
        wrong = number is not None and number < 2
        return wrong or isinstance(value.value, (str, bytes, float))
    if isinstance(value, Symbol):
        return value.name.startswith(SHARDING_STRATEGIES)
    return isinstance(value, Sequence)


def _meant(value: Value) -> bool | None:
    if isinstance(value, Symbol):
        return _MEANT.get(value.name.removeprefix(SHARDING_STRATEGIES))
    if isinstance(value, Const) and isinstance(value.value, str):
        return _MEANT.get(value.value.capitalize())
    number = _number(value)
    return None if number is None else {0: False, 1: True}.get(number)


def reports(program: Program) -> Iterator[Report]:
    for fact in bad_values(program):
        call = fact.site.node
        assert isinstance(call, ir.Call)
        given = argument_of(call, 0 if fact.setter else -1, _KEYWORD)
        value = "" if given is None else f"={program.text(fact.site.path, given.value)}"
        yield Report(
            program.span(fact.site),
            f"`{_KEYWORD}{value}` {_what(fact)}",
            "parameters stay gathered" if fact.quiet else "invalid value",
            program.conditions(fact.site),
            partial(_fix, program, fact, call),
        )


def _what(fact: BadValue) -> str:
    if fact.quiet:
        return (
            "means a group of one rank, not `True`: every rank keeps all parameters after the "
            "forward, which wastes memory"
        )
    valid = "not a boolean" if fact.setter else "neither a boolean nor a valid number of ranks"
    return f"is {valid}: the call crashes"


def _fix(program: Program, fact: BadValue, call: ir.Call) -> Fix | Declined:
    if fact.meant is None:
        return Declined("the intended boolean is not known; set `True` or `False` by hand")
    code = Code.of(program.tree(fact.site.path))
    position = 0 if fact.setter else -1
    given = argument_of(call, position, _KEYWORD)
    if given is not None and isinstance(given.value, ir.Name):
        return Declined(f"`{code.slice(given.value)}` is set elsewhere; change it there by hand")
    return set_argument(code, call, position, _KEYWORD, str(fact.meant), Safety.UNSAFE)
