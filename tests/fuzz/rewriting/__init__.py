"""Rewritings of a program that do not change what it does.

Each changes the trees in place and says whether it found anything to rewrite.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.fuzz.rewriting.cases import as_cases
from tests.fuzz.rewriting.extract import extract, inline, wrap_main
from tests.fuzz.rewriting.hidden import as_methods, as_parameter, by_factory
from tests.fuzz.rewriting.modules import (
    by_factory_elsewhere,
    by_keyword,
    import_late,
    import_style,
    into_library,
    reorder,
    split,
)
from tests.fuzz.rewriting.names import annotate, rename_function, rename_local
from tests.fuzz.rewriting.statements import (
    count_along,
    dead_code,
    enclose,
    format_text,
    leave_early,
    no_grad,
    swap_arms,
    swap_sides,
    temporary,
    ternary,
    together,
)
from tests.fuzz.trees import Trees

Rewriting = Callable[[Trees, Random], bool]

_EVERY: tuple[Rewriting, ...] = (
    annotate,
    as_cases,
    by_factory,
    by_factory_elsewhere,
    by_keyword,
    count_along,
    dead_code,
    enclose,
    extract,
    format_text,
    import_late,
    import_style,
    inline,
    into_library,
    leave_early,
    no_grad,
    rename_function,
    rename_local,
    reorder,
    split,
    swap_arms,
    swap_sides,
    temporary,
    ternary,
    together,
    wrap_main,
)

REWRITINGS = {rewriting.__name__: rewriting for rewriting in _EVERY}

# Those by which a finding may be told at the call of a function that its code went to or came from.
MOVING = ("by_factory", "by_factory_elsewhere", "extract", "inline")

# Those that take a program apart, so that findings go with what it was; README.md says which.
HIDING: dict[str, Rewriting] = {"as_methods": as_methods, "as_parameter": as_parameter}
