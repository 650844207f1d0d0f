"""Has FSDP1 keep the parameters apart that it flattens."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, builder

_NAME = "use_orig_params"


@builder
def keep_original(code: Code, call: ir.Call, always: bool) -> Fix:
    """Has FSDP1 keep the parameters apart that it flattens, each with its ``requires_grad``.

    Args:
        always: the call raises without it; a run in which it does not has other states saved.
    """
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"set `{_NAME}=True`", safety, (put_argument(code, call, _NAME, "True"),))
