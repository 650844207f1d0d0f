"""Reads a rule's page into the blocks that are its tests; a page it cannot read is an error.

A fence of ``python`` is an example: a line ending ``# error`` is a finding on that line, one
ending ``# missed`` a known false negative, every other line is clean. A fence of ``diff`` is an
example with all of its lines and what the fix makes of it. A fence of ``python torch<2.6``, or
``diff torch<2.6``, is an example for those releases of PyTorch. A fence of ``yaml`` or ``bash``, or
``diff yaml``, is an example of a config file or a script. A fence of ``python ranks=N`` is a proof
for N ranks, one of ``python ranks=N torch>=2.15`` a proof that holds on those releases. Fences of
``text`` and ``console`` are only read by people.

A fence of ``python NAME.py`` is a file that is beside the examples below it.

A page begins with the summary of its rule and a first example, before the first heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange

RULES = Path(__file__).parent.parent / "rules"
INDEX = RULES / "README.md"
INTRODUCTION = ""
"""The heading of what is above the first heading."""
HEADINGS = (
    "Why is this bad?",
    "What PyTorch says",
    "What it finds",
    "Examples",
    "Fix safety",
    "Known limitations",
    "Torch versions",
    "References",
    "Proof",
)
OPTIONAL = {"Torch versions"}
READ_BY_PEOPLE = ("text", "console")
FILES = {"python": "snippet.py", "yaml": "config.yaml", "bash": "train.sh"}
"""By language, the file that an example is."""
_OF = "|".join(FILES)
_EXAMPLE = re.compile(rf"(?:diff(?: (?P<of>{_OF}))?|(?P<in>{_OF}))(?: torch(?P<torch>[<>=~].*))?")


_BESIDE = re.compile(r"python (\w+\.py)")


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
        file: the name of the file that it is.
        beside: the texts of other files that there are, by name.
    """

    text: str
    line: int
    errors: tuple[int, ...]
    missed: tuple[int, ...]
    fixed: str | None = None
    torch: TorchRange = EVERY_RELEASE
    file: str = FILES["python"]
    beside: tuple[tuple[str, str], ...] = ()


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
    section, opened, body = INTRODUCTION, 0, list[str]()
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
        elif opened:
            yield _Fence(info, "".join(body), opened + 1, section)
            opened = 0
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
    title, *bodies = re.split(r"^## .*$", prose, flags=re.MULTILINE)
    introduction = title.partition("\n")[2]
    names = (INTRODUCTION, *headings)
    sections = dict(zip(names, map(str.strip, (introduction, *bodies)), strict=True))
    if empty := [heading for heading, body in sections.items() if not body]:
        raise PageError(f"{path}: nothing is said under {empty}")
    return sections


def _examples(path: Path, fences: list[_Fence]) -> Iterator[Example]:
    beside: dict[str, str] = {}
    for fence in fences:
        if name := _BESIDE.fullmatch(fence.info):
            beside[name[1]] = fence.text
        if not _is_example(fence):
            continue
        others = tuple(beside.items())
        if not fence.info.startswith("diff"):
            yield replace(_example(path, fence, fence.text), beside=others)
            continue
        before, after = _sides(path, fence)
        broken = replace(_example(path, fence, before), beside=others)
        fixed = replace(_example(path, fence, after), beside=others)
        if not broken.errors:
            raise PageError(f"{path}:{fence.line}: a diff of an example without an error")
        if len(added := re.findall(r"^\+.*# (?:error|missed)$", fence.text, re.MULTILINE)):
            raise PageError(f"{path}:{fence.line}: a marker in a line that the fix adds: {added}")
        yield replace(broken, fixed=fixed.text)
        yield replace(fixed, errors=(), missed=())


def _sides(path: Path, fence: _Fence) -> tuple[str, str]:
    """Returns the code before and after the fix that a diff shows."""
    sides: tuple[list[str], list[str]] = ([], [])
    for number, line in enumerate(fence.text.splitlines(), fence.line):
        sign, text = line[:1] or " ", line[1:] + "\n"
        if sign not in " -+":
            raise PageError(f"{path}:{number}: a line of a diff that begins with {sign!r}")
        for side, code in zip("-+", sides, strict=True):
            if sign in (" ", side):
                code.append(text)
    before, after = map("".join, sides)
    return before, after


def _example(path: Path, fence: _Fence, code: str) -> Example:
    lines, found = [], {"error": list[int](), "missed": list[int]()}
    for number, line in enumerate(code.splitlines(), 1):
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
    info = _EXAMPLE.fullmatch(fence.info)
    assert info is not None
    torch = TorchRange.parse(info["torch"]) if info["torch"] else EVERY_RELEASE
    file = FILES[info["of"] or info["in"] or "python"]
    return Example(text, fence.line, errors, missed, torch=torch, file=file)


def _is_example(fence: _Fence) -> bool:
    return _EXAMPLE.fullmatch(fence.info) is not None


def _proofs(path: Path, fences: list[_Fence]) -> Iterator[Proof]:
    for fence in fences:
        proof = re.fullmatch(r"python ranks=([1-9])(?: torch([<>=~].*))?", fence.info)
        if bool(proof) != (fence.section == "Proof" and fence.info not in READ_BY_PEOPLE):
            raise PageError(f"{path}:{fence.line}: a proof stands under Proof, and nothing else")
        if proof:
            torch = TorchRange.parse(proof[2]) if proof[2] else EVERY_RELEASE
            yield Proof(fence.text, fence.line, int(proof[1]), torch)
        elif not (_is_example(fence) or _BESIDE.fullmatch(fence.info)) and (
            fence.info not in READ_BY_PEOPLE
        ):
            raise PageError(f"{path}:{fence.line}: a fence of `{fence.info}`")
