"""Branches on unknown conditions: decided once per path, remembered, and flipped by the explorer.

A decision is remembered by a key that says what the condition is about. So `if args.fsdp` has one
outcome on a path wherever it is tested, `mode == "ddp"` is false once `mode == "fsdp"` is true, and
`n > 1` excludes `n == 1`. Two calls with equal arguments share a key, though their results may
differ in a run: a path that assumed both outcomes of one setting would combine arms that no run
combines, and such a path must not witness a finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from fsdplint.engine.interpreter.values import (
    Choice,
    Condition,
    Const,
    Identity,
    Mapping,
    Object,
    Sequence,
    Tensor,
    Value,
    followed,
    key_of,
)

_NONE = ("const", "NoneType", None)


@dataclass(frozen=True, slots=True)
class Decision:
    """A condition decided on a path.

    Attributes:
        key: None once it holds for none of what comes after it.
        priority: how much the other outcome promises, 0 if it is not worth a path.
        place: the branch in the text, to tell outcomes already followed from new ones.
    """

    key: object
    outcome: bool
    priority: int
    place: object


@dataclass(slots=True)
class NewOutcomes:
    """How to decide on a path that takes as many outcomes as it can that no path has followed.

    Attributes:
        followed: the outcomes that paths have followed, by place.
        wanted: the outcomes of all paths that shard so far, by place, which this path takes too.
            None if some take the other.
        kept: the outcomes of a path that shards, by place, which this path takes until it has.
        worth: the places whose other outcome is worth a path, as earlier paths have shown.
    """

    followed: set[tuple[object, bool]]
    wanted: MappingType[object, bool | None]
    kept: MappingType[object, bool]
    worth: Collection[object]

    def take(
        self, place: object, prefer: bool, given: bool | None, worth: bool, sharded: bool
    ) -> bool:
        """Return the outcome at a place, the preferred one if both or none were followed.

        Args:
            given: the outcome that the prefix gives.
            worth: whether the other outcome is worth a path.
            sharded: whether the path has sharded.
        """
        followed = self.followed
        if given is not None:
            outcome = given
        elif (wanted := self.wanted.get(place)) is not None:
            outcome = wanted
        elif self.kept and not sharded:
            outcome = self.kept.get(place, prefer)
        else:
            flips = (place, prefer) in followed and (place, not prefer) not in followed
            outcome = prefer is not (flips and (worth or place in self.worth))
        followed.add((place, outcome))
        return outcome


@dataclass(slots=True)
class Decisions:
    """The decisions of one path: the outcomes in ``prefix`` first, then preferred ones.

    Attributes:
        new: what decides behind the prefix, if the path is to take new outcomes.
        made: the decisions in order.
        sharded: how many were made when the path sharded first, None if it has not.
        memory: the outcome by the condition's key.
        about: by subject, the tests (operator, constant) decided on it, with their outcomes.
        sources: by a constant that a function returned, which decisions were made in it.
        implied: by the number of a decision made in an arm that not every run takes, the outcomes
            of tests that lead to the arm, and it: where they hold, so does the decision.
        watching: by what a condition is about, the implied decisions that hang on it.
        pending: those that may have come to hold, or one of whose tests may have been decided.
        of_key: by key, the numbers of the decisions on it.
        of_subject: by subject, those of the tests of it.
    """

    prefix: tuple[bool, ...] = ()
    new: NewOutcomes | None = None
    made: list[Decision] = field(default_factory=list)
    sharded: int | None = None
    memory: dict[object, bool] = field(default_factory=dict)
    about: dict[object, list[tuple[object, object, bool]]] = field(default_factory=dict)
    sources: dict[Identity, range] = field(default_factory=dict)
    implied: dict[int, tuple[list[tuple[object, bool]], Decision]] = field(default_factory=dict)
    watching: dict[object, list[int]] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    of_key: dict[object, list[int]] = field(default_factory=dict)
    of_subject: dict[object, list[int]] = field(default_factory=dict)

    def before_sharding(self) -> dict[object, bool]:
        """Return what the path decided before it sharded, by place."""
        return {each.place: each.outcome for each in self.made[: self.sharded]}

    def held(self) -> list[tuple[object, bool]]:
        """Return what the path decided for all that comes after it, and what follows from that."""
        return list(self.memory.items())

    def known(self, value: Value) -> bool | None:
        """Return the truth of a value, if it follows from its kind or from earlier decisions."""
        if isinstance(value, Condition):
            return self._known_condition(value)
        if isinstance(value, Const):
            return bool(value.value)
        if isinstance(value, Choice):
            truths = {self.known(option) for option in value.options}
            return truths.pop() if len(truths) == 1 else None
        if isinstance(value, Object):
            return self._recall(key_of(value)) if _is_open(value) else True
        if isinstance(value, Tensor):
            return self._recall(key_of(value))
        return _size(value)

    def _known_condition(self, value: Condition) -> bool | None:
        if value.op == "not":
            inner = self.known(value.operands[0])
            return None if inner is None else not inner
        if value.op in ("and", "or"):
            return connected(value.op, [self.known(operand) for operand in value.operands])
        return self._recall(value.key)

    def _recall(self, key: object) -> bool | None:
        known = self.memory.get(key)
        if known is None and self.memory.get(("==", key, _NONE)):
            return False
        if known is None and isinstance(key, tuple) and len(key) == 3 and key[0] in ("==", ">"):
            return self._implied(*key)
        return known

    def _implied(self, op: str, subject: object, constant: object) -> bool | None:
        if op == "==" and constant == _NONE and self.memory.get(subject):
            return False
        number = _number(constant)
        for other, other_constant, outcome in self.about.get(subject, ()):
            if number is None and not (outcome and other == "=="):
                continue  # no number is compared with what is none
            implied = _implication(other, other_constant, outcome, op, constant)
            if implied is not None:
                return implied
        return None

    def decide(self, value: Value, prefer: bool, priority: int, place: object) -> bool:
        """Return the outcome of a condition on this path, deciding it if it is not known yet."""
        known = self.known(value)
        if known is not None:
            return known
        if isinstance(value, Condition) and value.op == "not":
            return not self.decide(value.operands[0], not prefer, priority, (place, "not"))
        if isinstance(value, Condition) and value.op in ("and", "or"):
            return self._decide_parts(value, prefer, priority, place)
        if isinstance(value, Choice):
            return self._choose(("choice", Identity(value)), prefer, priority, place)
        return self._choose(key_of(value), prefer, priority, place)

    def raise_priority(self, value: Value, priority: int) -> None:
        """Raise the priority of the decisions from which the truth of ``value`` followed.

        They were made for another branch, to which the other outcome promised less.
        """
        caused: set[int] = set()
        for key in _asked(value):
            caused.update(self.of_key.get(key, ()))
            caused.update(self.of_subject.get(key[1], ()) if _is_test(key) else ())
        held = (index for index in caused if self.made[index].key is not None)
        for index in (*held, *self.sources.get(Identity(value), ())):
            if self.made[index].priority < priority:
                self.made[index] = replace(self.made[index], priority=priority)

    def note_source(self, value: Value, mark: int) -> None:
        """Note that a function returned ``value``, after the decisions from ``mark`` on."""
        if len(self.made) > mark:
            for part in value.items if isinstance(value, Sequence) else (value,):
                if isinstance(part, Const):
                    self.sources[Identity(part)] = range(mark, len(self.made))

    def keep_source(self, outcome: Value, compared: Iterable[Value]) -> None:
        """Note the source of a comparison's outcome: a constant that a function returned."""
        for value in compared if isinstance(outcome, Const) else ():
            if (found := self.sources.get(Identity(value))) is not None:
                self.sources[Identity(outcome)] = found

    def hold_only_where(self, test: Value, outcome: bool, mark: int) -> None:
        """Hold the decisions from ``mark`` on only where ``test`` has ``outcome``.

        They were made in one of two arms that both ran. Those of an arm whose test has parts hold
        everywhere, which leaves out paths and adds none.
        """
        tested = _single(test, outcome)
        for index in range(mark, len(self.made) if tested else mark):
            decision = self.made[index]
            if tested and index in self.implied:
                self.implied[index][0].append(tested)  # its arm stands in this one
                self._watch(tested[0], index)
            if self.memory.pop(decision.key, None) is not None and tested:
                self.implied[index] = [tested], decision
                self._watch(tested[0], index)
                self._watch(decision.key, index)
                self.made[index] = replace(decision, key=None)
            if _is_test(decision.key):
                op, subject, constant = decision.key
                about = self.about[subject]
                about[:] = [each for each in about if each[:2] != (op, constant)]

    def assume(self, test: Value, outcome: bool) -> None:
        """Remember the outcome of a condition whose other arm has left the block."""
        if (tested := _single(test, outcome)) and self._recall(tested[0]) is None:
            self._remember(*tested)
            self._follow()

    def _follow(self) -> None:
        """Remember what follows from the decisions that hold, by `hold_only_where`."""
        while self.pending:
            tests, decision = self.implied[self.pending.pop()]
            open_tests = [each for each in tests if self._recall(each[0]) is not each[1]]
            decided = self._recall(decision.key)
            if not open_tests and decided is None:
                self._remember(decision.key, decision.outcome)
            elif len(open_tests) == 1 and decided is (not decision.outcome):
                test, outcome = open_tests[0]
                if self._recall(test) is None:
                    self._remember(test, not outcome)

    def _remember(self, key: object, outcome: bool) -> None:
        self.memory[key] = outcome
        if _is_test(key):
            self.about.setdefault(key[1], []).append((key[0], key[2], outcome))
        for about in _about(key):
            self.pending.update(self.watching.get(about, ()))

    def _watch(self, key: object, index: int) -> None:
        """Look at an implied decision once something is decided that ``key`` may follow from."""
        self.pending.add(index)
        for about in _about(key):
            self.watching.setdefault(about, []).append(index)

    def _decide_parts(self, value: Condition, prefer: bool, priority: int, place: object) -> bool:
        absorbing = value.op == "or"
        for index, operand in enumerate(value.operands):
            if self.decide(operand, prefer, priority, (place, index)) == absorbing:
                return absorbing
        return not absorbing

    def _choose(self, key: object, prefer: bool, priority: int, place: object) -> bool:
        index = len(self.made)
        given = self.prefix[index] if index < len(self.prefix) else None
        if self.new is not None:
            sharded = self.sharded is not None
            outcome = self.new.take(place, prefer, given, priority > 0, sharded)
        else:
            outcome = prefer if given is None else given
        self.made.append(Decision(key, outcome, priority, place))
        self.of_key.setdefault(key, []).append(index)
        if _is_test(key):
            self.of_subject.setdefault(key[1], []).append(index)
        self._remember(key, outcome)
        self._follow()
        return outcome


def connected(op: str, truths: Collection[bool | None]) -> bool | None:
    """Return ``and`` or ``or`` of truths in three-valued logic, where None is unknown."""
    absorbing = op == "or"
    if absorbing in truths:
        return absorbing
    return None if None in truths else not absorbing


def exclude(one: tuple[object, bool], other: tuple[object, bool]) -> bool:
    """Return whether no run has both outcomes: of one condition, or of two tests of one subject."""
    (key, outcome), (other_key, other_outcome) = one, other
    if key == other_key:
        return outcome is not other_outcome
    if not _is_test(key) or not _is_test(other_key) or key[1] != other_key[1]:
        return False
    return _implication(key[0], key[2], outcome, str(other_key[0]), other_key[2]) is (
        not other_outcome
    )


def required_name(key: object, outcome: bool) -> str | None:
    """Return the string that a tested value must equal: "fsdp" where ``mode == "fsdp"`` is true."""
    if not outcome or not _is_test(key) or key[0] != "==":
        return None
    constant = key[2]
    return constant[2] if isinstance(constant, tuple) and constant[:2] == ("const", "str") else None


def _asked(value: Value) -> Iterator[object]:
    """Yield the keys of the conditions that a value consists of."""
    if isinstance(value, Condition) and value.op in ("not", "and", "or"):
        for operand in value.operands:
            yield from _asked(operand)
    elif isinstance(value, Choice):
        yield ("choice", Identity(value))
    else:
        yield key_of(value)


def _single(test: Value, outcome: bool) -> tuple[object, bool] | None:
    """Return the key of a condition with its outcome, None if it consists of several."""
    while isinstance(test, Condition) and test.op == "not":
        test, outcome = test.operands[0], not outcome
    keys = list(_asked(test))
    return (keys[0], outcome) if len(keys) == 1 else None


def _about(key: object) -> tuple[object, ...]:
    """Return a key, and the subject if it is a test of one."""
    return (key, key[1]) if _is_test(key) else (key,)


def _is_test(key: object) -> TypeGuard[tuple[object, object, object]]:
    return isinstance(key, tuple) and len(key) == 3 and key[0] in ("==", ">")


def _is_open(value: Object) -> bool:
    """True if an object may be None or false: one whose construction was not seen."""
    return value.origin.value in ("parameter", "unknown", "part") and not value.sharded


def _size(value: Value) -> bool | None:
    value = followed(value)
    if isinstance(value, (Sequence, Mapping)):
        return True if value.items else None
    return True


def _implication(
    op: object, constant: object, outcome: bool, asked: str, asked_constant: object
) -> bool | None:
    """Return what ``subject op constant is outcome`` implies for another test of the subject.

    The other test is ``subject asked asked_constant``; None if nothing follows.
    """
    if op == "==" and outcome and asked == "==":
        return False if _is_const(constant) and _is_const(asked_constant) else None
    a, b = _number(constant), _number(asked_constant)
    if a is None or b is None:
        return None
    if op == "==" and outcome:
        return a > b
    if op == ">" and asked == "==":
        return False if (outcome and b <= a) or (not outcome and b > a) else None
    if op == ">" and asked == ">":
        return True if outcome and a >= b else False if not outcome and a <= b else None
    return None


def _is_const(constant: object) -> bool:
    return isinstance(constant, tuple) and constant[:1] == ("const",)


def _number(constant: object) -> float | None:
    if isinstance(constant, tuple) and len(constant) == 3 and constant[1] in ("int", "float"):
        return float(constant[2])
    return None
