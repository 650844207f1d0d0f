"""Models with sharded parts and trained parameters that no unit holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import product

from fsdplint.engine import ir
from fsdplint.engine.facts.coverage import UnshardedRoot, unsharded_roots
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.engine.interpreter.values import ClassValue, Object, Symbol
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted, names_in
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.calls import SUBMODULE_VIEWS
from fsdplint.knowledge.data import IN_ORDER
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD202",
    summary="parts of a model are sharded, but its root is not",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="coverage",
)


_SHOWN = 3


def reports(program: Program) -> Iterator[Report]:
    for fact in unsharded_roots(program):
        names = list(dict.fromkeys(filter(None, map(_name, fact.outside))))
        model = f"`{_class(fact.model)}`"
        yield Report(
            program.span(fact.last.site),
            f"parts of {model} are sharded, but {model} itself is not: the gradients of "
            f"{_listed(names)} are never reduced, so each rank trains different weights",
            f"{model} itself is never sharded",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _listed(names: list[str]) -> str:
    """Return the first names for a message, e.g. "`embed` and `head`"."""
    shown = [f"`{name}`" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        shown.append(f"{len(names) - _SHOWN} more")
    *most, last = shown or ["its other parameters"]
    return f"{', '.join(most)} and {last}" if most else last


def _name(part: Object) -> str:
    """Return the attribute path of a part below its model, up to the first container."""
    return part.path().partition("[")[0].strip(".")


def _class(model: Object) -> str:
    if isinstance(model.cls, ClassValue):
        return model.cls.node.name
    return model.cls.name.rpartition(".")[2] if isinstance(model.cls, Symbol) else "the model"


def _evidence(program: Program, fact: UnshardedRoot) -> tuple[Evidence, ...]:
    made = [part.site for part in fact.outside[:_SHOWN] if part.site is not None]
    return (
        *(program.evidence(site, "belongs to no FSDP unit") for site in made),
        program.evidence(fact.training, "trains all parameters of the model"),
        *program.conditions(fact.last.site),
    )


def _fix(program: Program, fact: UnshardedRoot) -> Fix | Declined:
    code = Code.of(program.tree(fact.last.site.path))
    return shard_root(code, fact.last.call, fact.last.module.path())


_STEP = re.compile(r"\.?\w+(?:\(\))?|\[[^]]*\]")
_MAX_VARIABLES = 6
# Functions and methods that iterate over their argument, or over what they are called on.
_SAME = IN_ORDER | {"reversed"}
_HELD = frozenset({"values", "items"})


@builder
def shard_root(code: Code, part: ir.Call, path: str) -> Fix:
    """Shard the model itself below the code that shards its last part.

    Args:
        part: the call that shards it, ``fully_shard(block, …)``.
        path: the part's path below the model, e.g. ``.blocks[]``.
    """
    model = _model(code, part, path)
    place = _place(code, part, model)
    if isinstance(place, ir.Return) or not code.ends_line(place):
        raise NoFixError(
            f"no line can follow `{code.short(place)}`; shard the model by hand after its parts"
        )
    arguments = ", ".join([model, *_arguments(code, part, place)])
    call = f"{code.slice(part.func)}({arguments})"
    line = f"{code.indentation(place)}{call}{code.newline}"
    edit = code.insert_lines(code.after(place), line)
    return Fix(f"shard `{model}` itself after its parts", Safety.UNSAFE, (edit,))


# The name of the model


def _model(code: Code, part: ir.Call, path: str) -> str:
    argument = module_argument(part)
    value = None if argument is None else argument.value
    ending = [_plain(step) for step in _STEP.findall(path) if not step.endswith("()")]
    given = value.elements if isinstance(value, ir.Collection) else [value]
    for node, variables in product(given, range(_MAX_VARIABLES)):
        found = None if node is None else _reached(code, node, variables)
        steps = [] if found is None else _STEP.findall(found)
        views = [index for index, step in enumerate(steps) if step.endswith("()")]
        end = views[0] if views else len(steps) - len(ending)
        known = views or [_plain(step) for step in steps[end:]] == ending
        if known and end > 0 and "[]" not in steps[:end]:
            return "".join(steps[:end])
    raise NoFixError(
        f"no variable holds the model at `{code.short(part)}`; shard the model by hand after its "
        "parts"
    )


def _plain(step: str) -> str:
    return "[]" if step.startswith("[") else step


def _reached(code: Code, node: ir.Expr, variables: int) -> str | None:
    """Return the path of ``node`` with up to ``variables`` variables replaced by their sources.

    A loop's ``block`` is ``block`` with none replaced, and ``model.blocks[]`` with one.
    """
    if isinstance(node, ir.Name):
        return _of_variable(code, node, variables)
    if isinstance(node, ir.Attribute):
        base = _reached(code, node.value, variables)
        return None if base is None else f"{base}.{node.attr}"
    if isinstance(node, ir.Subscript):
        base = _reached(code, node.value, variables)
        index = code.slice(node.index) if isinstance(node.index, ir.Constant) else ""
        return None if base is None else f"{base}[{index}]"
    return _of_call(code, node, variables) if isinstance(node, ir.Call) else None


def _of_variable(code: Code, name: ir.Name, variables: int) -> str | None:
    if not variables:
        return name.id
    for loop in _loops(code, name):
        if name.id in _bound(loop):
            base = _reached(code, loop.iterable, variables - 1)
            return None if base is None else f"{base}[]"
    scope = code.nodes_of(code.scope(name))
    assigned = [n for n in scope if isinstance(n, ir.Assign) and name.id in map(dotted, n.targets)]
    if len(assigned) == 1 and isinstance(assigned[0].value, ir.Attribute):
        return _reached(code, assigned[0].value, variables - 1)
    return name.id


def _of_call(code: Code, call: ir.Call, variables: int) -> str | None:
    last = code.slice(call.func).rpartition(".")[2]
    if isinstance(call.func, ir.Attribute) and last in SUBMODULE_VIEWS | _HELD:
        base = _reached(code, call.func.value, variables)
        view = "" if last in _HELD else f".{last}()"
        return None if base is None else f"{base}{view}"
    if last in _SAME and call.args:
        return _reached(code, call.args[0].value, variables)
    return None


# Where and with what


def _loops(code: Code, node: ir.Node) -> Iterator[ir.For | ir.Clause]:
    """Yield the loops and comprehensions around ``node`` in its function, nearest first."""
    for around in code.ancestors(node):
        if isinstance(around, (ir.Function, ir.ClassDef)):
            return
        if isinstance(around, ir.For):
            yield around
        if isinstance(around, ir.Comprehension):
            yield from reversed(around.clauses)


def _bound(loop: ir.For | ir.Clause) -> set[str]:
    return {node.id for node in ir.walk(loop.target) if isinstance(node, ir.Name)}


def _place(code: Code, part: ir.Call, model: str) -> ir.Stmt:
    """Return the statement after which all parts of ``model`` are sharded."""
    place = code.statement(part)
    if isinstance(place, COMPOUND):
        raise NoFixError(
            f"`{code.short(part)}` is in the header of a compound statement; shard the model by "
            "hand after its parts"
        )
    if code.in_lambda(part):
        raise NoFixError(
            f"`{code.short(part)}` is in a lambda; shard the model by hand after its parts"
        )
    for loop in _loops(code, part):
        if _STEP.findall(model)[0] in _bound(loop):
            break
        if isinstance(loop, ir.For):
            place = loop
    return place


def _arguments(code: Code, part: ir.Call, place: ir.Stmt) -> Iterator[str]:
    """Yield the arguments of the parts' call; ``reshard_after_forward`` only if all share it."""
    module = module_argument(part)
    inside = names_in(place).writes if isinstance(place, ir.For) else set()
    inside |= {name for loop in _loops(code, part) for name in _bound(loop)}
    for argument in part.args:
        if argument is module:
            continue
        used = {n.id for n in ir.walk(argument) if isinstance(n, ir.Name)} & inside
        if not used:
            yield code.slice(argument)
        elif argument.keyword != "reshard_after_forward":
            raise NoFixError(
                f"`{code.slice(argument)}` differs from part to part; shard the model by hand "
                "after its parts"
            )
