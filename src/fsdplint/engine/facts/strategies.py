"""Lightning's strategies for FSDP in code, and the trainers and `Fabric`s that take them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.configs.lightning import Arguments, Given, StrategySettings
from fsdplint.configs.nodes import UNKNOWN
from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.program import Program
from fsdplint.finding import Span
from fsdplint.knowledge.fsdp import SHARDING_STRATEGIES, STATE_DICT_TYPES
from fsdplint.knowledge.lightning_settings import (
    BACKWARD_PREFETCH,
    OWNER_NAMES,
    STRATEGY_NAMES,
    admitted,
    is_owner,
    is_trainer,
    kind_of,
    kind_of_word,
)

_ENUMERATIONS = (SHARDING_STRATEGIES, STATE_DICT_TYPES, ".".join((*BACKWARD_PREFETCH, "")))
_ARGUMENT = "strategy"


@dataclass(frozen=True, slots=True)
class StrategyCall:
    """A call that makes a strategy."""

    tree: Tree
    call: ir.Call
    settings: StrategySettings

    def argument(self, name: str) -> ir.Argument | None:
        """Return the argument of a keyword."""
        return next((each for each in self.call.args if each.keyword == name), None)


def strategy_calls(program: Program) -> Iterator[StrategyCall]:
    """Yield the calls that make one of Lightning's own strategies."""
    for tree in program.trees_with(*STRATEGY_NAMES):
        for node in tree.walk(*STRATEGY_NAMES):
            kind = _kind(program, tree, node)
            if kind and isinstance(node, ir.Call):
                place = Span(tree.path, node.func.start, node.func.end)
                made = _settings(program, tree, kind, place, node, None)
                if made.releases:
                    yield StrategyCall(tree, node, made)


def trainer_calls(program: Program) -> Iterator[StrategySettings]:
    """Yield each strategy that a trainer or a `Fabric` may be given, with its arguments."""
    for tree in program.trees_with(*OWNER_NAMES):
        for node in tree.walk(*OWNER_NAMES):
            cls = _class(program, tree, node)
            if isinstance(node, ir.Call) and is_owner(cls):
                yield from _of_owner(program, tree, node, is_trainer(cls))


def _of_owner(
    program: Program, tree: Tree, call: ir.Call, of_trainer: bool
) -> Iterator[StrategySettings]:
    given = next((each for each in call.args if each.keyword == _ARGUMENT), None)
    place = Span(tree.path, given.start, given.end) if given else None
    for value in _values(tree, given.value, call) if given else ():
        word = value.value if isinstance(value, ir.Constant) else None
        kind = kind_of_word(word, of_trainer) if isinstance(word, str) else 0
        kind = kind or _kind(program, tree, value)
        if kind and place:
            made = _settings(program, tree, kind, place, value, call)
            if made.releases:
                yield made


def _class(program: Program, tree: Tree, node: ir.Node) -> str:
    if not isinstance(node, ir.Call):
        return ""
    return program.project.library_name(tree.path, node.func)


def _kind(program: Program, tree: Tree, node: ir.Node) -> int:
    return kind_of(_class(program, tree, node))


def _settings(
    program: Program, tree: Tree, kind: int, place: Span, made: ir.Expr, owner: ir.Call | None
) -> StrategySettings:
    word = str(made.value) if isinstance(made, ir.Constant) else ""
    strategy = Arguments() if word else _arguments(program, tree, made)
    given = _arguments(program, tree, owner) if owner else None
    releases = admitted(program.admits)
    name = word or _class(program, tree, made)

    def has(pattern: re.Pattern[str]) -> bool:
        texts = (program.project.read(file) or "" for file in program.files)
        return any(pattern.search(text) for text in texts)

    return StrategySettings(kind, place, name, strategy, given, releases, has)


def _arguments(program: Program, tree: Tree, call: ir.Expr) -> Arguments:
    if not isinstance(call, ir.Call):
        return Arguments(is_whole=False)
    named = {each.keyword: each for each in call.args if each.keyword is not None}
    given = {
        name: Given(
            value_of(program, tree, each.value),
            Span(tree.path, each.start, each.end),
            program.text(tree.path, each),
        )
        for name, each in named.items()
    }
    return Arguments(given, len(named) == len(call.args))


def value_of(program: Program, tree: Tree, expression: ir.Expr) -> object:
    """Return a constant, a list of them, the name of an enumeration's member, or `UNKNOWN`."""
    meant = tree.meaning(expression)
    if isinstance(meant, ir.Constant):
        return meant.value
    if isinstance(meant, ir.Collection) and meant.kind in ("list", "tuple"):
        return [value_of(program, tree, each) for each in meant.elements]
    name = program.project.library_name(tree.path, meant)
    for prefix in _ENUMERATIONS:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return UNKNOWN


def _values(tree: Tree, expression: ir.Expr, use: ir.Call) -> Iterator[ir.Expr]:
    """Yield what a value may be where it is used: of a variable, what may be assigned last."""
    if isinstance(expression, ir.Conditional):
        yield from _values(tree, expression.body, use)
        yield from _values(tree, expression.orelse, use)
    elif isinstance(expression, ir.Name):
        for value in _assigned_last(tree, expression, use):
            if not isinstance(value, ir.Name):
                yield from _values(tree, value, use)
    else:
        yield expression


def _assigned_last(tree: Tree, name: ir.Name, use: ir.Call) -> list[ir.Expr]:
    above = list(tree.ancestors(use))
    values = [value for value in tree.assigned(name) if value.end <= use.start]
    # In its own block, or in one around it, an assignment replaces those before it.
    certain = [v.start for v in values if tree.parent(tree.statement(v)) in above]
    last = max((at for at in certain), default=0)
    return [v for v in values if v.start >= last and not _apart(tree, v, above)]


def _apart(tree: Tree, value: ir.Expr, above: list[ir.Node]) -> bool:
    """Return whether a value is in another arm than the use that these nodes are around."""
    inside: ir.Node = value
    for node in tree.ancestors(value):
        if node in above and isinstance(node, ir.Match):
            return True
        if node in above and isinstance(node, ir.If):
            arms = [arm for arm in (node.body, node.orelse) if inside in arm]
            return not arms or not any(each in above for each in arms[0])
        inside = node
    return False
