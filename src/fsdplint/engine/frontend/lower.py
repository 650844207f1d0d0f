"""A file's text to IR: from the cache, or by LibCST."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.engine import ir
from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.files.invalid import InvalidSyntax, TooDemanding


def lower(text: str, path: str, ir_cache: IRCache | None = None) -> ir.Module:
    """Lower a module; suites of functions are lowered on first use, if possible.

    Args:
        ir_cache: earlier IR, to which new IR is added.

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
        refused: errors of suites that could not be lowered.
    """

    text: str
    ir_cache: IRCache | None
    refused: list[InvalidSyntax | TooDemanding] = field(default_factory=list)

    def top(self) -> ir.LoweredSuite:
        """Return the statements at the top level."""
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
        """Return the statements between two offsets, which are all indented alike."""
        try:
            return self._suite(self.text[start:end], start)
        except (InvalidSyntax, TooDemanding) as error:
            self.refused.append(error)
        # Nothing is known about its effects, so execution must not continue behind it.
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
