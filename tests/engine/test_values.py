"""The lattice of values: what a join keeps, and what each of the three queries makes of it."""

from __future__ import annotations

from fsdplint.engine.interpreter.values import (
    Choice,
    Condition,
    Const,
    Inner,
    Object,
    Origin,
    Symbol,
    Tensor,
    choice,
    followed,
    may_be,
    must_be,
)

A = Object(1, Origin.ALLOCATED)
B = Object(2, Origin.ALLOCATED)
ONE, TWO, NONE = Const(1), Const(2), Const(None)


def test_a_join_of_equal_values_is_one_of_them() -> None:
    assert choice([ONE, Const(1)]) is ONE
    assert choice([Symbol("torch.float32")] * 2).name == "torch.float32"  # type: ignore[union-attr]
    assert choice([A, A]) is A


def test_a_join_of_choices_is_flat() -> None:
    joined = choice([choice([A, NONE]), B, NONE])
    assert isinstance(joined, Choice)
    assert joined.options == (A, NONE, B)


def test_an_object_is_followed_where_a_constant_could_stand() -> None:
    assert followed(choice([NONE, A])) is A
    assert must_be(choice([NONE, A])) is None
    assert may_be(choice([NONE, A])) == (NONE, A)


def test_the_first_of_two_objects_is_followed() -> None:
    either = choice([A, B])
    assert followed(either) is A
    assert must_be(either) is None


def test_of_several_constants_none_is_followed() -> None:
    either = choice([ONE, TWO])
    assert followed(either) is either
    assert must_be(either) is None
    assert may_be(either) == (ONE, TWO)


def test_what_is_one_thing_is_known() -> None:
    assert followed(A) is must_be(A) is A
    assert may_be(A) == (A,)
    assert must_be(None) is None
    assert must_be(Choice((ONE, Const(1)))) is ONE


def test_the_module_inside_a_wrapper_is_the_one_alternative() -> None:
    inner = Inner((A,))
    assert followed(inner) is must_be(inner) is A


def test_an_or_prefers_its_first_operand_and_an_and_its_last() -> None:
    assert followed(Condition("or", (A, B), "key")) is A
    assert followed(Condition("and", (A, B), "key")) is B
    assert may_be(Condition("or", (choice([A, NONE]), B), "key")) == (A, NONE, B)


def test_a_tensor_is_followed_only_where_nothing_else_may_be() -> None:
    tensor = Tensor(A, 0)
    assert followed(choice([tensor, B])) is B
    assert followed(choice([tensor, NONE])) is tensor
