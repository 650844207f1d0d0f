"""Which ranks a branch can be taken by, where that is known of its test.

`RANKS` ranks represent a distributed run of any size: a test is evaluated once for each, to true,
false or unknown. A value counts as a rank only by its source, see `knowledge.ranks`; the outcome of
any other test is unknown, so a branch on it excludes no rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.decisions import connected
from fsdplint.engine.interpreter.site import EVERY_RANK, RANKS
from fsdplint.engine.interpreter.values import (
    Choice,
    Condition,
    Const,
    Object,
    Symbol,
    Taint,
    Value,
)
from fsdplint.knowledge.launch import TRUE_ON_CUDA
from fsdplint.knowledge.ranks import ENVIRONMENT, FUNCTIONS, VARIABLES, Role

_SOURCES = VARIABLES.keys() | FUNCTIONS.keys()


def ranks_of(test: Value, taken: bool) -> frozenset[int]:
    """Return the ranks for which ``test`` may come out as ``taken``; possibly none."""
    if not isinstance(test, (Condition, Choice, Object)):
        return EVERY_RANK
    if not test.taint & Taint.RANK:
        return EVERY_RANK if _truth(test, 0) is not (not taken) else frozenset()
    return frozenset(rank for rank in range(RANKS) if _truth(test, rank) is not (not taken))


def launched(test: Value) -> bool | None:
    """Return what a test comes out as on every rank of a distributed run, None if it is unknown.

    A program may be started in another way, so this only tells which outcome to follow first.
    """
    if isinstance(test, Condition) and test.op == "not":
        inner = launched(test.operands[0])
        return None if inner is None else not inner
    if isinstance(test, Condition) and test.op in ("and", "or"):
        return connected(test.op, [launched(operand) for operand in test.operands])
    if isinstance(test, Condition) and _asks_for_rank(test):
        return test.op == "In"
    if not test.taint & Taint.RANK:
        return _truth(test, 0)
    truths = {_truth(test, rank) for rank in range(RANKS)}
    return truths.pop() if len(truths) == 1 else None


def on_cuda(test: Value) -> bool | None:
    """Return what a test comes out as where there is CUDA, None if it is about something else."""
    if isinstance(test, Condition) and test.op == "not":
        inner = on_cuda(test.operands[0])
        return None if inner is None else not inner
    if isinstance(test, Condition) and test.op in ("and", "or"):
        return connected(test.op, [on_cuda(operand) for operand in test.operands])
    return True if isinstance(test, Object) and test.rank_source in TRUE_ON_CUDA else None


def _asks_for_rank(test: Condition) -> bool:
    """True for `"RANK" in os.environ` and `os.environ.get("RANK") is None`.

    What is a rank for one launcher or device, and unknown for another, is a rank there too.
    """
    left, right = test.operands[0], test.operands[-1]
    if test.op == "In":
        environment = isinstance(right, Symbol) and right.name == ENVIRONMENT
        return environment and isinstance(left, Const) and str(left.value) in VARIABLES
    absent = test.op == "==" and isinstance(right, Const) and right.value is None
    options = left.options if isinstance(left, Choice) else (left,)
    return absent and any(isinstance(o, Object) and o.rank_source in _SOURCES for o in options)


def rank_tests(test: Value, node: ir.Node) -> tuple[ir.Node, ...]:
    """Return the operands of a conjunction or disjunction that distinguish ranks."""
    if isinstance(node, ir.BoolOp) and isinstance(test, Condition) and test.op == node.op:
        left, right = test.operands
        return (*rank_tests(left, node.left), *rank_tests(right, node.right))
    apart = any(ranks_of(test, taken) != EVERY_RANK for taken in (True, False))
    return (node,) if apart else ()


def rank_sources(test: Value) -> Iterator[str]:
    """Yield the functions and variables that the rank numbers in a test come from."""
    if isinstance(test, Object) and test.role in (Role.NUMBER, Role.FIRST):
        yield test.rank_source
    inner = test.operands if isinstance(test, Condition) else ()
    for value in inner or (test.options if isinstance(test, Choice) else ()):
        yield from rank_sources(value)


def _truth(value: Value, rank: int) -> bool | None:
    """Return the truth of a value on one rank, None if it is unknown."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Choice):
        truths = {_truth(option, rank) for option in _distributed(value)}
        return truths.pop() if len(truths) == 1 else None
    if isinstance(value, Condition):
        if rank not in value.truths:
            value.truths[rank] = _operation(value, rank)
        return value.truths[rank]
    if isinstance(value, Object) and value.role is Role.NUMBER:
        return rank > 0
    if isinstance(value, Object) and value.role is Role.FIRST:
        return rank == 0
    return None


def _operation(value: Condition, rank: int) -> bool | None:
    """Apply a condition's operator to the truths of its operands on one rank."""
    if value.op in ("and", "or"):
        return connected(value.op, [_truth(operand, rank) for operand in value.operands])
    if value.op == "not":
        inner = _truth(value.operands[0], rank)
        return None if inner is None else not inner
    if value.op in ("==", ">"):
        return _comparison(value, rank)
    return None


def _comparison(value: Condition, rank: int) -> bool | None:
    """Compare rank numbers and world sizes; a distributed run has more than one rank."""
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
        numbers = {_number(option, rank) for option in _distributed(value)}
        return numbers.pop() if len(numbers) == 1 else None
    if isinstance(value, Object) and value.role is Role.NUMBER:
        return rank
    return None


def _whole(constant: object) -> int | None:
    """Convert a constant that is compared with a rank; environment variables hold "0"."""
    if isinstance(constant, str):
        return int(constant) if constant.lstrip("-").isdecimal() else None
    return int(constant) if isinstance(constant, (int, bool)) else None


def is_size(value: Value) -> bool:
    """True if a value is the number of ranks of a distributed run."""
    options = _distributed(value) if isinstance(value, Choice) else [value]
    return all(isinstance(option, Object) and option.role is Role.SIZE for option in options)


def _distributed(value: Choice) -> list[Value]:
    """Return the options without the constants, which are for a run of one process."""
    return [option for option in value.options if not isinstance(option, Const)] or [*value.options]
