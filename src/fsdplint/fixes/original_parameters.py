"""Make FSDP1 expose the original parameters instead of flat ones."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, builder

_NAME = "use_orig_params"


@builder
def keep_original(code: Code, call: ir.Call, always: bool) -> Fix:
    """Make FSDP1 expose the original parameters, each with its ``requires_grad``.

    Args:
        always: the call always raises without it, so no run has saved a state with flat parameters.
    """
    safety = Safety.SAFE if always else Safety.UNSAFE
    return Fix(f"set `{_NAME}=True`", safety, (put_argument(code, call, _NAME, "True"),))
