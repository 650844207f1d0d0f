"""The index of the rules' pages, as Markdown to stand beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from fsdplint.rule import Rule

_TOPICS = (
    "The tool",
    "Launch, process group, device and mesh",
    "Sharding",
    "The training step",
    "Precision, memory and communication",
    "Checkpoints and state",
    "Rank divergence",
    "Migration and old interfaces",
    "Data",
)
_HEAD = """\
# Rules

<!-- Written by `fsdplint rules --format markdown`. -->

Each page says what its rule finds and why that is bad, with proofs that run on PyTorch. A fix is \
*safe* only where it is certain that it harms no run of the program; the same rule's fix of another \
finding may be *unsafe*, and some findings have none. A rule marked *preview* is off by \
default, and its page says why. *Since* is the version of fsdplint that a rule appeared in.
"""
_TABLE = """
## {title}: FSD{hundred}

| Code | Name | What is wrong | Severity | Fix | Since |
|---|---|---|---|---|---|
"""


def index(rules: Sequence[Rule]) -> str:
    """The Markdown text of the index of ``rules``, which are ordered by their codes."""
    by_topic = groupby(rules, key=lambda rule: int(rule.code[3]))
    return _HEAD + "".join(_section(hundred, group) for hundred, group in by_topic)


def _section(hundred: int, rules: Iterable[Rule]) -> str:
    title = _TOPICS[hundred] if hundred < len(_TOPICS) else "More"
    return _TABLE.format(title=title, hundred=hundred) + "".join(map(_row, rules))


def _row(rule: Rule) -> str:
    cells = (
        rule.code,
        f"[{rule.name}]({rule.name}.md){' (preview)' if rule.preview else ''}",
        rule.summary.replace("|", r"\|"),
        rule.severity.value,
        rule.applicability,
        rule.since,
    )
    return f"| {' | '.join(cells)} |\n"
