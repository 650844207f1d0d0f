"""A keyword argument taken out of a call."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import without
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder


@builder
def drop_argument(code: Code, call: ir.Call, keyword: str, title: str) -> Fix:
    """``f(a, keyword=b)`` to ``f(a)``."""
    require_exact(code)
    if not any(given.keyword == keyword for given in call.args):
        raise NoFixError(f"`{keyword}` is not written out in `{code.short(call)}`")
    kept = [given for given in call.args if given.keyword != keyword]
    edits = without(code, call.args, kept)
    if any(code.comments(e.span.start, code.line_end(e.span.end)) for e in edits):
        raise NoFixError(f"a comment stands beside `{keyword}`")
    return Fix(title, Safety.UNSAFE, tuple(edits))
