"""Reads a rule's page into the blocks that are its tests; a page it cannot read is an error.

A fence of ``python`` is an example: a line ending ``# error`` is a finding on that line, one
ending ``# missed`` a known false negative, every other line is clean. The fence after a line
"Use instead:" is what the fix makes of the example above it. A fence of ``python torch<2.6`` is an
example for code that is meant for those releases. A fence of ``python ranks=N`` is a proof for N
ranks, one of ``python ranks=N torch>=2.15`` a proof that holds on those releases. Fences of
``text`` and ``console`` are only read by people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange

RULES = Path(__file__).parent.parent / "rules"
INDEX = RULES / "README.md"
HEADINGS = (
    "What it does",
    "Why it is bad",
    "What PyTorch says",
    "Example",
    "Fix safety",
    "Proof",
    "Known limitations",
    "Torch versions",
    "References",
)
OPTIONAL = {"Torch versions"}
FIXED = "Use instead:"
READ_BY_PEOPLE = ("text", "console")


class PageError(Exception):
    """A page breaks the form of a rule page; says where and how."""


@dataclass(frozen=True, slots=True)
class Example:
    """Code with its expected findings; `fixed` is what the fix makes of it, where shown.

    Attributes:
        text: the code without its markers.
        line: the page's line that holds the first line of `text`.
        errors: the lines of `text` with a finding, counted from 1.
        missed: the lines that deserve a finding and are known to get none.
        torch: the releases of PyTorch that the code is meant for.
    """

    text: str
    line: int
    errors: tuple[int, ...]
    missed: tuple[int, ...]
    fixed: str | None = None
    torch: TorchRange = EVERY_RELEASE


@dataclass(frozen=True, slots=True)
class Proof:
    """Code that shows a page's claims on `ranks` ranks.

    Attributes:
        torch: the releases of PyTorch on which it holds on CPUs.
    """

    text: str
    line: int
    ranks: int
    torch: TorchRange = EVERY_RELEASE


@dataclass(frozen=True, slots=True)
class Page:
    """A rule's page: its blocks and the prose of its sections, by heading.

    In the prose three backquotes stand for each block.
    """

    path: Path
    name: str
    code: str
    sections: dict[str, str]
    examples: tuple[Example, ...]
    proofs: tuple[Proof, ...]


@dataclass(frozen=True, slots=True)
class _Fence:
    info: str
    text: str
    line: int
    section: str
    before: str


def read_pages() -> list[Page]:
    """Reads every rule page of the project, ordered by name.

    Raises:
        PageError: a page is malformed.
    """
    return [read(path) for path in sorted(RULES.glob("*.md")) if path != INDEX]


def ids(blocks: Sequence[tuple[Page, Example | Proof]]) -> list[str]:
    """What tests of examples or proofs are called: by rule and line."""
    return [f"{page.name}:{block.line}" for page, block in blocks]


def read(path: Path) -> Page:
    """Reads the page at `path`.

    Raises:
        PageError: the page is malformed.
    """
    text = path.read_text(encoding="utf-8")
    title = re.match(r"# ([a-z0-9-]+) \((FSD\d{3})\)\n", text)
    if not title or title[1] != path.stem:
        raise PageError(f"{path}:1: the title is not `# {path.stem} (CODE)`")
    fences = list(_fences(path, text))
    sections = _sections(path, text)
    return Page(
        path,
        title[1],
        title[2],
        sections,
        tuple(_examples(path, fences)),
        tuple(_proofs(path, fences)),
    )


def _fences(path: Path, text: str) -> Iterator[_Fence]:
    section, before, opened, body = "", "", 0, list[str]()
    info = ""
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        if is_fence and line != line.lstrip():
            raise PageError(f"{path}:{number}: an indented fence")
        if not is_fence:
            if opened:
                body.append(line + "\n")
            elif line.startswith("## "):
                section = line[3:]
            if not opened and line:
                before = line
        elif opened:
            yield _Fence(info, "".join(body), opened + 1, section, before)
            opened, before = 0, ""
        else:
            info, opened, body = line[3:], number, []
    if opened:
        raise PageError(f"{path}:{opened}: a fence that is never closed")


def _sections(path: Path, text: str) -> dict[str, str]:
    prose = re.sub(r"^```.*?^```$", "```", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)[1:]
    expected = [h for h in HEADINGS if h in headings or h not in OPTIONAL]
    if headings != expected:
        raise PageError(f"{path}: the headings are {headings}, not {expected}")
    bodies = re.split(r"^## .*$", prose, flags=re.MULTILINE)[1:]
    sections = dict(zip(headings, map(str.strip, bodies), strict=True))
    if empty := [heading for heading, body in sections.items() if not body]:
        raise PageError(f"{path}: nothing is said under {empty}")
    if loose := re.search(rf"^(?!{FIXED}$).*use instead.*$", prose, re.MULTILINE | re.IGNORECASE):
        raise PageError(f"{path}: `{loose[0]}` reads like `{FIXED}` and is not")
    return sections


def _examples(path: Path, fences: list[_Fence]) -> Iterator[Example]:
    above: Example | None = None
    for fence in fences:
        if fence.before == FIXED:
            if not _is_example(fence) or above is None or not above.errors:
                raise PageError(f"{path}:{fence.line}: `{FIXED}` without an example to fix")
            yield replace(above, fixed=fence.text)
            above = _example(path, fence)
            if above.errors or above.missed:
                raise PageError(f"{path}:{fence.line}: a marker in a fixed block")
        else:
            if above:
                yield above
            above = _example(path, fence) if _is_example(fence) else None
    if above:
        yield above


def _example(path: Path, fence: _Fence) -> Example:
    lines, found = [], {"error": list[int](), "missed": list[int]()}
    for number, line in enumerate(fence.text.splitlines(), 1):
        marker = re.search(r" *# (error|missed)$", line)
        if marker:
            found[marker[1]].append(number)
        elif re.search(r"#\s*(errors?|miss(ed)?)\W*$", line, re.IGNORECASE):
            raise PageError(f"{path}:{fence.line + number - 1}: a marker misspelt: {line.strip()}")
        lines.append(line[: marker.start()] if marker else line)
    if found["missed"] and fence.section != "Known limitations":
        raise PageError(f"{path}:{fence.line}: `# missed` outside of Known limitations")
    text = "\n".join(lines) + "\n"
    errors, missed = tuple(found["error"]), tuple(found["missed"])
    releases = fence.info.removeprefix("python").strip().removeprefix("torch")
    torch = TorchRange.parse(releases) if releases else EVERY_RELEASE
    return Example(text, fence.line, errors, missed, torch=torch)


def _is_example(fence: _Fence) -> bool:
    return fence.info == "python" or re.fullmatch("python torch[<>=~].*", fence.info) is not None


def _proofs(path: Path, fences: list[_Fence]) -> Iterator[Proof]:
    for fence in fences:
        proof = re.fullmatch(r"python ranks=([1-9])(?: torch([<>=~].*))?", fence.info)
        if bool(proof) != (fence.section == "Proof" and fence.info not in READ_BY_PEOPLE):
            raise PageError(f"{path}:{fence.line}: a proof stands under Proof, and nothing else")
        if proof:
            torch = TorchRange.parse(proof[2]) if proof[2] else EVERY_RELEASE
            yield Proof(fence.text, fence.line, int(proof[1]), torch)
        elif not _is_example(fence) and fence.info not in READ_BY_PEOPLE:
            raise PageError(f"{path}:{fence.line}: a fence of `{fence.info}`")
