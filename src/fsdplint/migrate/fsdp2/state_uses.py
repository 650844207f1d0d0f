"""What else a block of `state_dict_type` does with its model."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import LISTING, dotted
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.migrate.fsdp2.state_calls import State, entered
from fsdplint.migrate.step import Context

# Methods that neither take nor load a state.
_QUIET = (LISTING - {"state_dict"}) | {"eval", "train", "zero_grad", "to", "cpu", "cuda", "forward"}
_BUILTINS = frozenset({"isinstance", "id", "len", "print", "type", "getattr", "hasattr"})


def check_uses(
    context: Context, code: Code, block: ir.With, choice: ir.Call, governed: Sequence[State]
) -> None:
    """Raise `NoFixError` if the model is used in a block where its state may be taken unseen."""
    model = dotted(choice.args[0].value) if choice.args else None
    if model is None:
        raise NoFixError(f"`{code.short(choice)}` does not name its model; replace it by hand")
    known = {node for state in governed for node in ir.walk(state.call)}
    followed = entered(context)
    for node in (n for each in block.body for n in ir.walk(each)):
        if node in known or dotted(node) != model:
            continue
        reason = _reason(context, code, node, followed)
        if reason:
            raise NoFixError(f"{reason}; replace the block by hand")


def _reason(context: Context, code: Code, node: ir.Node, followed: set[ir.Node]) -> str:
    """Return why a mention of the model may take its state, "" if it does not."""
    parent = code.parent(node)
    around = code.parent(parent)
    if isinstance(parent, ir.Attribute):
        called = isinstance(around, ir.Call) and around.func is parent
        if not called or parent.attr in _QUIET or around in followed:
            return ""
        return f"`{code.short(around)}` may take the state of `{code.slice(node)}`"
    if isinstance(parent, ir.Call):
        return ""
    if isinstance(parent, ir.Argument) and isinstance(around, ir.Call):
        name = context.name(code, around.func)
        if around in followed or name in _BUILTINS or name.startswith(HELPERS):
            return ""
        return f"`{code.short(around)}` may take the state of `{code.slice(node)}`"
    if isinstance(parent, (ir.Compare, ir.Not, ir.If)):
        return ""
    return f"`{code.short(code.statement(node))}` keeps `{code.slice(node)}` for another use"
