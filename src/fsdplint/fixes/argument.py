"""An argument of a call, given another value or taken away."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder


def argument_of(call: ir.Call, position: int, keyword: str) -> ir.Argument | None:
    """The argument as the call shows it, None where it is in a ``*`` or ``**`` or not given."""
    named = next((a for a in call.args if a.keyword == keyword), None)
    plain = [a for a in call.args if a.keyword is None and not a.star]
    if named is not None or not 0 <= position < len(plain):
        return named
    return plain[position]


@builder
def set_argument(
    code: Code, call: ir.Call, position: int, keyword: str, text: str, safety: Safety
) -> Fix:
    """Puts ``text`` in the place of the argument's value."""
    argument = argument_of(call, position, keyword)
    if argument is None:
        raise NoFixError(f"`{code.short(call)}` does not show its `{keyword}`")
    value = argument.value
    title = f"give `{keyword}` the value `{text}`"
    return Fix(title, safety, (code.edit(value.start, value.end, text),))


@builder
def drop_argument(code: Code, call: ir.Call, keyword: str, safety: Safety) -> Fix:
    """Takes the argument away, with the comma before it."""
    argument = argument_of(call, -1, keyword)
    if argument is None or call.args[0] is argument:
        raise NoFixError(f"`{code.short(call)}` does not show its `{keyword}`")
    before = call.args[call.args.index(argument) - 1]
    if code.comments(before.end, argument.end):
        raise NoFixError(f"`{code.short(call)}` has a comment before its `{keyword}`")
    return Fix(f"take `{keyword}` away", safety, (code.edit(before.end, argument.end, ""),))
