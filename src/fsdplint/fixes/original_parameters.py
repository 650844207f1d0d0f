"""``use_orig_params=True`` for an FSDP1 call."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder

_NAME = "use_orig_params"


@builder
def keep_original(code: Code, call: ir.Call, always: bool) -> Fix:
    """Has FSDP1 keep the parameters apart that it flattens, each with its ``requires_grad``.

    Args:
        always: the call raises without it; a run in which it does not has other states saved.
    """
    require_exact(code)
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"set `{_NAME}=True`", safety, (_edit(code, call),))


def _edit(code: Code, call: ir.Call) -> Edit:
    for argument in call.args:
        if argument.keyword == _NAME:
            return code.edit(argument.value.start, argument.value.end, "True")
    if any(argument.star for argument in call.args):
        raise NoFixError(f"the arguments of `{code.short(call.func)}` are not all written out")
    last = call.args[-1]
    if not code.breaks(last.end, call.end):
        return code.edit(last.end, last.end, f", {_NAME}=True")
    if code.comments(last.end, call.end):
        raise NoFixError("a comment stands behind the last argument")
    indent = code.line(last.start)[
        : len(code.line(last.start)) - len(code.line(last.start).lstrip())
    ]
    return code.edit(last.end, last.end, f",{code.newline}{indent}{_NAME}=True")
