"""Programs made to be harmed: each family crosses where a value comes from with how it is used.

They imitate programs that a fix once broke, and what lies near them.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.differential.families import (
    clipping,
    devices,
    epochs,
    evaluations,
    forwards,
    launching,
    options,
    registrations,
    scalers,
    states,
    suppressions,
    wrapping,
)
from benchmarks.differential.families.family import Family
from benchmarks.differential.program import Program

FAMILIES: tuple[Family, ...] = (
    *epochs.FAMILIES,
    *clipping.FAMILIES,
    *devices.FAMILIES,
    *options.FAMILIES,
    *forwards.FAMILIES,
    *scalers.FAMILIES,
    *suppressions.FAMILIES,
    *registrations.FAMILIES,
    *launching.FAMILIES,
    *wrapping.FAMILIES,
    *evaluations.FAMILIES,
    *states.FAMILIES,
)


def programs() -> Iterator[Program]:
    """Yield the programs of all families."""
    for family in FAMILIES:
        yield from family.programs()
