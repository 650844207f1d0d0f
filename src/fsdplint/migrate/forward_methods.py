"""Methods of a sharded model that use its parameters and are not its `forward`."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.fixes.code import Code, Declined
from fsdplint.migrate.step import Change, Context, Found, kept
from fsdplint.rules.custom_method_bypasses_hooks import bypassing_methods, mended


def forward_methods(context: Context) -> Iterator[Found]:
    """Yield a change for each method that may need whole parameters.

    To register one that needs none does no harm.
    """
    program = context.program
    found: dict[object, Found] = {}
    for fact in bypassing_methods(program, sure=False):
        source, fix = fact.method.source, mended(program, fact)
        if isinstance(fix, Declined):
            code = Code.of(program.tree(source.path))
            found.setdefault(source.node, kept(code, source.node, fix.reason))
        else:
            found.setdefault(fix.edits, Change(program.span(source), fix.title, fix.edits))
    yield from found.values()
