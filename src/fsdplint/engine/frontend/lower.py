"""A file's text to IR: as it was lowered before, or else by what LibCST makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.files.invalid import InvalidSyntax, TooDemanding


def lower(text: str, path: str, ir_cache: IRCache | None = None) -> ir.Module:
    """Lowers a module; the suites of its functions, of what can wait, when asked for.

    Args:
        ir_cache: where to look for what was lowered before, and to leave what was not.

    Raises:
        InvalidSyntax: if the text is not Python.
        TooDemanding: if it would take minutes, or the process's stack or memory.
    """
    file = _File(text, ir_cache)
    top = file.top()
    return ir.Module(0, len(text), path, top.body, top.exact, file.refused)


@dataclass(frozen=True, slots=True)
class _File:
    """The text of a file.

    Attributes:
        refused: why suites of it could not be lowered.
    """

    text: str
    ir_cache: IRCache | None
    refused: list[InvalidSyntax | TooDemanding] = field(default_factory=list)

    def top(self) -> ir.LoweredSuite:
        """What is at the top level."""
        known = self.ir_cache and self.ir_cache.module(self.text, self.suite)
        if known:
            return known
        from fsdplint.engine.frontend.lower_statements import (
            lower_module,  # LibCST, which takes long
        )

        lowered = lower_module(self.text, self.suite)
        if self.ir_cache:
            self.ir_cache.add_module(self.text, lowered)
        return lowered

    def suite(self, start: int, end: int) -> ir.LoweredSuite:
        """The statements between two offsets, which are all indented alike."""
        try:
            return self._suite(self.text[start:end], start)
        except (InvalidSyntax, TooDemanding) as error:
            self.refused.append(error)
        # Nothing is known of what it does, least of all that it comes to an end.
        return ir.LoweredSuite((ir.Raise(start, end, None),), False)

    def _suite(self, text: str, start: int) -> ir.LoweredSuite:
        known = self.ir_cache and self.ir_cache.suite(text, start)
        if known:
            return known
        from fsdplint.engine.frontend.lower_statements import lower_suite

        lowered = lower_suite(text, start)
        if self.ir_cache:
            self.ir_cache.add_suite(text, start, lowered)
        return lowered
