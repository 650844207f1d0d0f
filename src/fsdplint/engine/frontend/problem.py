"""Why a file is not Python; separate from the parser, which is slow to import."""

from __future__ import annotations

from fsdplint.files.file import SourceFile
from fsdplint.files.invalid import MAX_CHARACTERS, InvalidSyntax, TooDemanding

# Length and hash of texts that are known to be Python.
_PYTHON: set[tuple[int, int]] = set()
_TOO_DEEP = (RecursionError, MemoryError)


def syntax_problem(source: SourceFile) -> InvalidSyntax | None:
    """Return why ``source`` is not Python of any version, in CPython's words if it has some.

    Raises:
        TooDemanding: it is too much for CPython's parser too, so that nobody knows.
    """
    if len(source.text) > MAX_CHARACTERS:
        raise TooDemanding("too large to parse")
    try:
        _parse(source.text)
    except SyntaxError as error:
        place = source.offset(error.lineno or 1, error.offset or 1)
        return _parser_problem(source, InvalidSyntax(error.msg, place))
    except (ValueError, *_TOO_DEEP):
        return _parser_problem(source, None)
    return None


def is_python(text: str) -> bool:
    """True if CPython parses ``text``; otherwise it may be of a newer version."""
    if len(text) > MAX_CHARACTERS:
        return False
    try:
        _parse(text)
    except (SyntaxError, ValueError, *_TOO_DEEP):
        return False
    return True


def _parse(text: str) -> None:
    """Parse a text with CPython, once."""
    import ast
    import warnings

    key = len(text), hash(text)
    if key not in _PYTHON:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
        _PYTHON.add(key)


def _parser_problem(source: SourceFile, known: InvalidSyntax | None) -> InvalidSyntax | None:
    """Return LibCST's error for ``source``; it knows newer syntax than an old CPython."""
    from fsdplint.engine.frontend.syntax import parse  # slow to import

    try:
        parse(source.text)
    except InvalidSyntax as error:
        return known or error
    except TooDemanding:
        if known is None:
            raise
        return known
    return None
