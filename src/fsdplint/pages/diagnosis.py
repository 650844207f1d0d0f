"""Find the rules and causes of an error: a pasted traceback, log or report of a hang."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.knowledge.errors import KnownError, known
from fsdplint.pages import messages, page
from fsdplint.pages.flight_recorder import Divergence
from fsdplint.rule import Rule

HANGS = ("collective-under-rank-guard", "step-skipped-on-one-rank", "error-caught-on-one-rank")
"""Rules for ranks that do not call the same collectives, the likeliest first."""
LEAST = 12
"""Characters of a message below which it could be anybody's."""
_FURTHEST = 400
"""Characters that a message may have where its page writes an ellipsis."""
_DEEPEST = 50
"""Parts of a path that may be those below a given folder."""

_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# What launchers and loggers put before each line of a rank.
_PREFIX = re.compile(
    r"""
    ^(?:[ \t]*(?:
        \[?(?:rank|default|RANK)[ ]?\d+\]?:            # torch, torchrun
      | \[\d+(?:,\d+)?\](?:<std(?:out|err)>)?:          # torchrun --tee, mpirun
      | \d+:[ ]                                         # srun --label
      | \([\w.]+(?:[ ]pid=\d+)(?:,[ ]ip=[\w.:]+)?\)     # Ray
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ ]?(?:-[ ])?
      | \[?[EWIF]\d{4}[ ]\d\d:\d\d:\d\d(?:\.\d+)?[^\]\n]*\]
      | \[?(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)\]?:?[ ](?:-[ ])?
      | [|+][ -]                                        # an exception group
    ))+""",
    re.MULTILINE | re.VERBOSE,
)
_ESCAPED_END = re.compile(r"\\[nrt]")
_IGNORED = re.compile(r"[\s'\"`\u2018\u2019\u201c\u201d\\]+")
_TYPE = re.compile(r"^[A-Za-z_.]*(?:Error|Exception|Warning): ")
_CLAUSE = re.compile(
    r'^✗ ([a-z0-9-]+)\b|"clause": "([a-z0-9-]+)",(?:(?!"clause").){0,2000}?"status": "violated"',
    re.MULTILINE | re.DOTALL,
)
# A path is looked for where one can begin, since a log may be a single word of megabytes.
_FRAME = re.compile(
    r'File "([^"\n]{1,4096})", line (\d{1,9})\b'
    r'|(?<![^\s"\'(),:])([^\s"\'(),:]{1,4096}\.py):(\d{1,9})\b'
)


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that an error belongs to.

    Attributes:
        message: the message as the rule's page has it, or the violated clause of `verify`.
        length: how many characters of it the error has, without spaces and quotes.
    """

    rule: Rule
    message: str
    length: int


@dataclass(frozen=True, slots=True)
class Cause:
    """A known error that a log has.

    Attributes:
        length: how many characters of its message the log has, without spaces and quotes.
    """

    error: KnownError
    length: int

    def leads(self, matches: Sequence[Match]) -> bool:
        """Return whether it is likelier than the rules that the log belongs to."""
        return not matches or bool(self.error.near) or self.length >= matches[0].length


@dataclass(frozen=True, slots=True)
class Frame:
    """A line that an error names.

    Attributes:
        path: the given file that it is in.
        line: from 1.
    """

    path: Path
    line: int


def diagnose(error: str, rules: Sequence[Rule]) -> list[Match]:
    """Return the ``rules`` that ``error`` belongs to, the one with the longest match first."""
    lines = _lines(error)
    clauses = {name for pair in _CLAUSE.findall(lines) for name in pair if name}
    text = _squeezed(lines)
    found = [match for rule in rules if (match := _match(text, clauses, rule))]
    return sorted(found, key=lambda match: -match.length)


def known_errors(error: str) -> list[Cause]:
    """Return causes that no rule can see in the code, the likeliest first.

    Those with another text of theirs in the log come before those with a message alone, longer
    messages before shorter ones. What only says that something failed is returned if there is
    nothing else.
    """
    text = _squeezed(_lines(error))
    found = [cause for each in known() if (cause := _cause(text, each))]
    found.sort(key=lambda cause: (not cause.error.near, -cause.length))
    # A log may have several texts of one cause.
    found = list({cause.error.cause: cause for cause in reversed(found)}.values())[::-1]
    return [cause for cause in found if not cause.error.last] or found


def _cause(text: str, error: KnownError) -> Cause | None:
    parts = literals(error.message)
    if not _holds(text, parts):
        return None
    if error.near and not any(_squeezed(near) in text for near in error.near):
        return None
    return Cause(error, sum(map(len, parts)))


def hung(found: Sequence[Divergence], rules: Sequence[Rule]) -> tuple[str, list[Match]]:
    """Return the lines at which ranks diverge, as a traceback, and the rules for that, if any."""
    calls = [issued for each in found for _, issued in each.calls]
    calls += [last for each in found for _, last in each.behind if last is not None]
    text = "".join(f'  File "{call.path}", line {call.line}\n' for call in calls)
    about = [rule for name in HANGS for rule in rules if found and rule.name == name]
    return text, [Match(rule, "the ranks call different collectives", 0) for rule in about]


def frames(error: str, given: Sequence[Path]) -> list[Frame]:
    """Return the lines that ``error`` names in ``given`` files or below ``given`` folders."""
    found = []
    for path, line, short, number in _FRAME.findall(_lines(error)):
        held = next((held for one in given if (held := _held(path or short, one))), None)
        if held:
            found.append(Frame(held, int(line or number)))
    return list(dict.fromkeys(found))


def literals(message: str) -> list[str]:
    """Return the literal parts of ``message``, in order, with the error's type if they are short.

    Users' names and numbers are between them. The end of the last sentence does not count: people
    leave it out, and releases differ in it.
    """
    message = message.rstrip(".!")
    parts = _parts(_TYPE.sub("", message))
    return parts if sum(map(len, parts)) >= LEAST else _parts(message)


def _match(text: str, clauses: set[str], rule: Rule) -> Match | None:
    """Return the longest message of ``rule`` in ``text``, else its violated clause."""
    found = [
        Match(rule, message, sum(map(len, parts)))
        for message in messages(page(rule.name))
        if _holds(text, parts := literals(message))
    ]
    if rule.clause in clauses:
        found.append(Match(rule, f"verify: {rule.clause} violated", 0))
    return max(found, key=lambda match: match.length, default=None)


def _holds(text: str, parts: Sequence[str]) -> bool:
    """Return whether ``text`` has the ``parts`` in order, each near the one before."""
    first, *rest = parts
    for start in _places(text, first):
        end = start + len(first)
        for part in rest:
            at = text.find(part, end, end + _FURTHEST + len(part))
            if at < 0:
                break
            end = at + len(part)
        else:
            return True
    return False


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _parts(message: str) -> list[str]:
    return [part for piece in message.split("…") if (part := _squeezed(piece))]


def _lines(error: str) -> str:
    """Return ``error`` without what a terminal, a launcher or a logger adds to its lines."""
    return _PREFIX.sub("", _ESCAPED_END.sub("\n", _CONTROL.sub("", error)))


def _squeezed(text: str) -> str:
    """Return ``text`` without what wrapping and quoting change."""
    return _IGNORED.sub("", text).lower()


def _held(named: str, given: Path) -> Path | None:
    """Return the file below ``given`` that an error, maybe on another machine, calls ``named``."""
    parts = Path(named.replace("\\", "/")).parts
    if not given.is_dir():
        return given if parts[-1:] == (given.name,) else None
    first = max(parts[:1] == ("/",), len(parts) - _DEEPEST)
    ends = (given.joinpath(*parts[at:]) for at in range(first, len(parts)))
    return next((end for end in ends if end.is_file()), None)
