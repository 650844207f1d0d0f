"""Parameters that `fully_shard` refuses: of no dimension, or shared by several blocks."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.knowledge.modules import PARAMETER
from fsdplint.migrate.step import Context, Found, kept

_SCALAR = (
    "`fully_shard` takes no parameters without a dimension; give it one, as `torch.ones(1)` has, "
    "by hand (checkpoints then hold it with that dimension)"
)
_SHARED = (
    "`fully_shard` takes no weights that several blocks share; shard the blocks together, or give "
    "each its own, by hand"
)
_FILLED = ("empty", "full", "ones", "rand", "randn", "zeros")


def unshardable(context: Context) -> Iterator[Found]:
    """Yield each scalar parameter, and each weight that a block takes from another."""
    for code in context.codes("Parameter(", ".weight"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == PARAMETER:
                if node.args and _is_scalar(node.args[0].value):
                    yield kept(code, node, _SCALAR)
            elif isinstance(node, ir.Assign) and _is_shared(node):
                yield kept(code, node, _SHARED)


def _is_scalar(value: ir.Expr) -> bool:
    """True if a tensor surely has no dimension."""
    if isinstance(value, ir.BinOp):
        sides = (value.left, value.right)
        numbers = [isinstance(side, ir.Constant) for side in sides]
        return any(numbers) and any(map(_is_scalar, sides))
    if not isinstance(value, ir.Call):
        return False
    name, args = ir.last_name(value.func), [each for each in value.args if not each.keyword]
    if name in ("tensor", "scalar_tensor"):
        return bool(args) and _is_number(args[0].value)
    if name in _FILLED and args:
        shape = args[0].value
        return isinstance(shape, ir.Collection) and not shape.elements
    inner = value.func.value if isinstance(value.func, ir.Attribute) else None
    return inner is not None and name in ("log", "exp", "float", "to") and _is_scalar(inner)


def _is_number(value: ir.Expr) -> bool:
    if isinstance(value, ir.Constant):
        return isinstance(value.value, (int, float))
    if isinstance(value, ir.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    return isinstance(value, ir.Call) and ir.last_name(value.func) in ("log", "float", "sqrt")


def _is_shared(assign: ir.Assign) -> bool:
    """True for ``blocks[1].weight = blocks[0].weight``."""
    sides = [*assign.targets, assign.value]
    weights = all(isinstance(each, ir.Attribute) and each.attr == "weight" for each in sides)
    return weights and all(
        any(isinstance(n, ir.Subscript) for n in ir.walk(each)) for each in sides
    )
