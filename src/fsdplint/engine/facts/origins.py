"""What an expression is made from: what the code assigns and passes to the variables in it."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program


def origins(program: Program, site: Site, expression: ir.Expr) -> Iterator[tuple[str, ir.Node]]:
    """Yield an expression and all that gives something to the variables in it, with their files.

    What the calls that lead to ``site`` pass for the parameters of its functions is included.
    """
    path, wanted, calls = site.path, [expression], list(site.calls)
    while wanted:
        tree = program.tree(path)
        sources = [source for each in wanted for source in tree.sources(each)]
        yield from ((path, source) for source in sources)
        if not calls:
            return
        function = tree.function(wanted[0])
        path, call = calls.pop()
        wanted = [] if function is None else _passed(sources, function, call)


def _passed(sources: list[ir.Node], function: ir.Function, call: ir.Node) -> list[ir.Expr]:
    """Return what ``call`` passes for the parameters of ``function`` in its ``sources``.

    A spread argument may be passed for any of them.
    """
    names = {n.id for each in sources for n in ir.walk(each) if isinstance(n, ir.Name)}
    parameters = [each.name for each in function.parameters]
    # `apply` of an autograd function gives its forward a context first.
    called = ir.last_name(call.func) if isinstance(call, ir.Call) else ""
    applied = function.name == "forward" and called == "apply"
    bound = applied or parameters[:1] in (["self"], ["cls"])
    wanted = [index for index, name in enumerate(parameters) if name in names and index >= bound]
    passed = [argument(call, index - bound, parameters[index]) for index in wanted]
    spread = [a for a in call.args if a.star] if wanted and isinstance(call, ir.Call) else []
    return [each.value for each in (*passed, *spread) if each is not None]


def attributes_behind(program: Program, site: Site, expression: ir.Expr) -> set[str]:
    """Return the names of the attributes that an expression is made from.

    What a forward is passed is input of the model, whatever it is made from.
    """
    functions = [program.tree(path).function(node) for path, node in site.frames()]
    forwards = [i for i, each in enumerate(functions) if each and _is_of_module(each)]
    inside = site._replace(calls=site.calls[forwards[-1] :]) if forwards else site
    nodes = (n for _, origin in origins(program, inside, expression) for n in ir.walk(origin))
    return {node.attr for node in nodes if isinstance(node, ir.Attribute)}


def _is_of_module(function: ir.Function) -> bool:
    """Whether a function is a module's forward, rather than an autograd function's."""
    first = [each.name for each in function.parameters[:1]]
    return function.name == "forward" and first == ["self"]
