from __future__ import annotations

from typing import NamedTuple

import pytest

from fsdplint.settings import rule_selection
from fsdplint.settings.rule_selection import UnknownRuleError, find, resolve


class Rule(NamedTuple):
    name: str
    code: str
    preview: str = ""


RULES = (
    Rule("invalid-syntax", "FSD001"),
    Rule("unused-suppression", "FSD002"),
    Rule("optimizer-before-sharding", "FSD301"),
    Rule("direct-forward", "FSD302"),
)


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_selection, "RULES", RULES)


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
    assert resolve([selector]) == names


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("direct-foward", "unknown rule 'direct-foward'; did you mean 'direct-forward'?"),
        ("FSD303", "unknown rule 'FSD303'; did you mean 'FSD302'?"),
        ("E501", "unknown rule 'E501'; `fsdplint rules` lists them"),
        ("F", "unknown rule 'F'; `fsdplint rules` lists them"),
        ("", "unknown rule ''; `fsdplint rules` lists them"),
    ],
)
def test_unknown_selectors_suggest_the_nearest(selector: str, message: str) -> None:
    with pytest.raises(UnknownRuleError) as caught:
        resolve([selector])
    assert str(caught.value) == message


PREVIEW = (
    *RULES,
    Rule("all-in-preview", "FSD401", "too new"),
    Rule("some-in-preview", "FSD303", "too new"),
)
STABLE = {rule.name for rule in RULES}


@pytest.fixture
def preview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_selection, "RULES", PREVIEW)


@pytest.mark.usefixtures("preview")
@pytest.mark.parametrize(
    ("selector", "off", "on"),
    [
        ("ALL", STABLE, STABLE | {"all-in-preview", "some-in-preview"}),
        ("FSD", STABLE, STABLE | {"all-in-preview", "some-in-preview"}),
        (
            "FSD3",
            {"optimizer-before-sharding", "direct-forward"},
            {"optimizer-before-sharding", "direct-forward", "some-in-preview"},
        ),
        ("fsd401", {"all-in-preview"}, {"all-in-preview"}),
        ("all-in-preview", {"all-in-preview"}, {"all-in-preview"}),
    ],
)
def test_preview_rules_are_meant_by_name_or_if_on(
    selector: str, off: set[str], on: set[str]
) -> None:
    assert resolve([selector], preview=False) == off
    assert resolve([selector], preview=True) == on


@pytest.mark.usefixtures("preview")
def test_a_prefix_of_preview_rules_alone_is_refused() -> None:
    with pytest.raises(UnknownRuleError) as caught:
        resolve(["FSD4"], preview=False)
    assert str(caught.value) == "'FSD4' selects only preview rules, and preview is off"
    assert resolve(["FSD4"], preview=True) == {"all-in-preview"}


def test_find_means_one_rule() -> None:
    assert find("fsd301") == "optimizer-before-sharding"
    with pytest.raises(UnknownRuleError):
        find("FSD3")
