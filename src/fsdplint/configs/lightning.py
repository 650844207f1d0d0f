"""What a trainer of Lightning, or a `Fabric`, and its strategy are given, in calls and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fsdplint.configs import nodes
from fsdplint.configs.nodes import UNKNOWN, Entry, Node, Scalar, Sequence
from fsdplint.configs.readers import Readers
from fsdplint.finding import Span
from fsdplint.knowledge.accelerate_settings import Settings
from fsdplint.knowledge.lightning_settings import (
    CLI,
    FSDP,
    MODEL_PARALLEL,
    STRATEGY_NAMES,
    kind_of,
    kind_of_word,
)

_CLASS, _ARGUMENTS = "class_path", "init_args"
_LOOKS_SO = re.compile(r"^trainer:", re.MULTILINE)
_CLI = re.compile(rf"\b{CLI}\b")
_PREFIX = "lightning.pytorch.strategies."


@dataclass(frozen=True, slots=True)
class Given:
    """The value of an argument.

    Attributes:
        value: a constant, a list of them, the name of an enumeration's member, or `UNKNOWN`.
        span: the place of the argument with its name.
        shown: the argument as it is written.
    """

    value: object
    span: Span
    shown: str

    @property
    def number(self) -> float | None:
        """The number that it is, None if it is none."""
        value = self.value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if isinstance(value, (int, float)) and is_number else None


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call.

    Attributes:
        is_whole: whether these are all.
    """

    given: Mapping[str, Given] = field(default_factory=dict)
    is_whole: bool = True

    def get(self, name: str) -> Given | None:
        """Return an argument, None if it is not given by its name."""
        return self.given.get(name)

    def surely_lacks(self, name: str) -> bool:
        """Return whether an argument is not given."""
        return self.is_whole and name not in self.given


@dataclass(frozen=True, slots=True)
class StrategySettings:
    """A strategy for FSDP, and the trainer that it is given to if that is known.

    Attributes:
        kind: the number of the strategy in the knowledge.
        place: where the trainer is given the strategy, or where it is made.
        name: the class of the strategy, or the word for it.
        releases: what the releases of Lightning that the project admits do.
        project_has: returns whether code of the project has what a pattern matches.
        mapping: in a file, the arguments of the strategy; None if there are none.
        text: the text of that file.
    """

    kind: int
    place: Span
    name: str
    strategy: Arguments
    owner: Arguments | None
    releases: tuple[Settings, ...]
    project_has: Callable[[re.Pattern[str]], bool]
    mapping: nodes.Mapping | None = None
    text: str = ""

    @property
    def lightning(self) -> str:
        """The releases that are looked at, as users name them."""
        first, last = (".".join(map(str, self.releases[i].release)) for i in (0, -1))
        return f"Lightning {last}" if first == last else f"Lightning {first} to {last}"

    def takes(self, name: str, word: str) -> bool:
        """Return whether a release takes a word, or none is known to refuse it."""
        return any(word in release.takes(name, self.kind) for release in self.releases)

    def is_known(self, name: str) -> bool:
        """Return whether the strategy has an argument in a release."""
        return any(release.has_effect(name, self.kind) for release in self.releases)


def looks_like(text: str) -> bool:
    """Return whether a text may be a file for `LightningCLI`."""
    named = any(name in text for name in STRATEGY_NAMES) or "strategy: fsdp" in text
    return named and _LOOKS_SO.search(text) is not None


def read(
    path: str, text: str, root: Node | None, releases: tuple[Settings, ...], readers: Readers
) -> StrategySettings | None:
    """Return the settings of a file for `LightningCLI`, None if it has none of FSDP."""
    trainer = root.get("trainer") if isinstance(root, nodes.Mapping) else None
    owner = trainer.value if trainer else None
    strategy = owner.get("strategy") if isinstance(owner, nodes.Mapping) else None
    if not isinstance(owner, nodes.Mapping) or strategy is None or not releases:
        return None
    kind, mapping, is_whole = _strategy(strategy.value)
    if not kind or not readers.searches(path)(_CLI):
        return None
    made = _arguments(path, text, mapping) if mapping else Arguments()
    arguments = Arguments(made.given, made.is_whole and is_whole)
    name = _name(strategy.value)
    place = Span(path, strategy.start, strategy.key.end)
    given = _arguments(path, text, owner)
    has = readers.searches(path)
    return StrategySettings(kind, place, name, arguments, given, releases, has, mapping, text)


def _strategy(value: Node) -> tuple[int, nodes.Mapping | None, bool]:
    """Return the kind of a strategy, its arguments, and whether these are all."""
    if isinstance(value, Scalar):
        word = value.value
        return (kind_of_word(word, True) if isinstance(word, str) else 0), None, True
    if not isinstance(value, nodes.Mapping):
        return 0, None, True
    arguments = value.get(_ARGUMENTS)
    mapping = arguments.value if arguments else None
    found = mapping if isinstance(mapping, nodes.Mapping) else None
    names = {entry.name for entry in value.entries}
    is_whole = names <= {_CLASS, _ARGUMENTS} and not value.merged
    is_whole = is_whole and (arguments is None or found is not None)
    kind = kind_of(_name(value))
    return (kind if kind in (FSDP, MODEL_PARALLEL) else 0), found, is_whole


def _name(value: Node) -> str:
    """Return the canonical name of a class, or the word for one."""
    entry = value.get(_CLASS) if isinstance(value, nodes.Mapping) else None
    scalar = entry.value if entry else value
    name = scalar.value if isinstance(scalar, Scalar) else None
    if not isinstance(name, str):
        return ""
    return f"{_PREFIX}{name}" if name in STRATEGY_NAMES else name


def _arguments(path: str, text: str, mapping: nodes.Mapping) -> Arguments:
    made = {
        entry.name: Given(
            _value(entry.value), Span(path, entry.start, entry.end), _shown(text, entry)
        )
        for entry in mapping.entries
        if entry.name
    }
    return Arguments(made, not mapping.merged)


def _value(node: Node) -> object:
    if isinstance(node, Scalar):
        return node.value
    return [_value(item) for item in node.items] if isinstance(node, Sequence) else UNKNOWN


def _shown(text: str, entry: Entry) -> str:
    return " ".join(text[entry.start : entry.end].split())
