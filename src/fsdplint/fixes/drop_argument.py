"""A keyword argument taken out of a call."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder


@builder
def drop_argument(code: Code, call: ir.Call, keyword: str, title: str) -> Fix:
    """``f(a, keyword=b)`` to ``f(a)``."""
    require_exact(code)
    places = [index for index, given in enumerate(call.args) if given.keyword == keyword]
    if not places:
        raise NoFixError(f"`{keyword}` is not written out in `{code.short(call)}`")
    (index,) = places
    before, after = call.args[:index], call.args[index + 1 :]
    if before:
        start, end = before[-1].end, call.args[index].end
    elif after:
        start, end = call.args[index].start, after[0].start
    else:
        start, end = code.text.index("(", call.func.end) + 1, call.end - 1
    if code.comments(start, end):
        raise NoFixError(f"a comment stands beside `{keyword}`")
    return Fix(title, Safety.UNSAFE, (code.edit(start, end, ""),))
