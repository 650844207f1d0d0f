from __future__ import annotations

from typing import NamedTuple

import pytest

from fsdplint.finding import Severity
from fsdplint.settings import rule_selection
from fsdplint.settings.rule_selection import EVERYTHING, OptIn, UnknownRuleError, find, resolve


class Rule(NamedTuple):
    name: str
    code: str
    preview: str = ""
    severity: Severity = Severity.ERROR


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
    assert resolve([selector], OptIn()) == off
    assert resolve([selector], OptIn(preview=True)) == on


@pytest.mark.usefixtures("preview")
def test_a_prefix_of_preview_rules_alone_is_refused() -> None:
    with pytest.raises(UnknownRuleError) as caught:
        resolve(["FSD4"], OptIn())
    assert str(caught.value) == "'FSD4' selects only rules that need --preview"
    assert resolve(["FSD4"], OptIn(preview=True)) == {"all-in-preview"}


@pytest.mark.parametrize(
    ("selector", "opt_in", "names"),
    [
        ("ALL", OptIn(), set()),
        ("ALL", OptIn(pedantic=True), {"advice"}),
        ("ALL", OptIn(preview=True), set()),
        ("ALL", EVERYTHING, {"advice", "advice-in-preview"}),
        ("FSD501", OptIn(), {"advice"}),
        ("advice", OptIn(), {"advice"}),
        ("advice-in-preview", OptIn(), {"advice-in-preview"}),
    ],
)
def test_notes_are_selected_by_name_or_if_pedantic_is_on(
    monkeypatch: pytest.MonkeyPatch, selector: str, opt_in: OptIn, names: set[str]
) -> None:
    advice = (
        Rule("advice", "FSD501", severity=Severity.NOTE),
        Rule("advice-in-preview", "FSD502", "why", Severity.NOTE),
    )
    monkeypatch.setattr(rule_selection, "RULES", (*RULES, *advice))
    stable = {rule.name for rule in RULES} if selector == "ALL" else set()
    assert resolve([selector], opt_in) == stable | names
    with pytest.raises(UnknownRuleError) as caught:
        resolve(["FSD5"], OptIn())
    assert str(caught.value) == "'FSD5' selects only rules that need --pedantic and --preview"


def test_find_means_one_rule() -> None:
    assert find("fsd301") == "optimizer-before-sharding"
    with pytest.raises(UnknownRuleError):
        find("FSD3")
