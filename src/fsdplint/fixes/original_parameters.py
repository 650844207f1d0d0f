"""Has FSDP1 keep the parameters apart that it flattens."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, NoFixError, builder

_NAME = "use_orig_params"


@builder
def keep_original(code: Code, call: ir.Call, always: bool) -> Fix:
    """Has FSDP1 keep the parameters apart that it flattens, each with its ``requires_grad``.

    Args:
        always: the call raises without it; a run in which it does not has other states saved.
    """
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"set `{_NAME}=True`", safety, (_edit(code, call),))


def _edit(code: Code, call: ir.Call) -> Edit:
    for argument in call.args:
        if argument.keyword == _NAME:
            return code.edit(argument.value.start, argument.value.end, "True")
    if any(argument.star for argument in call.args):
        raise NoFixError(f"the arguments of `{code.short(call.func)}` are not all written out")
    if code.comments(call.args[-1].end, call.end):
        raise NoFixError("a comment stands behind the last argument")
    return add_argument(code, call, f"{_NAME}=True")
