"""Find, add, remove, rename or replace arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, NoFixError, builder


def add_argument(code: Code, call: ir.Call, text: str) -> Edit:
    """Add ``text`` as the last argument of ``call``, on a separate line if the others are."""
    if not call.args:
        return code.edit(call.end - 1, call.end - 1, text)
    last = call.args[-1]
    separator = f",{code.newline}{code.indentation(last)}" if code.starts_line(last) else ", "
    return code.edit(last.end, last.end, separator + text)


def put_argument(code: Code, call: ir.Call, keyword: str, text: str) -> Edit:
    """Replace the argument with this keyword by ``keyword=text``, or add it as the last one."""
    for argument in call.args:
        if argument.keyword == keyword:
            return code.edit(argument.value.start, argument.value.end, text)
    if not call.args or any(argument.star for argument in call.args):
        raise NoFixError(
            f"the arguments of `{code.short(call.func)}` are not all written out; pass "
            f"`{keyword}={text}` by hand"
        )
    if code.comments(call.args[-1].end, call.end):
        raise NoFixError(f"a comment follows the last argument; pass `{keyword}={text}` by hand")
    return add_argument(code, call, f"{keyword}={text}")


def without(
    code: Code, arguments: Sequence[ir.Argument], kept: Sequence[ir.Argument]
) -> list[Edit]:
    """Delete the arguments that are not kept, each with one comma."""
    if not kept:
        ends = arguments[:1] and (arguments[0].start, arguments[-1].end)
        return [code.edit(*ends, "")] if ends else []
    first = next(argument for argument in arguments if argument in kept)
    edits = []
    if arguments[0] is not first:
        edits.append(code.edit(arguments[0].start, first.start, ""))
    for index, argument in enumerate(arguments):
        if argument.start > first.start and argument not in kept:
            edits.append(code.edit(arguments[index - 1].end, argument.end, ""))
    return edits


def renamed(code: Code, argument: ir.Argument, keyword: str) -> Edit:
    """Rename ``old=value`` to ``keyword=value``; add the keyword to a positional one."""
    if argument.keyword is None:
        return code.edit(argument.start, argument.start, f"{keyword}=")
    return code.edit(argument.start, argument.start + len(argument.keyword), keyword)


def argument_of(call: ir.Call, position: int, keyword: str) -> ir.Argument | None:
    """Return the argument, None if the call passes it in ``*`` or ``**`` or not at all."""
    named = next((a for a in call.args if a.keyword == keyword), None)
    plain = [a for a in call.args if a.keyword is None and not a.star]
    if named is not None or not 0 <= position < len(plain):
        return named
    return plain[position]


@builder
def set_argument(
    code: Code, call: ir.Call, position: int, keyword: str, text: str, safety: Safety
) -> Fix:
    """Replace the argument's value by ``text``."""
    argument = argument_of(call, position, keyword)
    if argument is None:
        raise NoFixError(f"`{code.short(call)}` does not spell out `{keyword}`; set it by hand")
    value = argument.value
    title = f"set `{keyword}` to `{text}`"
    return Fix(title, safety, (code.edit(value.start, value.end, text),))


@builder
def drop_argument(code: Code, call: ir.Call, keyword: str, title: str = "") -> Fix:
    """Remove the argument of a keyword, with the comma next to it."""
    if not any(given.keyword == keyword for given in call.args):
        raise NoFixError(f"`{code.short(call)}` does not spell out `{keyword}`; remove it by hand")
    kept = [given for given in call.args if given.keyword != keyword]
    edits = without(code, call.args, kept)
    ends = (min(code.line_end(edit.span.end), call.end) for edit in edits)
    if any(code.comments(e.span.start, end) for e, end in zip(edits, ends, strict=True)):
        raise NoFixError(f"a comment is next to `{keyword}`; remove the argument by hand")
    return Fix(title or f"remove `{keyword}`", Safety.UNSAFE, tuple(edits))
