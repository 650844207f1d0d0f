"""Groups of parameters that FSDP1 has flattened into one, and FSDP2 keeps apart."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.fixes.code import Code
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.parameters_grouped_after_flattening import lost_groupings

_DIFFERS = (
    "it tells the parameters apart, which FSDP1 flattens, so training changes; to prove the rest "
    "of the migration, fix `parameters-grouped-after-flattening` first"
)


def groupings(context: Context) -> Iterator[Found]:
    """Yield each test that has one outcome for all parameters of FSDP1's units.

    Source: a run on two ranks before and after, torch 2.13.
    """
    for fact in lost_groupings(context.program):
        if fact.site.path in context.files:
            code = Code.of(context.program.tree(fact.site.path))
            yield Change(code.span(fact.test), f"keep `{code.short(fact.test)}`", (), (), _DIFFERS)
