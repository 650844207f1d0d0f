"""Reports for people: findings with code frames, one line each, or counted, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from fsdplint.finding import Finding, Safety
from fsdplint.outcome import Outcome, State
from fsdplint.report.frame import Mark, frames, gutter_width
from fsdplint.report.places import located
from fsdplint.report.style import Style
from fsdplint.urls import rule_url


def full(outcome: Outcome, style: Style) -> str:
    """Return each finding with its frames, its fix and its page, and the summary."""
    parts = ["\n".join(described(outcome, finding, style)) + "\n" for finding in outcome.findings]
    return "\n".join([*parts, *_summary(outcome, style)])


def concise(outcome: Outcome, style: Style) -> str:
    """Return a line for each finding, marked [*] if it has a fix, and the summary."""
    lines = [_headline(outcome, finding, style) for finding in outcome.findings]
    return _text(lines, outcome, style)


def statistics(outcome: Outcome, style: Style) -> str:
    """Return a line for each rule with findings, and the summary; [*] marks that all have fixes."""
    rows = count_by_rule(outcome)
    width = max([len(str(count)) for _, _, count, _ in rows], default=0)
    lines = [
        f"{count:>{width}} {style(code, 'code')} {'[*]' if fixable == count else '[ ]'} {name}"
        for code, name, count, fixable in rows
    ]
    return _text(lines, outcome, style)


def _text(lines: Iterable[str], outcome: Outcome, style: Style) -> str:
    return "".join([*(f"{line}\n" for line in lines), *_summary(outcome, style)])


def _summary(outcome: Outcome, style: Style) -> list[str]:
    return [f"{summary(outcome)}\n"] if style.summary else []


def count_by_rule(outcome: Outcome) -> list[tuple[str, str, int, int]]:
    """Return code, name, findings and fixable findings of each rule with findings, most first."""
    total = Counter((finding.code, finding.rule) for finding in outcome.findings)
    fixable = Counter((f.code, f.rule) for f in outcome.findings if f.fix)
    rows = [(code, name, n, fixable[code, name]) for (code, name), n in total.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def described(outcome: Outcome, finding: Finding, style: Style) -> list[str]:
    """Return the lines that show a finding, its frames, its fix and its page."""
    marks = [
        Mark(finding.span, finding.label, primary=True),
        *(Mark(evidence.span, evidence.note, primary=False) for evidence in finding.evidence),
    ]
    margin = " " * gutter_width(outcome, marks)
    notes = [f"{margin} {style('=', 'gutter')} {note}" for note in _notes(finding)]
    return [_headline(outcome, finding, style), *frames(outcome, marks, style), *notes]


def _headline(outcome: Outcome, finding: Finding, style: Style) -> str:
    fixable = style("[*]", "fixable") + " " if finding.fix else ""
    where = style(located(outcome, finding.span), "path")
    code = style.link(style(finding.code, finding.severity.value), rule_url(finding.rule))
    return f"{where}: {code} {fixable}{finding.rule}: {' '.join(finding.message.split())}"


def _notes(finding: Finding) -> list[str]:
    page = f"page: fsdplint explain {finding.rule}"
    if finding.fix:
        return [f"fix ({finding.fix.safety.value}): {finding.fix.title}", page]
    return [f"no fix: {finding.fix_declined}", page] if finding.fix_declined else [page]


def summary(outcome: Outcome) -> str:
    """Return one line: what was found, how much of it is fixable, and what was not checked."""
    found = _found(outcome) if outcome.findings else _none(outcome)
    known = [f"{outcome.known} more in the baseline"] if outcome.known else []
    return "; ".join([found, *known, *_unchecked(outcome), *_partly(outcome)]) + "."


def _found(outcome: Outcome) -> str:
    files = len({finding.span.path for finding in outcome.findings})
    count = len(outcome.findings)
    return f"Found {_count(count, 'finding')} in {_count(files)}{_fixable(outcome)}"


def _fixable(outcome: Outcome) -> str:
    fixes = [finding.fix.safety for finding in outcome.findings if finding.fix]
    safe, unsafe = fixes.count(Safety.SAFE), fixes.count(Safety.UNSAFE)
    if safe and unsafe:
        return f" ({safe} fixable with --fix, {unsafe} more with --fix --unsafe-fixes)"
    if unsafe:
        return f" ({unsafe} fixable with --fix --unsafe-fixes)"
    return f" ({safe} fixable with --fix)" if safe else ""


def _none(outcome: Outcome) -> str:
    irrelevant = len(outcome.ended(State.IRRELEVANT))
    aside = f" ({irrelevant} without sharding)" if irrelevant else ""
    what = "the analyzed part of " if outcome.partly else ""
    return f"No findings in {what}{_count(outcome.checked)}{aside}"


def _unchecked(outcome: Outcome) -> Iterator[str]:
    """Yield how many files no rule saw, and how many paths are no file of the run."""
    beside = outcome.ended(State.IRRELEVANT) if outcome.findings else []
    elsewhere = {failure.path for failure in outcome.failures}
    elsewhere -= {account.path for account in outcome.accounts}
    counts = (
        (len(beside), "file", "without sharding"),
        (len(outcome.ended(State.SKIPPED)), "file", "skipped"),
        (len(outcome.ended(State.FAILED)), "file", "could not be checked"),
        (len(elsewhere), "path", "could not be checked"),
    )
    return (f"{_count(count, noun)} {what}" for count, noun, what in counts if count)


def _partly(outcome: Outcome) -> Iterator[str]:
    if outcome.partly:
        programs = {(stop.path, stop.entry) for stop in outcome.partly}
        yield f"analysis of {_count(len(programs), 'program')} stopped early"


def _count(number: int, noun: str = "file") -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
