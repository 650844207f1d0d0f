"""Workflow commands as GitHub's runner reads them.

Source: ``ActionCommand.TryParseV2`` and ``IssueCommandExtension`` of
https://github.com/actions/runner. The runner ignores what it does not understand, which is refused
here.
"""

from __future__ import annotations

from pathlib import Path

from finds import FAILED, Break, Found, Refused, expect_line, lines

COMMANDS = {"error", "warning", "notice"}
PROPERTIES = {"file", "line", "endLine", "col", "endColumn", "title"}
# In the runner's order: "%" last, so that what was escaped twice is unescaped once.
DATA = (("%0D", "\r"), ("%0A", "\n"), ("%25", "%"))
PROPERTY = (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))
CANARIES: dict[str, Break] = {
    "a message of two lines": lambda text: text.replace("%0A", "\n", 1),
    "a command that there is not": lambda text: text.replace("::error", "::fatal", 1),
    "a file's name that ends the list": lambda text: text.replace("file=", "file=a,b/../", 1),
    "a line that there is not": lambda text: text.replace("line=", "line=9", 1),
    "a column beyond the line": lambda text: text.replace("endColumn=", "endColumn=9", 1),
}


def read(text: str, directory: Path) -> list[Found]:
    """The annotations in a log that holds nothing else."""
    return [_read(line, directory) for line in text.splitlines()]


def _read(line: str, directory: Path) -> Found:
    start, separator, rest = line.partition("::")
    info, end, data = rest.partition("::")
    name, _, given = info.partition(" ")
    if start.strip() or not separator or not end or name not in COMMANDS:
        raise Refused(f"no command: {line}")
    pairs = [item.partition("=") for item in given.split(",") if item]
    if any(not equals or key not in PROPERTIES for key, equals, _ in pairs):
        raise Refused(f"not understood: {given}")
    properties = {key: _unescaped(value, PROPERTY) for key, _, value in pairs}
    message = _unescaped(data, DATA)
    if not message or not properties.get("title"):
        raise Refused(f"says nothing: {line}")
    path = Path(properties["file"]).relative_to(directory).as_posix()
    if "line" not in properties:
        return Found(FAILED, path, None)
    _expect_range(directory, path, properties)
    return Found(properties["title"].partition(" ")[0], path, int(properties["line"]))


def _unescaped(text: str, codes: tuple[tuple[str, str], ...]) -> str:
    for code, character in codes:
        text = text.replace(code, character)
    return text


def _expect_range(directory: Path, path: str, properties: dict[str, str]) -> None:
    first, last = int(properties["line"]), int(properties["endLine"])
    expect_line(directory, path, first)
    expect_line(directory, path, last)
    if ("col" in properties) != (first == last) or first > last:
        raise Refused(f"the runner takes columns of one line only: {properties}")
    if first == last:
        width = len(lines(directory / path)[first - 1])
        if not 1 <= int(properties["col"]) <= int(properties["endColumn"]) <= width + 1:
            raise Refused(f"no such columns: {properties}")
