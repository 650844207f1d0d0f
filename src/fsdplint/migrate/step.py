"""What a migration is made of: steps, which find places of a program to change or to ask about."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Span
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.migrate.origins import origin


class MigrationError(Exception):
    """No plan can be made; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Change:
    """A place that a migration changes.

    Attributes:
        what: what is done there, a verb phrase, e.g. "shard `model` with `fully_shard`".
        edits: all of them are made, or none.
        imports: the names that the new code uses; their edits are made for all changes together.
        differs: what is different afterwards, one sentence without a full stop; "" if nothing is.
        corrects: what mends a mistake of the program as it is, if that is what is different.
    """

    span: Span
    what: str
    edits: tuple[Edit, ...]
    imports: tuple[Imports, ...] = ()
    differs: str = ""
    corrects: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Something that the code does not say and the user has to decide.

    Attributes:
        topic: kebab-case; with the place it is the key of the answer.
        text: the question, with its question mark.
        choices: the answers; the first is what `--yes` takes.
    """

    span: Span
    topic: str
    text: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A place that no step can change.

    Attributes:
        what: the code as it is, for a message.
        reason: what stands in the way and what to do by hand, one sentence without a full stop.
    """

    span: Span
    what: str
    reason: str


Found = Change | Question | Kept


class UndecidedError(Exception):
    """A question without an answer."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


@dataclass(frozen=True)
class Context:
    """A program in one pass of a migration.

    Attributes:
        files: the absolute paths of the files that may be changed.
        answers: those given so far, by `key`.
        line: the line of a place in the text before the migration.
        asked: the keys of the questions that have come up so far.
        given: the paths that the migration was asked for.
        configs: what the config files and launch scripts hold that the program may be launched
            with, by path.
    """

    program: Program
    files: frozenset[str]
    answers: Mapping[str, str]
    line: Callable[[Span], int]
    asked: set[str] = field(default_factory=set)
    given: frozenset[str] = frozenset()
    configs: Mapping[str, object] = field(default_factory=dict)

    def codes(self, *words: str) -> Iterator[Code]:
        """Yield the files that may be changed and have one of ``words`` in their text."""
        for path in sorted(self.files):
            text = self.program.project.read(Path(path)) or ""
            found = any(word in text for word in words)
            if found and self.program.project.unit(Path(path)) is not None:
                yield Code.of(self.program.tree(path))

    def name(self, code: Code, node: object) -> str:
        """Return the canonical name of a library that ``node`` is by the imports, or "".

        The file may import it from another file of the project.
        """
        project = self.program.project
        found = project.library_name(code.path, node)  # type: ignore[arg-type]  # any other node has none
        names = (dotted(node) or "").split(".")  # type: ignore[arg-type]  # the same
        if not names[0] or names[0] in vars(builtins):
            return found
        return origin(project, Path(code.path), names) or found

    def key(self, question: Question) -> str:
        """Return the key of a question's answer, e.g. "train.py:41:no-shard"."""
        root = self.program.project.root.as_posix()
        path = question.span.path.removeprefix(f"{root}/")
        return f"{path}:{self.line(question.span)}:{question.topic}"

    def answer(self, question: Question) -> str | None:
        """Return the answer to ``question``, None if there is none yet.

        Raises:
            MigrationError: it is none of the question's choices.
        """
        key = self.key(question)
        self.asked.add(key)
        answer = self.answers.get(key)
        if answer is not None and answer not in question.choices:
            choices = ", ".join(question.choices)
            raise MigrationError(f"{key}: {answer!r} is not an answer; choose one of {choices}")
        return answer

    def decided(self, question: Question) -> str:
        """Return the answer to ``question``.

        Raises:
            UndecidedError: there is none yet.
        """
        answer = self.answer(question)
        if answer is None:
            raise UndecidedError(question)
        return answer


def kept(code: Code, node: ir.Node, reason: object) -> Kept:
    """Return a place that stays as it is."""
    return Kept(code.span(node), f"`{code.short(node)}`", str(reason))


def attempt(code: Code, node: ir.Node, change: Callable[[], Found | None]) -> Iterator[Found]:
    """Yield what ``change`` makes of a place, its question, or the reason why the place stays."""
    try:
        found = change()
    except UndecidedError as undecided:
        yield undecided.question
    except NoFixError as reason:
        yield kept(code, node, reason)
    else:
        if found is not None:
            yield found


Step = Callable[[Context], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration of the command line.

    Attributes:
        steps: run one after another on the same program, until none changes it any more.
        rules: names of the rules whose findings are fixed though they were there before; those that
            a migration causes always are.
        cleanup: removes what nothing uses any more, from the text alone; run until it finds none.
        leftovers: finds what a complete migration has left none of, in its result.
        unrelated: names of rules whose findings do not come from the migration, and become visible
            only because the engine follows programs that shard.
        tolerated: names of rules whose findings may stay if they have no fix: the result is right,
            and could be better.
        ranks_before: how many ranks prove the program before, None for as many as after.
        shards: whether the program has to shard with FSDP2 after it.
        whole_run: whether a proof needs the run to its end, where programs save.
        chooses_units: whether it decides which modules are sharded.
        first: mends what the steps need whole, in passes of its own before theirs.
        of_script: whether only the given files and what they import change, rather than all files
            of programs that they are part of.
    """

    name: str
    steps: Sequence[Step]
    rules: frozenset[str]
    cleanup: Step
    leftovers: Step
    unrelated: frozenset[str] = frozenset()
    tolerated: frozenset[str] = frozenset()
    ranks_before: int | None = None
    shards: bool = True
    whole_run: bool = False
    chooses_units: bool = False
    first: Step | None = None
    of_script: bool = False
