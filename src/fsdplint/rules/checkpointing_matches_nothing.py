"""Activation checkpointing for modules of a class that FSDP2 has exchanged for another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse

from fsdplint.engine import ir
from fsdplint.engine.interpreter.elements import container_items
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import ClassValue, FunctionValue, Object, Origin, Symbol
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder, is_docstring
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import bound_by
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import CHECKPOINTING
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD317",
    summary="activation checkpointing compares with a class that sharding has replaced",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)


_NAMES = ("__name__", "__qualname__")


@dataclass(frozen=True, slots=True)
class ClassCheck:
    """The comparison ``check`` is false for all modules of the classes that it names.

    Attributes:
        subject: the module that is asked about.
        by_name: the classes' names are compared.
        final: the classes are the program's own, and no class of it derives from them.
    """

    call: Call
    check: Site
    subject: ir.Expr
    classes: ir.Expr
    names: tuple[str, ...]
    by_name: bool
    shard: Shard
    final: bool


def class_checks(program: Program) -> Iterator[ClassCheck]:
    """Checks for exactly a class whose modules are all sharded by then."""
    for trace in program.traces:
        for call in trace.calls(CHECKPOINTING):
            found = call.argument(2, "check_fn")
            model = call.argument(0, "model")
            if isinstance(found, FunctionValue) and isinstance(model, Object):
                fact = _fact(program, trace, call, model, found)
                if fact is not None:
                    yield fact


def _fact(
    program: Program, trace: Trace, call: Call, model: Object, check: FunctionValue
) -> ClassCheck | None:
    """The comparison of a ``check_fn``, if every class in it is one whose modules are sharded."""
    compared = _comparison(check.function)
    if compared is None:
        return None
    subject, classes, by_name = compared
    names = tuple(_named(classes, by_name))
    sharded = {
        _class_name(shard.module): shard
        for shard in trace.of(Shard)
        if shard.generation is Generation.FSDP2 and shard.time < call.time
        if model in (shard.module, *shard.module.ancestors())
        if not any(guard.progress or guard.divergent for guard in shard.site.guards)
        if program.together(call.site, shard.site)
    }
    if not names or not all(name in sharded for name in names):
        return None
    units = {shard.module for shard in trace.of(Shard)}
    # The element of a loop is one object for all elements of a container.
    units |= {part for each in units if each.step == "[]" for part in _alike(each)}
    if any(_class_name(part) in names for part in _without_units(model, units)):
        return None
    place = Site(check.scope.unit.path, _returned(check.function) or check.function)
    own = all(isinstance(sharded[name].module.cls, ClassValue) for name in names)
    final = own and not any(_derives(program, name) for name in names)
    return ClassCheck(call, place, subject, classes, names, by_name, sharded[names[0]], final)


_MAX_DEPTH = 6


def _alike(element: Object) -> list[Object]:
    """Return the known elements of the container that a loop's element comes from."""
    if element.origin is not Origin.PART or element.parent is None:
        return []
    return container_items(element.parent)


def _without_units(module: Object, units: set[Object], depth: int = 0) -> Iterator[Object]:
    """Yield the modules in ``module`` that are known and that no call shards."""
    if module not in units:
        yield module
    for part in (*module.attrs.values(), *container_items(module)):
        if isinstance(part, Object) and part.parent is module and depth < _MAX_DEPTH:
            yield from _without_units(part, units, depth + 1)


def _derives(program: Program, name: str) -> bool:
    """Whether a class, perhaps one that is made or got otherwise, derives from one of a name."""
    for tree in program.trees_with(name):
        for node in tree.walk(name):
            parent = None if node is tree.module else tree.parent(node)
            if isinstance(node, (ir.Import, ir.ImportFrom)):
                if any(alias and each.rpartition(".")[2] == name for each, alias in node.names):
                    return True
            elif ir.last_name(node) == name and isinstance(parent, (ir.ClassDef, ir.Assign)):
                return True
    return False


def _returned(function: ir.Function) -> ir.Expr | None:
    """The expression that a function returns before it does anything else."""
    first = next(filterfalse(is_docstring, function.body), None)
    return first.value if isinstance(first, ir.Return) else None


def _comparison(function: ir.Function) -> tuple[ir.Expr, ir.Expr, bool] | None:
    """Of ``type(m) is Block``: the module, the class, and whether by its name."""
    test = _returned(function)
    if not isinstance(test, ir.Compare) or test.op not in ("Is", "Equal", "In"):
        return None
    left, right, by_name = test.left, test.right, False
    if isinstance(left, ir.Constant) and test.op == "Equal":
        left, right = right, left
    if isinstance(left, ir.Attribute) and left.attr in _NAMES:
        left, by_name = left.value, True
    if isinstance(left, ir.Attribute) and left.attr == "__class__":
        return left.value, right, by_name
    typed = isinstance(left, ir.Call) and isinstance(left.func, ir.Name) and left.func.id == "type"
    if typed and isinstance(left, ir.Call) and len(left.args) == 1:
        return left.args[0].value, right, by_name
    return None


def _named(classes: ir.Expr, by_name: bool) -> Iterator[str]:
    """The names of the classes, "" for one that has none there."""
    if isinstance(classes, ir.Collection):
        for element in classes.elements:
            yield from _named(element, by_name)
    elif by_name:
        given = classes.value if isinstance(classes, ir.Constant) else ""
        yield given if isinstance(given, str) else ""
    elif isinstance(classes, ir.Attribute):
        yield classes.attr
    else:
        yield classes.id if isinstance(classes, ir.Name) else ""


def _class_name(module: Object) -> str:
    if isinstance(module.cls, ClassValue):
        return module.cls.node.name
    return module.cls.name.rpartition(".")[2] if isinstance(module.cls, Symbol) else "?"


def reports(program: Program) -> Iterator[Report]:
    for fact in class_checks(program):
        check, shard = fact.check, fact.shard.site
        name = fact.names[0]
        yield Report(
            program.span(check),
            f"`{program.text(check.path, check.node)}` matches no module, so nothing is "
            f"checkpointed: `{program.text(shard.path, fact.shard.call.func)}` "
            f"{program.where(shard, check)} turned every `{name}` into an `FSDP{name}`",
            "matches nothing",
            (
                program.evidence(shard, "changes the class of the modules"),
                program.evidence(fact.call.site, "runs after the sharding"),
                *program.conditions(fact.call.site, shard),
            ),
            partial(
                ask_instance,
                Code.of(program.tree(check.path)),
                check.node,
                fact.subject,
                fact.classes,
                fact.names if fact.by_name else None,
                fact.final,
            ),
        )


@builder
def ask_instance(
    code: Code,
    check: ir.Node,
    subject: ir.Expr,
    classes: ir.Expr,
    names: Sequence[str] | None,
    final: bool,
) -> Fix:
    """``type(m) is Block`` to ``isinstance(m, Block)``.

    Args:
        names: what the classes are called, where ``classes`` holds no more than that.
        final: nothing derives from the classes, which would be asked for as well.
    """
    if code.comments(check.start, check.end):
        raise NoFixError("there is a comment inside the comparison")
    text = code.slice(classes)
    if names is not None:
        bound = {name for node in ir.walk(code.module) for name in bound_by(node)}
        missing = [name for name in names if name not in bound]
        if missing:
            raise NoFixError(f"this file does not import the class `{missing[0]}`")
        text = ", ".join(names)
    elif isinstance(classes, ir.Collection):
        text = ", ".join(map(code.slice, classes.elements))
    several = len(names) > 1 if names is not None else isinstance(classes, ir.Collection)
    single = isinstance(classes, ir.Collection) and len(classes.elements) == 1
    text = f"({text})" if several and not single else text
    asked = Imports(code, check).builtin("isinstance")
    edit = code.edit(check.start, check.end, f"{asked}({code.slice(subject)}, {text})")
    title = "use `isinstance`, which also matches sharded modules"
    # By its name, the class may be another one than that of this file.
    sure = final and names is None and _is_given(code, check)
    return Fix(title, Safety.SAFE if sure else Safety.UNSAFE, (edit,))


def _is_given(code: Code, check: ir.Node) -> bool:
    """Whether a check is a lambda that is an argument, which no other code can ask."""
    function = next(a for a in code.ancestors(check) if isinstance(a, (ir.Function, ir.Module)))
    if isinstance(function, ir.Module):
        return False
    holder = code.parent(function)
    return isinstance(holder, ir.Lambda) and isinstance(code.parent(holder), ir.Argument)
