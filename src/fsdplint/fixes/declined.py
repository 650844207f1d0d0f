"""The answer of a fix that cannot be made right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from fsdplint.finding import Fix

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Declined:
    """Why there is no fix: one sentence about the user's code, without its full stop."""

    reason: str


class NoFixError(Exception):
    """Raised anywhere below a builder; the message is the reason of its ``Declined``."""


def builder(build: Callable[P, Fix]) -> Callable[P, Fix | Declined]:
    """Turns a function that raises ``NoFixError`` into one that returns ``Declined``."""

    @functools.wraps(build)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Fix | Declined:
        try:
            return build(*args, **kwargs)
        except NoFixError as reason:
            return Declined(str(reason))

    return answer
