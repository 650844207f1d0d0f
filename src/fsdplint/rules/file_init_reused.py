from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.meeting_files import MeetingFile, meeting_files
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def file_init_reused(program: Program) -> Iterator[Report]:
    for fact in meeting_files(program):
        site, node = fact.init.site, fact.node
        yield Report(
            Span(site.path, node.start, node.end),
            f"every run meets by the file `{fact.name}`, which a run that was killed leaves "
            "behind: the next one calls at addresses of processes that are gone",
            "the same file in every run",
            program.conditions(site),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: MeetingFile) -> Fix | Declined:
    if fact.method is None:
        return Declined("the file is named elsewhere")
    return fixes.process_group.by_environment(
        fixes.code.Code.of(program.tree(fact.init.site.path)), fact.method
    )
