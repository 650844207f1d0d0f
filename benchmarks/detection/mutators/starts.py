"""Shapes of a start of the process group, drawn for each place where a program makes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from random import Random
from typing import TypeVar

from benchmarks.detection.module import Module, indented, modules, name_of
from benchmarks.detection.program import Program

_WRONG_DRAWN = 5

S = TypeVar("S")


def drawn(
    program: Program,
    random: Random,
    wrong: Mapping[str, S],
    legal: Mapping[str, S],
    legal_drawn: int = 2,
) -> Iterator[tuple[Module, ast.Call, bool, str, S]]:
    """For each call that makes a process group some shapes: whether they are wrong, and their kind.

    Args:
        legal_drawn: how many of the legal shapes are drawn for each call.
    """
    for module in modules(program):
        for call in module.calls():
            if name_of(call) == "init_process_group":
                for kind in random.sample(sorted(wrong), _WRONG_DRAWN):
                    yield module, call, True, kind, wrong[kind]
                for kind in random.sample(sorted(legal), legal_drawn):
                    yield module, call, False, kind, legal[kind]


def behind(module: Module, call: ast.Call, lines: str) -> tuple[int, int, str]:
    """The edit that puts ``lines`` behind the statement of ``call``."""
    statement = module.statement(call)
    end = module.rows(statement)[1]
    return end, end, indented(lines, module.indent(statement))


def with_beside(
    program: Program, module: Module, text: str, name: str, beside: str
) -> dict[str, str]:
    """The files of ``program`` with another text for ``module`` and, if any, the one ``beside``."""
    texts = {**program.files, module.path: text}
    if beside:
        texts[name] = beside
    return texts
