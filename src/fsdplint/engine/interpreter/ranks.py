"""Which ranks a branch can be taken by, where that is known of its test.

A distributed run is stood for by one of `RANKS` ranks: a test is evaluated once for each, with
three outcomes. Only what is a rank by its source counts, see `knowledge.ranks`; of anything else
the outcome is not known, and a branch on it excludes no rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import EVERY_RANK, RANKS
from fsdplint.engine.interpreter.values import Choice, Condition, Const, Object, Taint, Value
from fsdplint.knowledge.ranks import Role


def ranks_of(test: Value, taken: bool) -> frozenset[int]:
    """The ranks that may see ``test`` come out as ``taken``; none in a run of several, at times."""
    if not isinstance(test, (Condition, Choice, Object)):
        return EVERY_RANK
    if not test.taint & Taint.RANK:
        return EVERY_RANK if _truth(test, 0) is not (not taken) else frozenset()
    return frozenset(rank for rank in range(RANKS) if _truth(test, rank) is not (not taken))


def rank_tests(test: Value, node: ir.Node) -> tuple[ir.Node, ...]:
    """The operands of ``node``, a conjunction or disjunction, that tell ranks apart."""
    if isinstance(node, ir.BoolOp) and isinstance(test, Condition) and test.op == node.op:
        left, right = test.operands
        return (*rank_tests(left, node.left), *rank_tests(right, node.right))
    apart = any(ranks_of(test, taken) != EVERY_RANK for taken in (True, False))
    return (node,) if apart else ()


def rank_sources(test: Value) -> Iterator[str]:
    """By what the numbers of ranks in a test are told."""
    if isinstance(test, Object) and test.role in (Role.NUMBER, Role.FIRST):
        yield test.rank_source
    inner = test.operands if isinstance(test, Condition) else ()
    for value in inner or (test.options if isinstance(test, Choice) else ()):
        yield from rank_sources(value)


def _truth(value: Value, rank: int) -> bool | None:
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Choice):
        return _agreed([_truth(option, rank) for option in _telling(value)])
    if isinstance(value, Condition):
        return _condition(value, rank)
    if isinstance(value, Object) and value.role is Role.NUMBER:
        return rank > 0
    if isinstance(value, Object) and value.role is Role.FIRST:
        return rank == 0
    return None


def _condition(value: Condition, rank: int) -> bool | None:
    if rank not in value.truths:
        value.truths[rank] = _operation(value, rank)
    return value.truths[rank]


def _operation(value: Condition, rank: int) -> bool | None:
    if value.op in ("and", "or"):
        absorbing = value.op == "or"
        truths = [_truth(operand, rank) for operand in value.operands]
        if absorbing in truths:
            return absorbing
        return None if None in truths else not absorbing
    if value.op == "not":
        inner = _truth(value.operands[0], rank)
        return None if inner is None else not inner
    if value.op in ("==", ">"):
        return _comparison(value, rank)
    return None


def _comparison(value: Condition, rank: int) -> bool | None:
    left, right = value.operands
    a, b = _number(left, rank), _number(right, rank)
    if a is not None and b is not None:
        return a == b if value.op == "==" else a > b
    if is_size(left) and b is not None and b <= 1:
        return value.op == ">"  # more than one rank is what a distributed run has
    if is_size(right) and a is not None and a < RANKS:
        return False
    return None


def _number(value: Value, rank: int) -> int | None:
    if isinstance(value, Const):
        return _whole(value.value)
    if isinstance(value, Choice):
        numbers = {_number(option, rank) for option in _telling(value)}
        return numbers.pop() if len(numbers) == 1 else None
    if isinstance(value, Object) and value.role is Role.NUMBER:
        return rank
    return None


def _whole(constant: object) -> int | None:
    """A constant as a rank may be compared with: "0" is what the environment holds."""
    if isinstance(constant, str):
        return int(constant) if constant.lstrip("-").isdecimal() else None
    return int(constant) if isinstance(constant, (int, bool)) else None


def is_size(value: Value) -> bool:
    """Whether a value is the number of ranks in a distributed run."""
    options = _telling(value) if isinstance(value, Choice) else [value]
    return all(isinstance(option, Object) and option.role is Role.SIZE for option in options)


def _telling(value: Choice) -> list[Value]:
    """The options without the constants that stand for a run of one process."""
    telling: list[Value] = [option for option in value.options if not isinstance(option, Const)]
    return telling if telling else [*value.options]


def _agreed(truths: list[bool | None]) -> bool | None:
    return truths[0] if len(set(truths)) == 1 else None
