"""Syntactic properties of blocks of statements: how they end, what they assign."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items

from fsdplint.engine import ir
from fsdplint.knowledge.calls import SHARDING_NAMES
from fsdplint.knowledge.checkpoints import ALWAYS_THERE

_LEAVES = (ir.Return, ir.Raise, ir.Break, ir.Continue)


def leaves(body: Items[ir.Stmt]) -> bool:
    """True if a block surely leaves the function or the loop, or ends the program."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, (ir.If, ir.Case)):
        always = isinstance(last.test, ir.Matches) and not last.test.patterns
        return leaves(last.body) and (always or leaves(last.orelse))
    if isinstance(last, ir.Match):
        return leaves(last.body)
    return isinstance(last, _LEAVES) or exits(last)


def returns_value(body: Items[ir.Stmt]) -> bool:
    last = body[-1] if body else None
    return isinstance(last, ir.Return) and not isinstance(last.value, (ir.Constant, type(None)))


def exits_cleanly(body: Items[ir.Stmt]) -> bool:
    """True if a block ends with a call that ends this process alone, without an error."""
    last = body[-1] if body else None
    if last is None or not exits(last) or not isinstance(last, ir.Expression):
        return False
    call = last.value
    status = call.args[0].value if isinstance(call, ir.Call) and call.args else None
    return status is None or (isinstance(status, ir.Constant) and not status.value)


def exits(node: ir.Stmt) -> bool:
    call = node.value if isinstance(node, ir.Expression) else None
    return isinstance(call, ir.Call) and ir.last_name(call.func) in ("exit", "_exit", "abort")


def adds_to_itself(node: ir.Assign) -> bool:
    """True if a statement is ``total = total + …``."""
    value, target = node.value, node.targets[0]
    if not isinstance(value, ir.BinOp) or value.op != "Add":
        return False
    left = value.left
    return isinstance(left, ir.Name) and isinstance(target, ir.Name) and left.id == target.id


def fails_unless(block: Items[ir.Stmt], test: ir.Node) -> bool:
    """True if a block ends in a ``raise`` unless the ``if`` on ``test`` or a later one returns."""
    at = next((i for i, node in enumerate(block) if getattr(node, "test", None) is test), None)
    if at is None or not isinstance(block[-1], ir.Raise):
        return False
    choices = block[at:-1]
    return all(isinstance(node, ir.If) and _only_returns(node) for node in choices)


def _only_returns(node: ir.If) -> bool:
    return bool(node.body) and isinstance(node.body[-1], ir.Return) and not node.orelse


def only_imports(body: Items[ir.Stmt]) -> bool:
    return bool(body) and all(isinstance(node, (ir.Import, ir.ImportFrom)) for node in body)


def imports_only_what_is_there(body: Items[ir.Stmt]) -> bool:
    """True if statements only set flags and import names of `ALWAYS_THERE`."""
    imports = [node for node in body if isinstance(node, (ir.Import, ir.ImportFrom))]
    names = [name for node in imports for name in _imported(node)]
    flags = [node for node in body if isinstance(node, ir.Assign)]
    constants = all(isinstance(node.value, ir.Constant) for node in flags)
    return (
        bool(names)
        and constants
        and len(imports) + len(flags) == len(body)
        and (ALWAYS_THERE.issuperset(names))
    )


def _imported(node: ir.Import | ir.ImportFrom) -> Iterator[str]:
    if isinstance(node, ir.Import):
        yield from (name for name, _ in node.names)
        return
    dots = "." * node.level
    yield from (f"{dots}{node.module}.{name}" for name, _ in node.names)
    if not node.names:
        yield f"{dots}{node.module}.*"


def missing_module(node: ir.Try) -> str:
    """Return the first module of a `try` that only imports; "" if it is relative, or no import."""
    first = node.body[0] if only_imports(node.body) else None
    name = next(_imported(first), "") if isinstance(first, (ir.Import, ir.ImportFrom)) else ""
    return "" if name.startswith(".") else name


def falls_back_on_sharding(node: ir.Try) -> bool:
    """True if a `try` imports a library, and its handlers PyTorch's sharding instead."""
    handled = [each for handler in node.handlers for each in handler.body]
    return (
        only_imports(node.body) and _imports_sharding(handled) and not _imports_sharding(node.body)
    )


def _imports_sharding(body: Items[ir.Stmt]) -> bool:
    imports = (each for each in body if isinstance(each, (ir.Import, ir.ImportFrom)))
    names = (name.rpartition(".")[2] for each in imports for name in _imported(each))
    return not SHARDING_NAMES.isdisjoint(names)


def expects_failed_import(node: ir.Try) -> bool:
    """True if a `try` handles that a module is not installed."""
    types = [handler.type for handler in node.handlers]
    if only_imports(node.body):
        return bool(types)
    named = {ir.last_name(each) for handled in types if handled for each in _alternatives(handled)}
    return not named.isdisjoint(("ImportError", "ModuleNotFoundError"))


def _alternatives(handled: ir.Expr) -> Items[ir.Expr]:
    return handled.elements if isinstance(handled, ir.Collection) else (handled,)


def assigned(block: ir.Stmt) -> Iterator[ir.Expr]:
    """Yield the targets assigned anywhere in a statement, such as a loop."""
    for node in ir.walk(block):
        if isinstance(node, ir.AugAssign):
            yield node.target
        elif isinstance(node, ir.Assign):
            yield from node.targets
