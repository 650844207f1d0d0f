"""Numbers read from parameters that a class of the program registers itself.

The analysis follows the weights of layers alone. Here, names tell: `model.gamma.mean().item()`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.dtensors import WHOLE_METHODS
from fsdplint.knowledge.modules import PARAMETER
from fsdplint.knowledge.tensors import DESCRIBES, NUMBERS
from fsdplint.migrate.states import sharded_names
from fsdplint.migrate.step import Context, Found, kept

_READS = WHOLE_METHODS | {"item"}
# What a DTensor answers for the whole tensor, and what gathers it.
_LOCAL = (DESCRIBES | NUMBERS) - _READS
_WHY = (
    "a rank may read a number of its own shard here, or get an error; call `full_tensor()` of the "
    "parameter on every rank by hand"
)


def own_parameters(context: Context) -> Iterator[Found]:
    """Yield each number or array read from such a parameter of a sharded model."""
    names = {
        target.attr
        for code in context.codes("Parameter(")
        for node in ir.walk(code.module)
        if isinstance(node, ir.Assign) and _registers(context, code, node.value)
        for target in node.targets
        if isinstance(target, ir.Attribute)
    }
    for (path, scope), known in sharded_names(context.program).items() if names else ():
        if path not in context.files:
            continue
        code = Code.of(context.program.tree(path))
        for node in code.nodes_of(scope):
            if isinstance(node, ir.Attribute) and node.attr in names:
                model = known.get(code.slice(node.value))
                if model is not None and model.start < node.start and _is_read(code, node):
                    yield kept(code, code.statement(node), _WHY)


def _registers(context: Context, code: Code, value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and context.name(code, value.func) == PARAMETER


def _is_read(code: Code, parameter: ir.Node) -> bool:
    """True if the end of ``parameter.method().method()`` is a number or an array, or printed."""
    names = []
    for each in code.ancestors(parameter):
        if isinstance(each, ir.Attribute):
            names.append(each.attr)
        elif not isinstance(each, (ir.Call, ir.Subscript)):
            printed = isinstance(each, ir.FormattedString)
            return _LOCAL.isdisjoint(names) and (printed or not _READS.isdisjoint(names))
    return False
