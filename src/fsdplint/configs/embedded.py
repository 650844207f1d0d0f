"""Shell commands in Makefiles, Dockerfiles and GitHub workflows, at the places that they are.

What is no command is blanked out, and what the other tool fills in becomes an unknown variable of
the same length, so that a place in the result is the one in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fsdplint.configs.shell import NotUnderstoodError
from fsdplint.files.discover import is_dockerfile, is_makefile, is_workflow

_OTHER_THAN_ENDS = re.compile(r"[^\r\n]")
_COMMENT = re.compile(r"^[ \t]*#[^\r\n]*", re.MULTILINE)
_RECIPE = re.compile(r"^\t(?:[^\r\n\\]|\\(?:\r\n|[\s\S]))*", re.MULTILINE)
_SILENT = re.compile(r"\A\t[ \t]*[@+-]+")
_OF_MAKE = re.compile(r"\$(?:\$|\((?:[^()]|\([^()]*\))*\)|\{[^{}]*\}|.)")
_INSTRUCTION = re.compile(
    r"^[ \t]*(?:RUN|CMD|ENTRYPOINT)[ \t]+(?:--\S+[ \t]+)*"
    # Whole lines of comments may be between those of an instruction.
    r"((?:[^\r\n\\]|\\(?:\r\n|[\s\S])(?:[ \t]*#[^\r\n]*(?:\r\n|\n))*)*)",
    re.MULTILINE | re.IGNORECASE,
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXPRESSION = re.compile(r"\$\{\{(?:(?!\$\{\{|\}\})[^\r\n])*\}\}")
_LITERAL_BLOCK = re.compile(r"\|[-+0-9]*[ \t]*(?:#[^\r\n]*)?(?=[\r\n])")


def commands(path: str, text: str) -> str | None:
    """Return the commands in a file as shell text of the same length, None if it is a script.

    Raises:
        NotUnderstoodError: the file cannot be parsed.
    """
    read = next((read for is_so, read in _READERS if is_so(path)), None)
    if read is None:
        return None
    shown = list(_OTHER_THAN_ENDS.sub(" ", text))
    comments = ((found.start(), found[0]) for found in _COMMENT.finditer(text))
    for start, part in (*comments, *read(text)):
        shown[start : start + len(part)] = part
    return "".join(shown)


def _of_makefile(text: str) -> Iterator[tuple[int, str]]:
    for recipe in _RECIPE.finditer(text):
        part = _SILENT.sub(_blank, recipe[0], count=1)
        yield recipe.start(), _OF_MAKE.sub(_unknown, part)


def _of_dockerfile(text: str) -> Iterator[tuple[int, str]]:
    for instruction in _INSTRUCTION.finditer(text):
        part = instruction[1]
        if part.startswith("["):
            # A list of strings, which are quoted as in a shell.
            words = [(each.start(), each[0]) for each in _STRING.finditer(part)]
            yield from ((instruction.start(1) + start, word) for start, word in words)
        else:
            yield instruction.start(1), part


def _of_workflow(text: str) -> Iterator[tuple[int, str]]:
    from fsdplint.configs.document import parse
    from fsdplint.configs.nodes import Mapping, Scalar, Sequence
    from fsdplint.files.invalid import InvalidSyntax

    try:
        pending = [parse(text, "")]
    except InvalidSyntax:
        raise NotUnderstoodError("no YAML") from None
    seen: set[int] = set()  # what aliases refer to, once
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            for entry in node.entries:
                value = entry.value
                if entry.name == "run" and isinstance(value, Scalar):
                    yield from _step(text, value.start, value.end, value.quote)
                else:
                    pending.append(value)
        elif isinstance(node, Sequence):
            pending += node.items


def _step(text: str, start: int, end: int, quote: str) -> Iterator[tuple[int, str]]:
    block = _LITERAL_BLOCK.match(text, start)
    is_plain = (
        not quote and text[start : start + 1] not in ("|", ">") and "\n" not in text[start:end]
    )
    if block or is_plain:
        begin = block.end() if block else start
        yield begin, _EXPRESSION.sub(_unknown, text[begin:end])


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _unknown(found: re.Match[str]) -> str:
    """Return an unknown shell variable of the same length."""
    length = len(found[0])
    if found[0] == "$$":
        return "_$"  # a variable of the shell: part of a word that is unknown
    return "${" + "_" * (length - 3) + "}" if length > 3 else "$" + "_" * (length - 1)


_READERS: tuple[tuple[Callable[[str], bool], Callable[[str], Iterator[tuple[int, str]]]], ...] = (
    (is_makefile, _of_makefile),
    (is_dockerfile, _of_dockerfile),
    (is_workflow, _of_workflow),
)
