"""Analyses of a program as a migration changes it, each of which is made once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fsdplint.cache.ir_pack import Packs
from fsdplint.check import check
from fsdplint.check_configs import launches_of
from fsdplint.engine.program import Program, analyze
from fsdplint.engine.project.project import Project
from fsdplint.files.file import SourceFile
from fsdplint.files.pins import pinned
from fsdplint.migrate.scope import Scope
from fsdplint.outcome import Outcome
from fsdplint.settings.config import Settings, settings_for
from fsdplint.settings.rule_selection import OptIn
from fsdplint.sources import Sources


@dataclass(frozen=True, slots=True)
class _Checked:
    """A check of the program with some files changed, and what it analyzed."""

    changed: Mapping[str, SourceFile]
    outcome: Outcome
    programs: tuple[Program, ...]


class Analyses:
    """The program in a scope, with files changed as each method is told; the last is remembered."""

    def __init__(self, scope: Scope, packs: Packs) -> None:
        self.scope = scope
        self.packs = packs
        self._last: _Checked | None = None

    def outcome(self, changed: Mapping[str, SourceFile]) -> Outcome:
        """Return what `check` finds, with rules in preview: a plan must not hide a mistake."""
        return self._checked(changed).outcome

    def _checked(self, changed: Mapping[str, SourceFile]) -> _Checked:
        if self._last is None or self._last.changed != changed:
            programs: list[Program] = []
            paths = [*self.scope.files, *self.scope.configs]
            settings = self._settings()
            outcome = check(paths, settings, changed, packs=self.packs, programs=programs)
            self._last = _Checked(dict(changed), outcome, tuple(programs))
        return self._last

    def _settings(self) -> Settings:
        preview = OptIn(preview=True)
        return settings_for(self.scope.given, None, isolated=False, opt_in=preview)

    def lowered(self, changed: Mapping[str, SourceFile]) -> Program:
        """Return the program without units and traces."""
        sources, root = Sources(changed), self.scope.root
        project = Project(root, sources.text, ir_cache=self.packs.of(root))
        return Program(project, (), (), line_name=sources.line_name, admits=partial(pinned, root))

    def program(self, changed: Mapping[str, SourceFile], configs: Mapping[str, object]) -> Program:
        """Return the program that the check analyzed, if that is all of it and nothing else.

        Args:
            configs: what the config files and launch scripts hold.
        """
        launches, every = launches_of(self.scope.root, configs), set(map(Path, self.scope.every))
        for program in self._checked(changed).programs:
            if set(program.files) == every and program.project.launches == launches:
                return program
        empty = self.lowered(changed)
        read, focus = empty.project.read, list(map(Path, self.scope.files))
        program = analyze(self.scope.root, every, read, focus, launches=launches)
        return replace(program, line_name=empty.line_name, admits=empty.admits)
