"""Values of arguments that Lightning's strategies take, and that fail or do nothing later."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.strategies import StrategyCall, strategy_calls, value_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.lightning_settings import (
    BACKWARD_PREFETCH,
    CHECKPOINTING_POLICY,
    MIXED_PRECISION,
    POLICY,
    PREFETCH,
    SHARDING,
    STATES,
    TIMEOUT,
    is_fsdp,
    is_module,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD932",
    summary="a strategy of Lightning has a value that fails, or does nothing, later",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Few public strategies for FSDP were found, and hardly a finding in them.",
)

_POLICIES = (POLICY, CHECKPOINTING_POLICY)
_PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST")


def reports(program: Program) -> Iterator[Report]:
    """Yield a report for each value that is refused, or ignored, in every release."""
    for made in strategy_calls(program):
        for argument in made.call.args if is_fsdp(made.settings.kind) else ():
            found = _reason(program, made, argument)
            if found:
                span = Span(made.tree.path, argument.start, argument.end)
                shown = program.text(made.tree.path, argument)
                message = f"`{shown if len(shown) < 60 else argument.keyword}` {found}"
                fix = partial(_fix, program, made, argument)
                yield Report(span, message, "is no value for it", (), fix)


def _reason(program: Program, made: StrategyCall, argument: ir.Argument) -> str:
    """Return what a value leads to, "" if that is nothing bad or unknown."""
    name, value = argument.keyword, value_of(program, made.tree, argument.value)
    if name in _POLICIES and _is_policy_for_sure_not(program, made, argument.value):
        return "fails once the model is set up: a policy is a set of classes or a function"
    if name == STATES and _is_unknown(made, STATES, value):
        return f"fails at the first checkpoint: {made.settings.lightning} takes {_listed(made)}"
    if name == SHARDING and isinstance(value, str) and _is_unknown(made, SHARDING, value.upper()):
        return "raises a KeyError: `ShardingStrategy` has no such member"
    if name == PREFETCH and isinstance(argument.value, ir.Constant) and isinstance(value, str):
        return "prefetches nothing, without a message: FSDP compares it with `BackwardPrefetch`"
    if name == MIXED_PRECISION and (isinstance(value, str) or value is True):
        return "fails once the model is set up: FSDP takes a `MixedPrecision`"
    if name == TIMEOUT and isinstance(value, (int, float)) and not isinstance(value, bool):
        return "fails when the processes meet: PyTorch takes a `timedelta`"
    return ""


def _is_unknown(made: StrategyCall, name: str, value: object) -> bool:
    return isinstance(value, str) and not made.settings.takes(name, value)


def _listed(made: StrategyCall) -> str:
    words = sorted(made.settings.releases[-1].takes(STATES, made.settings.kind))
    return " or ".join(f'"{word}"' for word in words)


def _is_policy_for_sure_not(program: Program, made: StrategyCall, value: ir.Expr) -> bool:
    meant = made.tree.meaning(value)
    if isinstance(meant, ir.Collection):
        return meant.kind in ("list", "tuple")
    if isinstance(meant, (ir.DictDisplay, ir.Constant)):
        return not (isinstance(meant, ir.Constant) and meant.value is None)
    return _is_class(program, made, meant)


def _is_class(program: Program, made: StrategyCall, value: ir.Expr) -> bool:
    """Return whether a value is a module's class: one of the file, or one of PyTorch."""
    top, name = made.tree.module.body, program.project.library_name(made.tree.path, value)
    if isinstance(value, ir.Name):
        classes = (node for node in top if isinstance(node, ir.ClassDef) and node.name == value.id)
        return any(node.bases for node in classes) or is_module(name)
    return is_module(name)


def _fix(program: Program, made: StrategyCall, argument: ir.Argument) -> Fix | Declined:
    code, name = Code.of(made.tree), argument.keyword
    value = value_of(program, made.tree, argument.value)
    if name in _POLICIES:
        return _as_set(code, argument)
    if name == STATES and isinstance(value, str):
        meant = sorted(made.settings.releases[-1].takes(STATES, made.settings.kind))
        close = [word for word in meant if word.removesuffix("ed") in value.lower()]
        return _replaced(code, argument, f'"{close[0]}"') if len(close) == 1 else _unclear(name)
    if name == SHARDING and isinstance(value, str):
        word = f"_{value.upper()}"
        is_known = made.settings.takes(SHARDING, word)
        return _replaced(code, argument, f'"{word}"') if is_known else _unclear(name)
    if name == PREFETCH and isinstance(value, str) and value.upper() in _PREFETCHES:
        return _as_member(code, argument, value.upper())
    return _unclear(name)


def _unclear(name: str | None) -> Declined:
    return Declined(f"the intended value is unclear; correct `{name}` by hand")


@builder
def _replaced(code: Code, argument: ir.Argument, text: str) -> Fix:
    edit = code.edit(argument.value.start, argument.value.end, text)
    return Fix(f"set `{argument.keyword}` to `{text}`", Safety.UNSAFE, (edit,))


@builder
def _as_member(code: Code, argument: ir.Argument, word: str) -> Fix:
    imports = Imports(code, argument)
    text = f"{imports.name(*BACKWARD_PREFETCH)}.{word}"
    edit = code.edit(argument.value.start, argument.value.end, text)
    return Fix(f"pass `{text}`", Safety.UNSAFE, (edit, *imports.edits()))


def _as_set(code: Code, argument: ir.Argument) -> Fix | Declined:
    value = argument.value
    if isinstance(value, ir.Collection) and value.elements:
        inside = ", ".join(code.slice(each) for each in value.elements)
        return _replaced(code, argument, f"{{{inside}}}")
    if isinstance(value, (ir.Name, ir.Attribute)) and code.meaning(value) is value:
        return _replaced(code, argument, f"{{{code.slice(value)}}}")
    return Declined("the classes are not in the call; pass them in a set by hand")
