"""How many findings of each rule there are."""

from __future__ import annotations

from collections import Counter

from fsdplint.outcome import Outcome
from fsdplint.report.style import Style
from fsdplint.report.summary import summary


def count_by_rule(outcome: Outcome) -> list[tuple[str, str, int, int]]:
    """Code, name, findings and fixable ones of each rule that found any, the most first."""
    total = Counter((finding.code, finding.rule) for finding in outcome.findings)
    fixable = Counter((f.code, f.rule) for f in outcome.findings if f.fix)
    rows = [(code, name, n, fixable[code, name]) for (code, name), n in total.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def statistics(outcome: Outcome, style: Style) -> str:
    """A line for each rule that found any, and the summary; [*] marks that all can be fixed."""
    rows = count_by_rule(outcome)
    width = max([len(str(count)) for _, _, count, _ in rows], default=0)
    lines = [
        f"{count:>{width}} {style(code, 'code')} {'[*]' if fixable == count else '[ ]'} {name}"
        for code, name, count, fixable in rows
    ]
    return "\n".join([*lines, summary(outcome)]) + "\n"
