"""Places that need the size of the batches that one rank loads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.data import DATA_LOADERS, SHAPED
from fsdplint.knowledge.launch import MESSAGES
from fsdplint.knowledge.suspicious_words import means_learning_rate, means_whole_dataset

_NUMBERS = ("int", "float", "min", "max")
_KEEPS_OR_PRINTS = MESSAGES | {"format", "str", "repr", "join", "add_argument"}
_LOADERS = frozenset(name.rpartition(".")[2] for name in DATA_LOADERS)


def size_uses(codes: Sequence[Code], size: ir.Expr) -> Iterator[tuple[Code, ir.Node]]:
    """Yield each place that may fail or count wrongly once every rank loads smaller batches.

    Other loaders, numbers of batches in a dataset, learning rates and what is only printed are
    about the batches of all ranks together.
    """
    functions = _parameters(codes)
    names = _names(codes, _name(size), functions)
    for code in codes:
        for node in ir.walk(code.module):
            if isinstance(size, ir.Constant):
                found = isinstance(node, ir.Constant) and node.value == size.value
                found = found and _is_shape(code, node)
            else:
                found = _name(node) in names and not _is_other(code, node, names)
                found = found and not _is_of_all(code, node, functions.keys())
            if found:
                yield code, node


def _parameters(codes: Sequence[Code]) -> dict[str, tuple[str, ...]]:
    """Return the parameters of the functions and classes by name, without ``self``."""
    found: dict[str, tuple[str, ...]] = {}
    for code in codes:
        for function in code.functions:
            owner, names = code.scope(function), [each.name for each in function.parameters]
            if isinstance(owner, ir.ClassDef):
                name = owner.name if function.name == "__init__" else function.name
                found[name] = tuple(names[names[:1] == ["self"] :])
            else:
                found[function.name] = tuple(names)
    return found


def _names(codes: Sequence[Code], size: str, functions: dict[str, tuple[str, ...]]) -> set[str]:
    """Return the names of the variables, attributes, parameters and entries that hold the size."""
    pairs = [pair for code in codes for n in ir.walk(code.module) for pair in _equal(n, functions)]
    found, before = {size} - {""}, set[str]()
    while before != found:
        before = set(found)
        found |= {name for pair in pairs if found.intersection(pair) for name in pair} - {""}
    return found


def _equal(node: ir.Node, functions: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of names that an assignment or a call gives one value."""
    if isinstance(node, ir.Assign) and _name(node.value):
        yield from ((_name(target), _name(node.value)) for target in node.targets)
    elif isinstance(node, ir.Call):
        parameters = functions.get(ir.last_name(node.func), ())
        for place, each in enumerate(node.args):
            parameter = parameters[place] if place < len(parameters) else ""
            if _name(each.value):
                yield each.keyword or parameter, _name(each.value)


def _name(node: ir.Node) -> str:
    """Return the last name of a variable, attribute or entry, and of a number made of one."""
    if isinstance(node, ir.Call) and ir.last_name(node.func) in _NUMBERS and len(node.args) == 1:
        return _name(node.args[0].value)
    if isinstance(node, ir.Subscript):
        key = node.index
        return key.value if isinstance(key, ir.Constant) and isinstance(key.value, str) else ""
    return ir.last_name(node)


def _is_other(code: Code, node: ir.Node, names: set[str]) -> bool:
    """True if a variable of the function is only called alike, such as ``batch_size = len(x)``."""
    scope = code.scope(node)
    if not isinstance(node, ir.Name) or any(
        each.name == node.id for each in getattr(scope, "parameters", ())
    ):
        return False
    bound = [n for n in code.nodes_of(scope) if isinstance(n, ir.Assign) and _binds(n, node.id)]
    return bool(bound) and not any(_name(each.value) in names for each in bound)


def _binds(assign: ir.Assign, name: str) -> bool:
    every = (each for target in assign.targets for each in ir.walk(target))
    return any(isinstance(each, ir.Name) and each.id == name for each in every)


def _is_shape(code: Code, node: ir.Node) -> bool:
    call = next((each for each in code.ancestors(node) if isinstance(each, ir.Call)), None)
    return call is not None and ir.last_name(call.func) in SHAPED


def _is_of_all(code: Code, node: ir.Node, own: Collection[str]) -> bool:
    """True if a name of the size is only bound here, or used for the batches of all ranks."""
    below = node
    for each in code.ancestors(node):
        plain = _name(below) == _name(node)
        match each:
            case ir.FormattedString() | ir.Assert():
                return True
            case ir.Assign() | ir.Parameter() | ir.Return() | ir.DictDisplay():
                return plain
            case ir.BinOp(op=op, left=left):
                printed = op == "Modulo" and isinstance(left, (ir.Constant, ir.FormattedString))
                counted = op in ("Divide", "FloorDivide") and left is not below
                counts = counted and means_whole_dataset(code.slice(left))
                return printed or counts or means_learning_rate(_named(code, each))
            case ir.Argument():
                call = code.parent(each)
                name = ir.last_name(call.func) if isinstance(call, ir.Call) else ""
                if name in _KEEPS_OR_PRINTS or (plain and name in _LOADERS.union(own)):
                    return True
                if name not in _NUMBERS:
                    return False
            case ir.Call() | ir.Collection() | ir.Compare() | ir.Conditional():
                pass
            case _:
                return False
        below = each
    return False


def _named(code: Code, operation: ir.Node) -> str:
    """Return the text of an operation with the name of what it is given to."""
    around = (each for each in code.ancestors(operation) if not isinstance(each, ir.BinOp))
    owner = next(around)
    return code.slice(owner if isinstance(owner, (ir.Argument, ir.Assign)) else operation)
