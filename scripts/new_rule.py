"""Start a rule: its page and its module.

python scripts/new_rule.py gradient-clipped-before-reduction FSD304
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = """\
# {name} ({code})

…

```diff
 import torch

-model = torch.nn.Linear(8, 8)  # error
+model = torch.nn.Linear(8, 16)
```

## Why is this bad?

…

## What PyTorch says

Nothing: there is no error and no warning.

## What it finds

…

## Examples

This is correct:

```python
import torch

model = torch.nn.Linear(8, 16)
```

## Fix safety

Unsafe. …

## Known limitations

…

## References

- …

## Proof

```python ranks=2
raise NotImplementedError("show the harm and the cure")
```
"""
MODULE = """\
from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "{code}",
    summary="…",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="{version}",
)


def reports(program: Program) -> Iterator[Report]:
    raise NotImplementedError(program)
"""


class ScaffoldError(Exception):
    """A rule that cannot be started, with the reason in one line."""


def main(arguments: list[str] | None = None) -> int:
    """Start the rule that the arguments name."""
    parser = argparse.ArgumentParser(description="Start a new rule.")
    parser.add_argument("name", help="name of the mistake in kebab-case, e.g. direct-forward")
    parser.add_argument("code", help="code of the rule: FSD and three digits, e.g. FSD302")
    options = parser.parse_args(arguments)
    try:
        written = start_rule(ROOT, options.name, options.code)
    except ScaffoldError as error:
        print(f"new_rule: {error}", file=sys.stderr)
        return 2
    for path in written:
        print(path.relative_to(ROOT).as_posix())
    print("write its summary, then run: python scripts/rules.py", file=sys.stderr)
    return 0


def start_rule(root: Path, name: str, code: str) -> list[Path]:
    """Write the files of a new rule below ``root``; the paths that were written.

    Raises:
        ScaffoldError: the name or the code is malformed or taken.
    """
    package = root / "src" / "fsdplint"
    page = root / "rules" / f"{name}.md"
    module = package / "rules" / f"{name.replace('-', '_')}.py"
    taken = _codes(root)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        raise ScaffoldError(f"{name!r} is not kebab-case with two or more words")
    if not re.fullmatch(r"FSD\d{3}", code):
        raise ScaffoldError(f"{code!r} is not FSD and three digits")
    if page.exists() or module.exists():
        raise ScaffoldError(f"rule {name!r} already exists")
    if code in taken:
        raise ScaffoldError(f"{code} is already taken")
    page.write_text(PAGE.format(name=name, code=code), "utf-8")
    module.write_text(MODULE.format(code=code, version=_version(package)), "utf-8")
    return [page, module]


def _codes(root: Path) -> set[str]:
    """Return the codes of the rules that have a page."""
    pages = [page for page in (root / "rules").glob("*.md") if page.stem != "README"]
    return {page.read_text("utf-8").split("\n")[0][-7:-1] for page in pages}


def _version(package: Path) -> str:
    match = re.search(r'__version__ = "([^"]+)"', (package / "__init__.py").read_text("utf-8"))
    return match[1] if match else "0.1.0"


if __name__ == "__main__":
    sys.exit(main())
