"""A wrap policy that FSDP1 can call."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports

# The settings of the policy functions, which a lone argument by position is meant for.
_SETTINGS = {
    "size_based_auto_wrap_policy": "min_num_params",
    "transformer_auto_wrap_policy": "transformer_layer_cls",
    "lambda_auto_wrap_policy": "lambda_fn",
}


@builder
def bind_policy(code: Code, call: ir.Call) -> Fix:
    """Binds the settings that ``call`` gives a policy function with ``functools.partial``."""
    require_exact(code)
    plain = [argument for argument in call.args if argument.keyword is None]
    setting = _SETTINGS.get(code.slice(call.func).rpartition(".")[2])
    if setting is None or len(plain) > 1 or any(argument.star for argument in call.args):
        raise NoFixError(f"`{code.short(call)}` does not show what its arguments are for")
    imports = Imports(code, call)
    partial = imports.name("functools", "partial")
    given = [f"{setting}={code.slice(a)}" if a in plain else code.slice(a) for a in call.args]
    text = f"{partial}({', '.join([code.slice(call.func), *given])})"
    edits = (code.edit(call.start, call.end, text), *imports.edits())
    return Fix("bind the policy's settings with `functools.partial`", Safety.SAFE, edits)


@builder
def module_wrap_policy(code: Code, call: ir.Call) -> Fix:
    """Makes a policy of the classes that stand in the place of one."""
    require_exact(code)
    given = next((a for a in call.args if a.keyword == "auto_wrap_policy"), None)
    if given is None or not isinstance(given.value, ir.Collection):
        raise NoFixError(f"`{code.short(call)}` does not name the classes")
    imports = Imports(code, call)
    policy = imports.name("torch.distributed.fsdp.wrap", "ModuleWrapPolicy")
    inner = code.slice(given.value)
    edits = (code.edit(given.value.start, given.value.end, f"{policy}({inner})"), *imports.edits())
    return Fix("make a `ModuleWrapPolicy` of the classes", Safety.SAFE, edits)
