"""What the code around a place puts a value together from, as it is written."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.written import argument


def origins(program: Program, site: Site, expression: ir.Expr) -> Iterator[str]:
    """The text of ``expression`` and of all that gives something to the variables in it.

    The parameters of the functions that lead to ``site`` are what their callers write.
    """
    path, wanted, calls = site.path, [expression], list(site.calls)
    while wanted:
        tree = program.tree(path)
        sources = [source for each in wanted for source in tree.sources(each)]
        yield from (program.text(path, source) for source in sources)
        if not calls:
            return
        function = tree.function(wanted[0])
        path, call = calls.pop()
        wanted = [] if function is None else _given(sources, function, call)


def _given(sources: list[ir.Node], function: ir.Function, call: ir.Node) -> list[ir.Expr]:
    """What ``call`` gives for the parameters of ``function`` that are in its ``sources``."""
    names = {n.id for each in sources for n in ir.walk(each) if isinstance(n, ir.Name)}
    parameters = [each.name for each in function.parameters]
    bound = parameters[:1] in (["self"], ["cls"])
    given = (
        argument(call, index - bound, name)
        for index, name in enumerate(parameters)
        if name in names and index >= bound
    )
    return [each.value for each in given if each is not None]
