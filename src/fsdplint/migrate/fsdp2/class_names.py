"""Functions that find a module by the name of its class, which FSDP2 changes."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.migrate.calls import FSDP1_WORDS, fsdp1_calls
from fsdplint.migrate.step import Context, Found, kept

_NAME = "__name__"
_WHY = (
    "FSDP2 gives a sharded module a class of another name, such as `FSDPBlock`; find the class "
    "before the model is sharded, by hand"
)


def class_names(context: Context) -> Iterator[Found]:
    """Yield each call of such a function of the program on a model below its wrapper."""
    names = {
        function.name
        for code in context.codes(_NAME)
        for function in code.functions
        if any(isinstance(node, ir.Compare) and _tests(code, node) for node in ir.walk(function))
    }
    for code in context.codes(*FSDP1_WORDS) if names else ():
        for call in fsdp1_calls(context, code):
            made = code.statement(call)
            models = (
                {code.slice(each) for each in made.targets} if isinstance(made, ir.Assign) else {}
            )
            for node in ir.walk(code.scope(call)):
                if isinstance(node, ir.Call) and node.start > call.end:
                    given = {code.slice(argument.value) for argument in node.args}
                    if ir.last_name(node.func) in names and not given.isdisjoint(models):
                        yield kept(code, node, _WHY)


def _tests(code: Code, test: ir.Compare) -> bool:
    text = code.slice(test)
    return f"__class__.{_NAME}" in text or (_NAME in text and "type(" in text)
