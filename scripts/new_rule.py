"""Starts a rule: its page, its module and its entry in the catalogue.

python scripts/new_rule.py gradient-clipped-before-reduction FSD304
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
INDEXED = "fsdplint rules --format markdown > rules/README.md"
PAGE = """\
# {name} ({code})

## What it does

Finds …

## Why it is bad

…

## What PyTorch says

Nothing: there is no error and no warning.

## Example

```python
import torch

model = torch.nn.Linear(8, 8)  # error
```

Use instead:

```python
import torch

model = torch.nn.Linear(8, 8)
```

## Fix safety

Unsafe. …

## Proof

```python ranks=2
raise NotImplementedError("show the harm and the cure")
```

## Known limitations

…

## References

- …
"""
MODULE = """\
from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.program import Program
from fsdplint.rule import Report


def {stem}(program: Program) -> Iterator[Report]:
    raise NotImplementedError(program)
"""


ENTRY = """\
    declare(
        "{name}",
        "{code}",
        summary="…",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="{version}",
        clause=None,
    ),
"""


class ScaffoldError(Exception):
    """A rule that cannot be started, with the reason in one line."""


def main(arguments: list[str] | None = None) -> int:
    """Start the rule that the arguments name."""
    parser = argparse.ArgumentParser(description="Start a new rule.")
    parser.add_argument("name", help="kebab-case: the fault, e.g. direct-forward")
    parser.add_argument("code", help="FSD and three digits, e.g. FSD302")
    options = parser.parse_args(arguments)
    try:
        written = start_rule(ROOT, options.name, options.code)
    except ScaffoldError as error:
        print(f"new_rule: {error}", file=sys.stderr)
        return 2
    for path in written:
        print(path.relative_to(ROOT).as_posix())
    print(f"once it has its summary: {INDEXED}", file=sys.stderr)
    return 0


def start_rule(root: Path, name: str, code: str) -> list[Path]:
    """Write the files of a new rule below ``root``; the paths that were written.

    Raises:
        ScaffoldError: the name or the code is malformed or taken.
    """
    package = root / "src" / "fsdplint"
    stem = name.replace("-", "_")
    page, module = root / "rules" / f"{name}.md", package / "rules" / f"{stem}.py"
    taken = _codes(root)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        raise ScaffoldError(f"{name!r} is not kebab-case of two words or more")
    if not re.fullmatch(r"FSD\d{3}", code):
        raise ScaffoldError(f"{code!r} is not FSD and three digits")
    if page.exists() or module.exists():
        raise ScaffoldError(f"there is a rule {name!r}")
    if code in taken:
        raise ScaffoldError(f"{code} is taken")
    topic = _topic(package, code)
    page.write_text(PAGE.format(name=name, code=code), "utf-8")
    module.write_text(MODULE.format(stem=stem), "utf-8")
    entry = ENTRY.format(name=name, code=code, version=_version(package))
    topic.write_text(_with_entry(topic.read_text("utf-8"), entry, code), "utf-8")
    return [page, module, topic]


def _codes(root: Path) -> set[str]:
    """The codes of the rules that have a page."""
    pages = [page for page in (root / "rules").glob("*.md") if page.stem != "README"]
    return {page.read_text("utf-8").split("\n")[0][-7:-1] for page in pages}


def _topic(package: Path, code: str) -> Path:
    """The module of the catalogue with the rules whose codes have the hundred of ``code``.

    Raises:
        ScaffoldError: there is none.
    """
    for topic in sorted((package / "catalogue").glob("*.py")):
        if f'"{code[:4]}' in topic.read_text("utf-8"):
            return topic
    raise ScaffoldError(f"no topic of src/fsdplint/catalogue has rules with {code[:4]}xx")


def _version(package: Path) -> str:
    match = re.search(r'__version__ = "([^"]+)"', (package / "__init__.py").read_text("utf-8"))
    return match[1] if match else "0.1.0"


def _with_entry(topic: str, entry: str, code: str) -> str:
    """``topic`` with ``entry`` before the first that has a greater code."""
    entries = re.compile(r'    declare\(\n        "[^"]*",\n        "(FSD\d{3})",\n')
    later = (match.start() for match in entries.finditer(topic) if match[1] > code)
    at = next(later, topic.rindex(")\n"))
    return topic[:at] + entry + topic[at:]


if __name__ == "__main__":
    sys.exit(main())
