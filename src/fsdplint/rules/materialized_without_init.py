"""Weights and buffers that ``to_empty`` allocates and nothing initializes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_modes import GRADIENTS, NO_GRADIENTS, last_called
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.facts.weights import (
    UndefinedWeights,
    driven,
    first_forward,
    gets_no_memory,
    root,
    undefined_weights,
    uses_between,
)
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.elements import composed
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    FunctionValue,
    Object,
    Symbol,
    class_names,
    may_be,
)
from fsdplint.engine.program import Program
from fsdplint.engine.project.project import identifiers
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.initialisation import LOADS_STATE, READS_STATE, keeps_weights
from fsdplint.knowledge.modules import CONTAINERS, PARAMETER, WITHOUT_RESET
from fsdplint.knowledge.names import KEYWORD_ONLY, NN
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD204",
    summary="weights or buffers that `to_empty` allocates are never initialized",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="initialised",
    preview="two of its three findings on real code were wrong; their causes are fixed.",
)


_VIEWS = frozenset({"buffers", "named_buffers", "get_buffer", "register_buffer"})
_PLACEHOLDERS = frozenset({"empty", "empty_like"})
_ABOUT_NO_DEVICE = NO_GRADIENTS | GRADIENTS | {"nullcontext"}


@dataclass(frozen=True, slots=True)
class UndefinedBuffers:
    """Buffers that only constructors compute, used with the values ``to_empty`` left in them.

    Attributes:
        names: each with its class, e.g. "Rotary.angles", and the call that registers it.
        load: the call that loads everything except such buffers.
    """

    emptied: Call
    names: dict[str, Site]
    load: Site
    shard: Shard
    forward: Call


def undefined_buffers(program: Program) -> Iterator[UndefinedBuffers]:
    """Yield non-persistent buffers of meta models that get their weights from a checkpoint."""
    for trace in program.traces:
        for emptied in trace.calls("to_empty"):
            yield from _after(program, trace, emptied)


def _after(program: Program, trace: Trace, emptied: Call) -> Iterator[UndefinedBuffers]:
    """Yield the buffers that stay undefined after one ``to_empty``, if a load sets the rest."""
    module = emptied.receiver
    if not isinstance(module, Object) or root(module).on_meta is not True:
        return
    if gets_no_memory(emptied) or emptied.argument(KEYWORD_ONLY, "recurse") is not None:
        return
    forward = first_forward(trace, module, emptied.time)
    shard = None if forward is None else sharding_of(trace, module, None, before=forward.time)
    if forward is None or shard is None or shard.generation is not Generation.FSDP2:
        return
    load = _only_load(trace, module, emptied, forward)
    sites = (emptied.site, forward.site)
    if load is None or not all(program.together(site, shard.site) for site in sites):
        return
    if not driven(emptied.site, forward.site) or any(g.divergent for g in emptied.site.guards):
        return
    names = _undefined(program, module)
    if names:
        yield UndefinedBuffers(emptied, names, load, shard, forward)


def _undefined(program: Program, module: Object) -> dict[str, Site]:
    parts = [part.cls for part in composed(module)]
    made = list(dict.fromkeys(cls for cls in parts if isinstance(cls, ClassValue)))
    return {
        f"{cls.node.name}.{name}": Site(cls.scope.unit.path, call)
        for cls in made
        for name, call in _registered(program.tree(cls.scope.unit.path), cls)
        if _is_read(cls, name) and not _is_set(program, made, cls, name)
    }


def _only_load(trace: Trace, module: Object, emptied: Call, forward: Call) -> Site | None:
    """Return the load that sets a module's weights; None if other code may set them, too."""
    uses = uses_between(trace, module, emptied.time, forward.time)
    others = [use for use in uses if use.name not in LOADS_STATE | READS_STATE]
    if any(use.name in _VIEWS or not keeps_weights(use.name) for use in others):
        return None
    loads = [use for use in uses if use.name in LOADS_STATE]
    return loads[0].site if loads else None


def _registered(tree: Tree, cls: ClassValue) -> Iterator[tuple[str, ir.Call]]:
    """Yield the non-persistent buffers that a class's own constructor surely registers.

    Buffers of its bases and placeholders, e.g. ``torch.empty(…)``, are left out.
    """
    found = cls.attrs.get("__init__")
    if cls.opaque() or not isinstance(found, FunctionValue):
        return
    for statement in _always_run(tree, found.function.body):
        if any(isinstance(node, ir.Return) for node in ir.walk(statement)):
            return
        call = statement.value if isinstance(statement, ir.Expression) else None
        if isinstance(call, ir.Call) and _attribute(call.func) == "register_buffer":
            given = {each.keyword or at: each.value for at, each in enumerate(call.args)}
            name, value = given.get("name", given.get(0)), given.get("tensor", given.get(1))
            persistent = given.get("persistent", given.get(2))
            plain = isinstance(name, ir.Constant) and isinstance(persistent, ir.Constant)
            if plain and persistent.value is False and _is_computed(value):  # type: ignore[union-attr]  # plain
                yield str(name.value), call  # type: ignore[union-attr]  # plain


def _always_run(tree: Tree, body: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
    """Yield a block's statements, and those in contexts that do not choose a device.

    Also those of a ``try`` without handlers.
    """
    for statement in body:
        contexts = tree.contexts(statement) if isinstance(statement, ir.With) else ()
        if contexts and all(last_called(each) in _ABOUT_NO_DEVICE for each in contexts):
            yield from _always_run(tree, statement.body)  # type: ignore[union-attr]  # a With
        elif isinstance(statement, ir.Try) and not statement.handlers:
            yield from _always_run(tree, (*statement.body, *statement.final))
        else:
            yield statement


def _is_computed(value: ir.Expr | None) -> bool:
    if value is None or isinstance(value, ir.Constant):
        return False
    called = value.func if isinstance(value, ir.Call) else None
    return _attribute(called) not in _PLACEHOLDERS


def _attribute(node: ir.Node | None) -> str:
    return node.attr if isinstance(node, ir.Attribute) else ""


# Uses of a buffer in the program's text


def _is_read(cls: ClassValue, name: str) -> bool:
    body = cls.node.body
    methods = [each.function for each in body if isinstance(each, ir.FunctionDef)]
    others = [method for method in methods if method.name != "__init__"]
    return name in identifiers(*others)[1]


def _is_set(program: Program, made: list[ClassValue], cls: ClassValue, name: str) -> bool:
    """True if code that may be called sets the buffer or names it in a string."""
    constructors = {
        init.function
        for each in made
        if isinstance(init := each.attrs.get("__init__"), FunctionValue)
    }
    own = cls.attrs.get("__init__")
    for tree in program.trees_with(name, "__init__"):
        for node in tree.walk(name, "__init__"):
            if not _sets(node, name):
                continue
            function = tree.function(node)
            if isinstance(own, FunctionValue) and function is own.function:
                continue
            if function is None or _is_mentioned(program, function.name, constructors):
                return True
    return False


def _sets(node: ir.Node, name: str) -> bool:
    if isinstance(node, ir.Assign):
        return any(_names(target, name) for target in node.targets)
    if isinstance(node, (ir.AugAssign, ir.For)):
        return _names(node.target, name)
    if isinstance(node, ir.Call):
        if _attribute(node.func) == "__init__":
            return not isinstance(node.func.value, (ir.Call, ir.Attribute))  # type: ignore[union-attr]  # an Attribute
        in_place = _attribute(node.func).endswith("_")
        out = [each.value for each in node.args if each.keyword == "out"]
        return (in_place and _names(node.func, name)) or any(_names(each, name) for each in out)
    return isinstance(node, ir.Constant) and node.value == name


def _names(node: ir.Node, name: str) -> bool:
    return any(isinstance(each, ir.Attribute) and each.attr == name for each in ir.walk(node))


def _is_mentioned(program: Program, name: str, constructors: set[ir.Function]) -> bool:
    """True if a function may be called by other code than the constructors, which ran on meta."""
    if name == "forward" or name.startswith("__"):
        return True
    for tree in program.trees_with(name):
        for node in tree.walk(name):
            named = node.id if isinstance(node, ir.Name) else _attribute(node)
            if named == name or (isinstance(node, ir.Constant) and node.value == name):
                function = tree.function(node)
                if function is None or (function not in constructors and function.name != name):
                    return True
    return False


def reports(program: Program) -> Iterator[Report]:
    for fact in undefined_weights(program):
        site = fact.emptied.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` leaves the weights{_of(fact)} "
            f"uninitialized, and {_unless(fact)}nothing sets them before the forward "
            f"{program.where(fact.forward.site, site)}: the model computes with garbage values",
            "allocated here, never initialized",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )
    for buffer in undefined_buffers(program):
        site, names = buffer.emptied.site, " and ".join(f"`{name}`" for name in buffer.names)
        registered = buffer.names.values()
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` leaves {names} uninitialized: the load "
            f"{program.where(buffer.load, site)} sets no non-persistent buffers, so the model "
            "computes with garbage values",
            "buffers are never initialized",
            (
                *(program.evidence(p, "computed only here, on meta") for p in registered),
                program.evidence(buffer.load, "loads no non-persistent buffers"),
                program.evidence(buffer.forward.site, "uses the uninitialized buffers"),
                *program.conditions(site, buffer.shard.site),
            ),
            lambda: Declined(
                "only constructors compute these buffers; compute them in a method, and call it "
                "after `to_empty`"
            ),
        )


def _of(fact: UndefinedWeights) -> str:
    names = " and ".join(f"`{name}`" for name in fact.unset)
    return f" of {names}" if names else ""


def _unless(fact: UndefinedWeights) -> str:
    return "without an option " if fact.optional else ""


def _evidence(program: Program, fact: UndefinedWeights) -> tuple[Evidence, ...]:
    whole = fact.whole
    made = () if whole.site is None else (program.evidence(whole.site, "the model is built"),)
    return (
        *made,
        program.evidence(fact.shard.site, "sharded here"),
        program.evidence(fact.forward.site, "uses the uninitialized weights"),
        *_optional(program, fact),
        *(program.evidence(use.site, "sets only other weights") for use in fact.others),
        *program.conditions(fact.emptied.site, fact.shard.site),
    )


def _optional(program: Program, fact: UndefinedWeights) -> Iterator[Evidence]:
    if fact.optional is not None:
        yield program.evidence(fact.optional.site, "sets them only with an option")


def _fix(program: Program, fact: UndefinedWeights) -> Fix | Declined:
    site = fact.emptied.site
    assert isinstance(site.node, ir.Call)
    if fact.unset:
        return Declined(
            "other code initializes the rest of the model; initialize these weights there, too"
        )
    return initialise(Code.of(program.tree(site.path)), site.node, fact.whole)


_BY_HAND = "initialize the weights by hand after `to_empty`"
_RESET = "reset_parameters"
_WHOLE = ("init_weights", "initialize_weights", "init_parameters")


@builder
def initialise(code: Code, emptied: ir.Call, model: Object) -> Fix:
    """Call every module's ``reset_parameters``, or the model's own method, after ``emptied``."""
    statement = code.statement(emptied)
    receiver = emptied.func.value if isinstance(emptied.func, ir.Attribute) else None
    name = None if receiver is None else dotted(receiver)
    plain = isinstance(statement, (ir.Expression, ir.Assign)) and statement.value is emptied
    if code.in_lambda(emptied):
        raise NoFixError(
            f"a lambda has no room for a second call; pass a function that also calls `{_RESET}`"
        )
    if name is None or not plain:
        raise NoFixError(f"`{code.short(emptied)}` is part of a larger statement; {_BY_HAND}")
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code; {_BY_HAND}")
    own = _own_method(model)
    if own is None:
        _check_covered(model)
    whole = f"`{name}.{own}`" if own else f"`{_RESET}` of every module"
    if _recurses(emptied):
        called, lines = whole, _calls(code, name, own)
    else:
        called, lines = f"`{name}.{_RESET}`", _reset(code, name)
    text = "".join(code.indentation(statement) + line + code.newline for line in lines)
    edit = code.insert_lines(code.after(statement), text)
    return Fix(f"call {called} after `to_empty`", Safety.UNSAFE, (edit,))


def _recurses(emptied: ir.Call) -> bool:
    given = [argument.value for argument in emptied.args if argument.keyword == "recurse"]
    return not any(isinstance(value, ir.Constant) and value.value is False for value in given)


def _calls(code: Code, model: str, own: str | None) -> list[str]:
    if own is not None:
        return [f"{model}.{own}()"]
    names = {node.id for node in ir.walk(code.module) if isinstance(node, ir.Name)}
    module = "module" if "module" not in names else "module_"
    inner = [code.unit + line for line in _reset(code, module)]
    return [f"for {module} in {model}.modules():", *inner]


def _reset(code: Code, module: str) -> list[str]:
    return [f'if hasattr({module}, "{_RESET}"):', f"{code.unit}{module}.{_RESET}()"]


def _own_method(model: Object) -> str | None:
    """Return the name of a method that sets the model's weights and needs no argument."""
    if not isinstance(model.cls, ClassValue):
        return None
    for name in (_RESET, *_WHOLE):
        found = model.cls.lookup(name)
        if isinstance(found, FunctionValue) and _needs_nothing(found):
            return name
    return None


def _needs_nothing(method: FunctionValue) -> bool:
    _, *others = method.function.parameters or (None,)
    return all(each.default is not None or each.kind in ("*", "**") for each in others if each)


def _check_covered(model: Object) -> None:
    for module in dict.fromkeys(composed(model)):
        for reason in _uncovered(module):
            raise NoFixError(f"{reason}; {_BY_HAND}")


def _uncovered(module: Object) -> Iterator[str]:
    """Yield the reasons why no ``reset_parameters`` sets a module's own tensors."""
    cls = module.cls
    if isinstance(cls, Symbol):
        short = cls.name.rpartition(".")[2]
        if cls.name in WITHOUT_RESET:
            yield f"`{short}` has parameters, but no `{_RESET}`"
        elif not cls.name.startswith(f"{NN}.") and cls.name not in CONTAINERS:
            yield f"it is not known how `{short}` initializes its weights"
    elif isinstance(cls, ClassValue):
        yield from _uncovered_class(module, cls)
    else:
        yield "it is not known how the model's class initializes its weights"


def _uncovered_class(module: Object, cls: ClassValue) -> Iterator[str]:
    name = cls.node.name
    if cls.opaque():
        yield f"it is not known how `{name}` initializes its weights"
    if cls.lookup(_RESET) is not None:
        return
    for attribute, value in module.attrs.items():
        held = [class_names(each.cls) for each in may_be(value) if isinstance(each, Object)]
        if any(PARAMETER in names for names in held):
            yield f"no `{_RESET}` sets the parameter `{name}.{attribute}`"
    calls = (node for node in ir.walk(cls.node) if isinstance(node, ir.Attribute))
    if any(node.attr in ("register_buffer", "register_parameter") for node in calls):
        yield f"no `{_RESET}` sets the tensors that `{name}` registers"
