"""Write the reference pages of the documentation from the code, or check that they are current.

`docs/cli.md` has every command and option, and `docs/settings.md` a table of every key. The page of
all errors that `explain --error` knows is only on the site, whose hook asks for it.

python scripts/reference.py [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fsdplint.cli.main import cli
from fsdplint.knowledge.errors import known
from fsdplint.pages import messages, page
from fsdplint.rules import RULES
from fsdplint.settings.keys import KEYS

ROOT = Path(__file__).parent.parent
WRITTEN = "<!-- Written by `python scripts/reference.py`. -->"
CLI = f"""\
# Command line

{WRITTEN}

`fsdplint COMMAND --help` prints the same text.
"""
KEYS_TABLE = f"""\
{WRITTEN}

| Key | Default | Example | Meaning |
|---|---|---|---|
"""
ERRORS = """\
---
hide: [toc]
---

# Errors

Search this site for the text of an error, or pass the whole log to \
`fsdplint explain --error log.txt`. It knows the same errors and \
also reads flight recorder dumps. In these texts `…` stands for a part that varies.

## Errors that a rule explains
"""
CAUSES = """
## Other errors

No rule can find the causes of these errors in the code.
"""


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages; the exit status is 1 if one is out of date."""
    parser = argparse.ArgumentParser(description="Write the reference pages.")
    parser.add_argument("--check", action="store_true", help="report old pages, write nothing")
    check = parser.parse_args(arguments).check
    old = 0
    for path, text in pages(ROOT).items():
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if check:
            old += 1
            command = "python scripts/reference.py"
            print(f"{path.relative_to(ROOT)} is out of date; run {command}", file=sys.stderr)
        else:
            path.write_text(text, "utf-8")
    return 1 if old else 0


def pages(root: Path) -> dict[Path, str]:
    """Return the pages that hold what is written here, with their texts."""
    docs = root / "docs"
    settings = (docs / "settings.md").read_text("utf-8")
    table = re.compile(rf"{re.escape(WRITTEN)}\n\n(?:\|.*\n)*")
    return {
        docs / "cli.md": CLI + "".join(_commands(cli, None)),
        docs / "settings.md": table.sub(lambda _: KEYS_TABLE + "".join(_keys()), settings),
    }


def errors() -> str:
    """Return the page of all errors that are known, with their rules or causes."""
    return ERRORS + "".join(_messages()) + CAUSES + "".join(_causes())


def _commands(command: click.Command, above: click.Context | None) -> Iterator[str]:
    """Yield a section for ``command``, and for those below it."""
    # A command keeps its help option: the context has the options' names from those above.
    settings = command.context_settings
    context = click.Context(command, above, command.name if above else "fsdplint", **settings)
    name = context.command_path
    usage = command.get_usage(context).removeprefix("Usage: ")
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    yield f"\n## `{name}`\n\n```text\n{' '.join(usage.split())}\n```\n\n{text}\n"
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
        if (record := parameter.get_help_record(context))
    ]
    if records:
        yield "\n| Option | Meaning |\n|---|---|\n"
        yield from (_row(f"`{flags}`", help_) for flags, help_ in records)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from _commands(found, context)


def _keys() -> Iterator[str]:
    for name, key in KEYS.items():
        default = "" if key.default is None else f"`{_toml(key.default)}`"
        yield _row(f"`{name}`", default, f"`{key.example}`", key.help)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value).replace("'", '"')


def _messages() -> Iterator[str]:
    for rule in RULES:
        if found := messages(page(rule.name)):
            listed = "\n".join(f"- {_code(message)}" for message in found)
            summary = f"{rule.summary[0].upper()}{rule.summary[1:]}."
            link = f"[{rule.name}](rules/{rule.name}.md)"
            yield f"\n### {rule.name} ({rule.code})\n\n{summary} See {link}.\n\n{listed}\n"


def _causes() -> Iterator[str]:
    for error in sorted(known(), key=lambda error: error.message.lower()):
        near = f"In a log that also has {_code(error.near[0])}: " if error.near else ""
        yield f"\n### {_code(error.message)}\n\n{near}{error.cause}\n\n{error.cure}\n"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _row(*cells: str) -> str:
    return (
        f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |\n"
    )


if __name__ == "__main__":
    sys.exit(main())
