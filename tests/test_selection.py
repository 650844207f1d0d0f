from __future__ import annotations

from typing import NamedTuple

import pytest

from fsdplint.selection import UnknownRuleError, find, resolve


class Rule(NamedTuple):
    name: str
    code: str


RULES = (
    Rule("invalid-syntax", "FSD001"),
    Rule("unused-suppression", "FSD002"),
    Rule("optimizer-before-sharding", "FSD301"),
    Rule("direct-forward", "FSD302"),
)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("direct-forward", {"direct-forward"}),
        ("Direct-Forward", {"direct-forward"}),
        ("FSD302", {"direct-forward"}),
        ("fsd302", {"direct-forward"}),
        ("FSD3", {"direct-forward", "optimizer-before-sharding"}),
        ("FSD", {rule.name for rule in RULES}),
        ("ALL", {rule.name for rule in RULES}),
    ],
)
def test_selectors(selector: str, names: set[str]) -> None:
    assert resolve([selector], RULES) == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("direct-foward", "unknown rule 'direct-foward', did you mean 'direct-forward'?"),
        ("FSD303", "unknown rule 'FSD303', did you mean 'FSD302'?"),
        ("E501", "unknown rule 'E501'; `fsdplint rules` lists them"),
        ("F", "unknown rule 'F'; `fsdplint rules` lists them"),
        ("", "unknown rule ''; `fsdplint rules` lists them"),
    ],
)
def test_unknown_selectors_suggest_the_nearest(selector: str, message: str) -> None:
    with pytest.raises(UnknownRuleError) as caught:
        resolve([selector], RULES)
    assert str(caught.value) == message


def test_find_means_one_rule() -> None:
    assert find("fsd301", RULES) == "optimizer-before-sharding"
    with pytest.raises(UnknownRuleError):
        find("FSD3", RULES)
