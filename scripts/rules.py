"""Write the texts on the rules outside of their modules, or check that they are up to date.

python scripts/rules.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import groupby
from pathlib import Path

from fsdplint.rule import Rule

ROOT = Path(__file__).parent.parent
TOPICS = (
    "The tool",
    "Launch, process group, device and mesh",
    "Sharding",
    "The training step",
    "Precision, memory and communication",
    "Checkpoints and state",
    "Rank divergence",
    "Migration and old interfaces",
    "Data",
    "Config files and launch scripts",
)
INDEX = """\
# Rules

<!-- Written by `python scripts/rules.py`. -->

Each page says what its rule finds and why that is bad, with proofs that run on PyTorch. A fix is \
*safe* only where it is certain that it harms no run of the program; the same rule's fix of \
another finding may be *unsafe*, and some findings have none. A rule marked *preview* is off by \
default, and its page says why. A rule of severity *note* is off unless you pass `--pedantic`. \
*Since* is the version of fsdplint that a rule appeared in.
"""
SECTION = """
## {title}: FSD{hundred}

| Code | Name | What is wrong | Severity | Fix | Since |
|---|---|---|---|---|---|
"""


def main(arguments: list[str] | None = None) -> int:
    """Write or check the tables; the exit status is 1 if something is missing or out of date."""
    parser = argparse.ArgumentParser(description="Write the rule tables.")
    parser.add_argument("--check", action="store_true", help="report old tables, write nothing")
    check = parser.parse_args(arguments).check
    rules = declared(ROOT)
    problems = missing(ROOT, rules)
    for path, text in texts(ROOT, rules).items():
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if check:
            problems.append(f"{path.relative_to(ROOT)} is out of date; run python scripts/rules.py")
        else:
            path.write_text(text, "utf-8")
    print("".join(f"{problem}\n" for problem in problems), end="", file=sys.stderr)
    return 1 if problems else 0


def declared(root: Path) -> list[Rule]:
    """Return the rules by their codes, as their modules declare them."""
    folder = root / "src" / "fsdplint" / "rules"
    stems = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    rules: list[Rule] = [import_module(f"fsdplint.rules.{stem}").RULE for stem in stems]
    return sorted(rules, key=lambda rule: rule.code)


def missing(root: Path, rules: Sequence[Rule]) -> list[str]:
    """Return what is missing for the ``rules`` that has to be written by hand."""
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    problems = [f"{r.name} is not in CHANGELOG.md" for r in rules if f"({r.code}" not in changes]
    pages = {page.stem for page in (root / "rules").glob("*.md")} - {"README"}
    return problems + [f"{r.name} has no page" for r in rules if r.name not in pages]


def texts(root: Path, rules: Sequence[Rule]) -> dict[Path, str]:
    """Return the files that describe the ``rules``, with their texts."""
    return {
        root / "src" / "fsdplint" / "rules" / "table.json": table(rules),
        root / "rules" / "README.md": index(rules),
    }


def table(rules: Iterable[Rule]) -> str:
    """Return the file that rules are listed from: JSON, a line for each."""
    rows = (json.dumps(asdict(rule), default=lambda e: e.value) for rule in rules)
    return "[\n" + ",\n".join(rows) + "\n]\n"


def index(rules: Sequence[Rule]) -> str:
    """Return the Markdown text of the index of ``rules``, which are ordered by their codes."""
    by_topic = groupby(rules, key=lambda rule: int(rule.code[3]))
    return INDEX + "".join(_section(hundred, group) for hundred, group in by_topic)


def _section(hundred: int, rules: Iterable[Rule]) -> str:
    return SECTION.format(title=TOPICS[hundred], hundred=hundred) + "".join(map(_index_row, rules))


def _index_row(rule: Rule) -> str:
    link = f"[{rule.name}]({rule.name}.md){' (preview)' if rule.preview else ''}"
    return _row(rule.code, link, rule.summary, rule.severity.value, rule.applicability, rule.since)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    sys.exit(main())
