"""Clipping of DTensors and plain tensors by one norm, each kind in an operation of its own."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh

# The parameters of torch.nn.utils.clip_grad_norm_, torch 2.0 to 2.15.
_PARAMETERS = ("parameters", "max_norm", "norm_type", "error_if_nonfinite", "foreach")
_DTENSOR = ("torch.distributed.tensor", "DTensor")


@builder
def clip_apart(code: Code, call: ir.Node) -> Fix:
    """``norm = clip_grad_norm_(model.parameters(), 1.0)`` as its parts, kind by kind.

    The parts are public since torch 2.6, which is older than ``ignored_params``.
    """
    require_exact(code)
    given = _given(code, call)
    statement = code.statement(call)
    target = _target(statement, call)
    if target is None or not code.alone(statement) or code.comments(call.start, call.end):
        raise NoFixError("DTensors and plain tensors have to be clipped apart, by one norm")
    imports = Imports(code, call)
    utils = "torch.nn.utils"
    norm_of, clip = (imports.name(utils, n) for n in ("get_total_norm", "clip_grads_with_norm_"))
    dtensor, stack = imports.name(*_DTENSOR), imports.name("torch", "stack")
    parameters, kinds, kind = (fresh(code, call, n) for n in ("clipped", "kinds", "kind"))
    norms, norm = fresh(code, call, "norms"), target or fresh(code, call, "total_norm")
    lines = (
        f"{parameters} = [p for p in {given['parameters']} if p.grad is not None]",
        f"{kinds} = [[p for p in {parameters} if isinstance(p, {dtensor}) is k] "
        "for k in (True, False)]",
        f"{norms} = [{norm_of}([p.grad for p in kind]) for kind in {kinds}]",
        f"{norms} = [n.full_tensor() if isinstance(n, {dtensor}) else n for n in {norms}]",
        f"{norm} = {stack}({norms}).norm()",
        f"for {kind} in {kinds}:",
        f"{code.unit}{clip}({kind}, {given['max_norm']}, {norm})",
    )
    text = f"{code.newline}{code.indentation(statement)}".join(lines)
    edits = (code.edit(statement.start, statement.end, text), *imports.edits())
    return Fix("clip both kinds by their common norm", Safety.UNSAFE, edits)


def _given(code: Code, call: ir.Node) -> dict[str, str]:
    """The arguments' texts by name."""
    given: dict[str, str] = {}
    for index, argument in enumerate(call.args if isinstance(call, ir.Call) else ()):
        if argument.star or index >= len(_PARAMETERS):
            raise NoFixError("the arguments of the clipping are not all written out")
        given[argument.keyword or _PARAMETERS[index]] = code.slice(argument.value)
    if not {"parameters", "max_norm"} <= given.keys():
        raise NoFixError("the clipping does not say what to clip to")
    if given.get("norm_type", "2") not in ("2", "2.0") or "error_if_nonfinite" in given:
        raise NoFixError("only the norm that is torch's default is taken apart")
    return given


def _target(statement: ir.Stmt, call: ir.Node) -> str | None:
    """The name that the norm gets, "" for none; None where the call is a part of something."""
    if isinstance(statement, ir.Expression):
        return "" if statement.value is call else None
    if isinstance(statement, ir.Assign) and statement.value is call:
        (target, *others) = statement.targets
        return target.id if isinstance(target, ir.Name) and not others else None
    return None
