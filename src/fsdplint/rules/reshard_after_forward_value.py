"""`reshard_after_forward` is no boolean."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.resharding import BadValue, bad_values
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import argument_of, set_argument
from fsdplint.fixes.code import Code, Declined
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD212",
    summary="`reshard_after_forward` is no boolean",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_KEYWORD = "reshard_after_forward"


def reports(program: Program) -> Iterator[Report]:
    for fact in bad_values(program):
        call = fact.site.node
        assert isinstance(call, ir.Call)
        given = argument_of(call, 0 if fact.setter else -1, _KEYWORD)
        shown = "" if given is None else f" `{program.text(fact.site.path, given.value)}`"
        yield Report(
            program.span(fact.site),
            f"`{_KEYWORD}`{shown} is {_what(fact)}",
            "does not reshard" if fact.quiet else "raises",
            program.conditions(fact.site),
            partial(_fix, program, fact, call),
        )


def _what(fact: BadValue) -> str:
    if fact.quiet:
        return "a group of one rank and no boolean: nothing is resharded, as if it were `False`"
    return "no boolean" if fact.setter else "no boolean, and no number of ranks to reshard to"


def _fix(program: Program, fact: BadValue, call: ir.Call) -> Fix | Declined:
    if fact.meant is None:
        return Declined("which boolean is meant is not known")
    code = Code.of(program.tree(fact.site.path))
    position = 0 if fact.setter else -1
    given = argument_of(call, position, _KEYWORD)
    if given is not None and isinstance(given.value, ir.Name):
        return Declined(f"`{code.slice(given.value)}` is made elsewhere")
    return set_argument(code, call, position, _KEYWORD, str(fact.meant), Safety.UNSAFE)
