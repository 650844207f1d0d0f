"""Correlation: what earlier decisions on a path imply for later tests of the same things."""

from __future__ import annotations

import pytest

from fsdplint.engine.interpreter.comparison import compare, negated
from fsdplint.engine.interpreter.decisions import Decisions
from fsdplint.engine.interpreter.values import (
    NONE,
    Choice,
    Condition,
    Const,
    Mapping,
    Object,
    Origin,
    Sequence,
    Symbol,
    Taint,
    Value,
    key_of,
)

ASKED: object = "a place"


def unknown(serial: int = 1, key: object = None, taint: Taint = Taint.NONE) -> Object:
    return Object(serial, Origin.PARAMETER, key=key, taint=taint)


def told(*tests: tuple[Value, bool]) -> Decisions:
    """A path on which these tests came out so."""
    decisions = Decisions()
    for test, outcome in tests:
        assert decisions.decide(test, outcome, 1, ASKED) is outcome
    return decisions


X = unknown(1)
Y = unknown(2)


def against(op: str, constant: object, subject: Value = X) -> Value:
    return compare(op, subject, Const(constant))


@pytest.mark.parametrize(
    ("told_op", "told_constant", "outcome", "asked_op", "asked_constant", "expected"),
    [
        # the same test, and its opposite
        ("Equal", "fsdp", True, "Equal", "fsdp", True),
        ("Equal", "fsdp", False, "Equal", "fsdp", False),
        ("Equal", "fsdp", True, "NotEqual", "fsdp", False),
        ("NotEqual", "fsdp", True, "Equal", "fsdp", False),
        ("Is", None, True, "IsNot", None, False),
        ("Is", None, False, "Equal", None, False),
        # equal to one thing is equal to no other
        ("Equal", "fsdp", True, "Equal", "ddp", False),
        ("Equal", "fsdp", True, "NotEqual", "ddp", True),
        ("Equal", "fsdp", False, "Equal", "ddp", None),
        ("NotEqual", "fsdp", False, "Equal", "ddp", False),
        ("Equal", 1, True, "Equal", 2, False),
        ("Is", None, True, "Equal", "fsdp", False),
        # intervals
        ("Equal", 2, True, "GreaterThan", 1, True),
        ("Equal", 2, True, "GreaterThan", 2, False),
        ("Equal", 2, True, "LessThan", 3, True),
        ("Equal", 2, False, "GreaterThan", 1, None),
        ("GreaterThan", 1, True, "Equal", 1, False),
        ("GreaterThan", 1, True, "Equal", 2, None),
        ("GreaterThan", 1, False, "Equal", 1, None),
        ("GreaterThan", 1, False, "Equal", 2, False),
        ("GreaterThan", 1, True, "GreaterThan", 0, True),
        ("GreaterThan", 1, True, "GreaterThan", 1.0, True),
        ("GreaterThan", 1, False, "GreaterThan", 1.0, False),
        ("GreaterThan", 1, True, "GreaterThan", 2, None),
        ("GreaterThan", 1, False, "GreaterThan", 2, False),
        ("GreaterThan", 1, False, "GreaterThan", 0, None),
        ("GreaterThan", 1, True, "LessThanEqual", 1, False),
        ("GreaterThan", 1, True, "GreaterThanEqual", 2, True),
        ("GreaterThanEqual", 2, True, "GreaterThan", 1, True),
        ("LessThan", 2, True, "GreaterThan", 1, False),
        ("LessThanEqual", 1, True, "LessThan", 2, True),
        ("GreaterThan", 1, False, "NotEqual", 2, True),
        ("GreaterThan", 0.5, True, "Equal", 0.25, False),
        # a string has no place among numbers
        ("GreaterThan", 1, True, "Equal", "fsdp", None),
    ],
)
def test_one_comparison_implies_another(
    told_op: str,
    told_constant: object,
    outcome: bool,
    asked_op: str,
    asked_constant: object,
    expected: bool | None,
) -> None:
    decisions = told((against(told_op, told_constant), outcome))
    assert decisions.known(against(asked_op, asked_constant)) is expected
    about_another = against(asked_op, asked_constant, Y)
    assert decisions.known(about_another) is None


def test_a_comparison_with_an_unknown_excludes_nothing() -> None:
    decisions = told((compare("Equal", X, Y), True))
    assert decisions.known(compare("Equal", X, Y)) is True
    assert decisions.known(compare("Equal", X, unknown(3))) is None
    assert decisions.known(against("Equal", "fsdp")) is None


def test_symbols_are_told_apart_by_identity_alone() -> None:
    sgd, adam = Symbol("torch.optim.SGD"), Symbol("torch.optim.Adam")
    decisions = told((compare("Is", X, sgd), True))
    assert decisions.known(compare("Is", X, Symbol("torch.optim.SGD"))) is True
    assert decisions.known(compare("Is", X, adam)) is None


@pytest.mark.parametrize("outcome", [True, False])
def test_the_truth_of_an_object_is_remembered_by_its_key(outcome: bool) -> None:
    decisions = told((unknown(1, key="args.fsdp"), outcome))
    assert decisions.known(unknown(2, key="args.fsdp")) is outcome
    assert decisions.known(negated(unknown(3, key="args.fsdp"))) is (not outcome)
    assert decisions.known(unknown(4, key="args.ddp")) is None
    assert decisions.known(unknown(1)) is None


def test_none_is_not_true() -> None:
    is_none = against("Is", None)
    assert told((is_none, True)).known(X) is False
    assert told((is_none, False)).known(X) is None
    assert told((X, True)).known(is_none) is False
    assert told((X, False)).known(is_none) is None
    assert told((is_none, True)).known(Y) is None


def test_negations_are_remembered_as_what_they_negate() -> None:
    decisions = told((negated(X), True))
    assert decisions.known(X) is False
    assert decisions.known(negated(negated(X))) is False
    assert [decision.outcome for decision in decisions.made] == [False]


@pytest.mark.parametrize(
    ("op", "parts", "expected"),
    [
        ("and", (True, True), True),
        ("and", (True, None), None),
        ("and", (None, False), False),
        ("and", (None, None), None),
        ("or", (False, False), False),
        ("or", (False, None), None),
        ("or", (None, True), True),
    ],
)
def test_a_conjunction_and_a_disjunction_follow_from_their_parts(
    op: str, parts: tuple[bool | None, ...], expected: bool | None
) -> None:
    operands = (X, Y)
    decisions = told(*((v, t) for v, t in zip(operands, parts, strict=True) if t is not None))
    assert decisions.known(Condition(op, operands, (op, "x", "y"))) is expected


@pytest.mark.parametrize(
    ("op", "prefer", "made"),
    [
        ("and", True, [True, True]),
        ("and", False, [False]),
        ("or", True, [True]),
        ("or", False, [False, False]),
    ],
)
def test_deciding_a_whole_decides_its_parts_in_order(
    op: str, prefer: bool, made: list[bool]
) -> None:
    decisions = Decisions()
    whole = Condition(op, (X, Y), (op, "x", "y"))
    assert decisions.decide(whole, prefer, 3, ASKED) is prefer
    assert [(d.key, d.outcome, d.priority) for d in decisions.made] == [
        (key_of(v), outcome, 3) for v, outcome in zip((X, Y), made, strict=False)
    ]
    assert decisions.known(X) is made[0]


def test_only_the_part_that_is_open_is_decided() -> None:
    decisions = told((X, True))
    whole = Condition("and", (X, Y), ("and", "x", "y"))
    assert decisions.decide(whole, False, 1, ASKED) is False
    assert [decision.key for decision in decisions.made] == [key_of(X), key_of(Y)]
    assert decisions.known(Y) is False


def test_the_prefix_comes_before_what_a_branch_prefers() -> None:
    decisions = Decisions((False, True))
    outcomes = [decisions.decide(unknown(n), n == 1, 1, ASKED) for n in (1, 2, 3)]
    assert outcomes == [False, True, False]


def test_a_known_condition_takes_nothing_from_the_prefix() -> None:
    decisions = Decisions((True, False))
    assert decisions.decide(against("Equal", "fsdp"), False, 1, ASKED) is True
    assert decisions.decide(against("Equal", "ddp"), True, 1, ASKED) is False
    assert decisions.decide(Y, True, 1, ASKED) is False
    assert [decision.outcome for decision in decisions.made] == [True, False]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Const(""), False),
        (Const("x"), True),
        (NONE, False),
        (Const(0), False),
        (Symbol("torch.nn.Module"), True),
        (Sequence([Const(0)]), True),
        (Sequence([]), None),
        (Sequence([], [Const(0)]), None),
        (Mapping({"a": NONE}), True),
        (Mapping(), None),
        (Object(9, Origin.ALLOCATED), True),
        (Object(9, Origin.UNKNOWN), None),
        (Object(9, Origin.PART), None),
        (Choice((Const(1), Const(2))), True),
        (Choice((NONE, Const(0))), False),
        (Choice((NONE, Const(1))), None),
    ],
)
def test_the_truth_of_a_value_by_its_kind(value: Value, expected: bool | None) -> None:
    assert Decisions().known(value) is expected


# Comparisons


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("Equal", 1, 1, True),
        ("NotEqual", 1, 1, False),
        ("LessThan", 1, 2, True),
        ("GreaterThanEqual", 2, 2, True),
        ("LessThanEqual", 3, 2, False),
        ("Is", None, None, True),
        ("IsNot", None, None, False),
    ],
)
def test_constants_are_compared(op: str, left: object, right: object, expected: bool) -> None:
    found = compare(op, Const(left), Const(right))
    assert isinstance(found, Const)
    assert found.value is expected


def test_what_cannot_be_ordered_is_not_known() -> None:
    assert isinstance(compare("GreaterThan", Const("a"), Const(1)), Condition)


@pytest.mark.parametrize(
    "value", [Object(9, Origin.ALLOCATED), Sequence([]), Mapping()], ids=lambda v: type(v).__name__
)
def test_what_was_made_is_not_none(value: Value) -> None:
    assert Decisions().known(compare("Is", value, NONE)) is False
    assert Decisions().known(compare("IsNot", value, NONE)) is True
    assert Decisions().known(compare("Is", X, NONE)) is None


def test_an_object_is_itself() -> None:
    assert Decisions().known(compare("Is", X, X)) is True
    assert Decisions().known(compare("Is", X, Y)) is None


def test_a_choice_is_compared_option_by_option() -> None:
    names = Choice((Const("ddp"), Const("none")))
    assert Decisions().known(compare("Equal", names, Const("fsdp"))) is False
    assert Decisions().known(compare("Equal", names, Const("ddp"))) is None


def test_membership_is_one_comparison_or_another() -> None:
    within = compare("In", X, Sequence([Const("fsdp"), Const("hsdp")], kind="tuple"))
    assert told((against("Equal", "hsdp"), True)).known(within) is True
    assert told((against("Equal", "ddp"), True)).known(within) is False
    assert told((within, False)).known(against("Equal", "fsdp")) is False
    without = compare("NotIn", X, Sequence([Const("fsdp")], kind="tuple"))
    assert told((without, False)).known(against("Equal", "fsdp")) is True


def test_a_constant_may_stand_on_either_side() -> None:
    decisions = told((compare("Equal", Const("fsdp"), X), True))
    assert decisions.known(against("Equal", "fsdp")) is True
    assert told((compare("LessThan", Const(1), X), True)).known(against("Equal", 1)) is False
    assert told((compare("GreaterThan", Const(2), X), True)).known(against("Equal", 2)) is False
    assert told((compare("GreaterThan", Const(2), X), True)).known(against("Equal", 1)) is None


def test_a_comparison_has_the_taints_of_both_sides() -> None:
    rank = unknown(3, taint=Taint.RANK)
    step = unknown(4, taint=Taint.ELEMENT)
    assert compare("NotEqual", rank, Const(0)).taint == Taint.RANK
    assert compare("LessThan", rank, step).taint == Taint.RANK | Taint.ELEMENT
    assert negated(compare("Equal", step, Const(0))).taint == Taint.ELEMENT


def test_what_is_remembered_of_a_value_is_not_taken_for_a_later_one() -> None:
    keys = {key_of(Sequence([])) for _ in range(100)}
    assert len(keys) == 100
