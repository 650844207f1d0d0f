"""Arguments of a call: put in, taken out or renamed."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code


def add_argument(code: Code, call: ir.Call, text: str) -> Edit:
    """``text`` as the last argument of ``call``, on a line of its own where the others are."""
    if not call.args:
        return code.edit(call.end - 1, call.end - 1, text)
    last = call.args[-1]
    separator = f",{code.newline}{code.indentation(last)}" if code.starts_line(last) else ", "
    return code.edit(last.end, last.end, separator + text)


def without(
    code: Code, arguments: Sequence[ir.Argument], kept: Sequence[ir.Argument]
) -> list[Edit]:
    """Deletes the arguments that are not kept, each with one comma."""
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
    """``old=value`` to ``keyword=value``; a positional one gets the keyword."""
    if argument.keyword is None:
        return code.edit(argument.start, argument.start, f"{keyword}=")
    return code.edit(argument.start, argument.start + len(argument.keyword), keyword)
