"""Print the messages of the rules for review: each kind once, as code, rule, kind and text.

It checks the bad examples of the rule pages and the fixtures, so that texts are filled in as users
see them. Of texts that differ only in names and numbers, the first one is printed.

python scripts/messages.py [--rule NAME]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fsdplint.check import check
from fsdplint.finding import Finding
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "scripts"
_FILLED = re.compile(r"`[^`]*`|\d+")
_BLOCK = re.compile(r"^```(python|diff)[^=\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ADDED = re.compile(r"^\+.*\n", re.MULTILINE)
_SIGN = re.compile(r"^[ -]", re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    """Print the sentences; the exit status is 0."""
    parser = argparse.ArgumentParser(description="Print the messages of the rules, for review.")
    parser.add_argument("--rule", help="print only the messages of this rule")
    rule = parser.parse_args(arguments).rule
    seen: set[tuple[str, str, str]] = set()
    lines = []
    for finding in findings():
        for kind, text in sentences(finding):
            key = finding.code, kind, _FILLED.sub("_", text)
            if text and key not in seen and rule in (None, finding.rule):
                seen.add(key)
                lines.append(f"{finding.code} {finding.rule} {kind}: {text}")
    print("\n".join(sorted(lines)))
    return 0


def findings() -> Iterator[Finding]:
    """Yield the findings of the fixtures and of the pages' examples."""
    settings = defaults(EVERYTHING)
    yield from check([FIXTURES], settings).findings
    with tempfile.TemporaryDirectory() as folder:
        for page in sorted((ROOT / "rules").glob("*-*.md")):
            for number, (kind, text) in enumerate(_BLOCK.findall(page.read_text("utf-8"))):
                code = _SIGN.sub("", _ADDED.sub("", text)) if kind == "diff" else text
                file = Path(folder, page.stem, str(number), "train.py")
                file.parent.mkdir(parents=True)
                file.write_text(code, "utf-8")
        yield from check([folder], settings).findings


def sentences(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield the kinds of sentence and the sentences of a finding."""
    yield "message", finding.message
    yield "label", finding.label
    yield from (("evidence", evidence.note) for evidence in finding.evidence)
    yield "fix", finding.fix.title if finding.fix else ""
    yield "declined", finding.fix_declined


if __name__ == "__main__":
    sys.exit(main())
