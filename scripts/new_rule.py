"""Starts a rule: its page, its module and its place in RULES.

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
from fsdplint.finding import Safety, Severity
from fsdplint.rule import Report, rule


@rule(
    "{code}",
    summary="…",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="{version}",
    clause=None,
)
def {stem}(program: Program) -> Iterator[Report]:
    raise NotImplementedError(program)
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
    registry = package / "rules" / "__init__.py"
    taken = _codes(root)
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        raise ScaffoldError(f"{name!r} is not kebab-case of two words or more")
    if not re.fullmatch(r"FSD\d{3}", code):
        raise ScaffoldError(f"{code!r} is not FSD and three digits")
    if page.exists() or module.exists():
        raise ScaffoldError(f"there is a rule {name!r}")
    if code in taken.values():
        raise ScaffoldError(f"{code} is taken")
    page.write_text(PAGE.format(name=name, code=code), "utf-8")
    module.write_text(MODULE.format(code=code, stem=stem, version=_version(package)), "utf-8")
    registry.write_text(_registered(registry.read_text("utf-8"), stem, code, taken), "utf-8")
    return [page, module, registry]


def _codes(root: Path) -> dict[str, str]:
    """The code of each rule's page by the stem of its module."""
    pages = [page for page in (root / "rules").glob("*.md") if page.stem != "README"]
    titles = ((page.stem, page.read_text("utf-8").split("\n")[0]) for page in pages)
    return {stem.replace("-", "_"): title[-7:-1] for stem, title in titles}


def _version(package: Path) -> str:
    match = re.search(r'__version__ = "([^"]+)"', (package / "__init__.py").read_text("utf-8"))
    return match[1] if match else "0.1.0"


def _registered(registry: str, stem: str, code: str, codes: dict[str, str]) -> str:
    """``registry`` with the rule imported, and in RULES before the first with a greater code."""
    imports = re.findall(r"^from fsdplint\.rules\..*\n", registry, re.MULTILINE)
    ordered = sorted([*imports, f"from fsdplint.rules.{stem} import {stem}\n"])
    registry = registry.replace("".join(imports), "".join(ordered))
    head, opening, rest = registry.partition("RULES: tuple[Rule, ...] = (\n")
    body, closing, tail = rest.partition("\n)\n")
    entries = body.splitlines()
    later = (n for n, e in enumerate(entries) if codes.get(e.strip(" ,").lower(), "") > code)
    entries.insert(next(later, len(entries)), f"    {stem},")
    return head + opening + "\n".join(entries) + closing + tail


if __name__ == "__main__":
    sys.exit(main())
