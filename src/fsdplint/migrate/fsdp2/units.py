"""FSDP1's wrap policies as loops that call `fully_shard` on the same modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.fixes.wrapping import on_one_line
from fsdplint.knowledge.modules import (
    ALWAYS_WRAPS,
    MODULE_WRAP_POLICY,
    TRANSFORMER_POLICY,
    WRAP,
    WRAP_CALL,
)
from fsdplint.knowledge.names import DTENSOR, FSDP1, FSDP2_MODULE, FULLY_SHARD, NN
from fsdplint.migrate.calls import are_alternatives, definition
from fsdplint.migrate.helpers import SHARD_BY_POLICY
from fsdplint.migrate.step import Context

_PARTIAL = "functools.partial"


@dataclass(frozen=True, slots=True)
class Units:
    """The submodules that a wrap policy selects.

    Attributes:
        test: the condition on `module` that selects one; "" for none, or if `policy` decides.
        policy: the expression of a policy that has to be asked at run time.
        what: which modules they are, for a message.
    """

    test: str = ""
    policy: str = ""
    what: str = ""


def units(context: Context, code: Code, call: ir.Call, policy: ir.Expr | None) -> Units:
    """Return what a policy selects, or the policy itself where its text does not show that.

    Raises:
        NoFixError: it is a policy that only FSDP1 can ask.
    """
    if policy is None or (isinstance(policy, ir.Constant) and policy.value is None):
        return Units()
    made = definition(code, policy)
    same = made is policy or _means_the_same(code, made, call)
    test = selected(context, code, made, code.slice) if same else None
    if test is not None:
        return test
    if any(True for _ in context.codes("CustomPolicy")):
        raise NoFixError("only FSDP1 can ask a `CustomPolicy`; shard the modules by hand")
    what = f"each module that `{code.short(policy)}` selects"
    return Units(policy=on_one_line(code, policy), what=what)


def _means_the_same(code: Code, made: ir.Expr, call: ir.Call) -> bool:
    """Return whether the names in a policy have the values of its definition at the call."""
    return not code.is_rebound(made) and (
        code.function(made) is code.function(call) or code.function(made) is None
    )


def selected(
    context: Context, code: Code, made: ir.Expr, text: Callable[[ir.Expr], str]
) -> Units | None:
    """Return what a policy selects if its text shows that.

    Args:
        text: returns the source of an expression at the place of the new code.
    """
    name = context.name(code, made.func if isinstance(made, ir.Call) else made)
    if name == ALWAYS_WRAPS:
        return Units("True", what="each module")
    if not isinstance(made, ir.Call) or any(each.star for each in made.args):
        return None
    if name == f"{WRAP}.{MODULE_WRAP_POLICY}":
        return of_classes(code, _value(made, 0, "module_classes"), text)
    if name == f"{WRAP}.CustomPolicy":
        return _of_function(code, _value(made, 0, "lambda_fn"), text)
    if name != _PARTIAL or not made.args:
        return None
    policy = context.name(code, made.args[0].value)
    if policy == TRANSFORMER_POLICY:
        return of_classes(code, _value(made, -1, "transformer_layer_cls"), text)
    if policy == f"{WRAP}._module_wrap_policy":
        return of_classes(code, _value(made, -1, "module_classes"), text)
    if policy == f"{WRAP}.lambda_auto_wrap_policy":
        return _of_function(code, _value(made, -1, "lambda_fn"), text)
    return None


def _value(made: ir.Call, position: int, keyword: str) -> ir.Expr | None:
    given = argument_of(made, position, keyword)
    return None if given is None else given.value


def of_classes(code: Code, given: ir.Expr | None, text: Callable[[ir.Expr], str]) -> Units | None:
    """Return the units of a collection of classes, None if it has parts that are not known."""
    if given is None:
        return None
    value = definition(code, given)
    if not isinstance(value, ir.Collection) or not value.elements:
        return Units(f"isinstance(module, tuple({text(given)}))", what="each block")
    if any(isinstance(each, ir.Starred) for each in value.elements):
        return None
    names = [text(each) for each in value.elements]
    classes = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return Units(f"isinstance(module, {classes})", what=f"each `{'` and `'.join(names)}`")


def _of_function(code: Code, given: ir.Expr | None, text: Callable[[ir.Expr], str]) -> Units | None:
    """Return the units of ``lambda_auto_wrap_policy``, whose function gets a module alone."""
    if given is None:
        return None
    function = text(given)
    if isinstance(given, ir.Lambda):
        function = f"({function})"
    return Units(f"{function}(module)", what=f"each module that `{code.short(given)}` selects")


def has_units(context: Context, code: Code, call: ir.Call) -> bool:
    """Return whether other calls may have sharded parts of the model before ``call``.

    A load of their DTensors as full tensors fails (run on torch 2.13).
    """
    names = {
        context.name(code, node.func)
        for node in code.nodes_of(code.scope(call))
        if isinstance(node, ir.Call) and node.start < call.start
        if not are_alternatives(code, node, call)
    }
    return not names.isdisjoint((FSDP1, FULLY_SHARD, WRAP_CALL)) or any(
        other.time < shard.time and shard.module in other.module.ancestors()
        for trace in context.program.traces
        for shard in trace.of(Shard)
        if shard.call is call
        for other in trace.of(Shard)
    )


def loop(code: Code, call: ir.Node, found: Units, model: str, settings: str) -> Iterator[str]:
    """Yield the lines that shard the units inside ``model``, children before parents.

    Args:
        settings: the arguments of each call after the module, with a comma before them.
    """
    if found.policy:
        yield f"{SHARD_BY_POLICY}({model}, {found.policy}{settings})"
        return
    if not found.test:
        return
    module = fresh(code, call, "module")
    test = found.test.replace("module", module, 1) if module != "module" else found.test
    yield f"for {module} in reversed(list({model}.modules())):"
    yield f"{code.unit}if {module} is not {model} and {test}:"
    yield f"{code.unit}{code.unit}fully_shard({module}{settings})"


def helper(code: Code, imports: Imports, *, norms: bool = False) -> str:
    """Return the lines of a function that shards what a callable policy selects.

    It asks as FSDP1's `_recursive_wrap` does (torch 2.13), so that it selects the same modules.

    Args:
        norms: batch norms are sharded before, and count as units.
    """
    unit, shard = code.unit, imports.name(*FULLY_SHARD.rsplit(".", 1))
    nn = imports.module(NN, "nn")
    lines = [
        f"def {SHARD_BY_POLICY}(module, policy, is_root=True, **settings):",
        f'{unit}"""Shard what an FSDP1 wrap policy selects below the root; return its size."""',
        f"{unit}size = sum(parameter.numel() for parameter in module.parameters())",
        *_asked(code, imports, norms=norms),
        f"{unit}sharded = sum(",
        f"{unit}{unit}{SHARD_BY_POLICY}(child, policy, False, **settings) "
        "for child in module.children()",
        f"{unit})",
        f"{unit}rest = size - sharded",
        f"{unit}if is_root or isinstance(module, ({nn}.ModuleList, {nn}.ModuleDict)):",
        f"{unit}{unit}return sharded",
        f"{unit}if not policy(module=module, recurse=False, nonwrapped_numel=rest):",
        f"{unit}{unit}return sharded",
        f"{unit}{shard}(module, **settings)",
        f"{unit}return size",
        "",
        "",
        "",
    ]
    return code.newline.join(lines)


def _asked(code: Code, imports: Imports, *, norms: bool) -> Iterator[str]:
    """Yield the lines that ask whether to go on with the children of a module."""
    unit, asked = code.unit, "policy(module=module, recurse=True, nonwrapped_numel=size)"
    if not norms:
        yield f"{unit}if not policy or not {asked}:"
        yield f"{unit}{unit}return 0"
        return
    dtensor = imports.name(*DTENSOR.rsplit(".", 1))
    fsdp = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    yield f"{unit}if isinstance(module, {fsdp}) or not policy or not {asked}:"
    sharded = f"p.numel() for p in module.parameters() if isinstance(p, {dtensor})"
    yield f"{unit}{unit}return sum({sharded})"
