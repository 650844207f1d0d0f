"""APIs of FSDP1 that are used on a model that FSDP2 shards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import is_caught
from fsdplint.engine.facts.sharding import as_unit, unit_of
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Call, Shard, Sharding, Trace, Unwrap
from fsdplint.engine.interpreter.modules import is_unit
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import ClassValue, Object, Value, followed
from fsdplint.engine.must.classes import has_attribute
from fsdplint.engine.must.values import Instance, Known, Result, always, is_module
from fsdplint.engine.program import Program
from fsdplint.engine.project.reachability import modules
from fsdplint.engine.project.unit import Unit
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.fixes.state_calls import gather_by_options
from fsdplint.knowledge.calls import (
    ABSENT_FROM_FSDP2,
    REPOINTING_CALLS,
    REPOINTING_METHODS,
    WRAPPED,
    Generation,
)
from fsdplint.knowledge.collectives import NN_UTILS
from fsdplint.knowledge.fsdp import FSDP1_STATICS, WRAPPERS
from fsdplint.knowledge.names import FSDP1, canonical
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD702",
    summary="an FSDP1 API is used on a model that FSDP2 shards",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="fsdp1-calls",
)


_TEST = re.compile(r"isinstance\s*\([^()]*(?:\([^()]*\))?[^()]*\)")
METHODS = ("clip_grad_norm_", "summon_full_params", "state_dict_type")
_ISINSTANCE = "builtins.isinstance"
# Calls in a branch for FSDP1 for which FSDP2 needs a counterpart.
_NEEDED = frozenset(
    {*METHODS, "set_state_dict_type", "optim_state_dict", "no_sync", "state_dict", "save"}
)


@dataclass(frozen=True, slots=True)
class Fsdp1Use:
    """An API of FSDP1 that a unit of FSDP2 lacks, or that does not support it.

    Attributes:
        name: the attribute or method, a static method's canonical name, or "isinstance".
        node: the attribute or the call in the source.
        used: whether the result of the call is used.
    """

    name: str
    site: Site
    node: ir.Node
    shard: Sharding
    module: Object
    used: bool = True


def fsdp1_uses(program: Program, *, caught: bool = False) -> Iterator[Fsdp1Use]:
    """Yield the uses that surely fail; if ``caught``, also where the code may expect that."""
    for trace in program.traces:
        if any(shard.generation is Generation.FSDP2 for shard in trace.units()):
            for name, module, site in _uses(program, trace):
                shard = unit_of(trace, module)
                if shard is None or not _is_certain(program, site, shard, module, name, caught):
                    continue
                if _serves_fsdp2(program, trace, site, shard, module):
                    yield Fsdp1Use(name, site, site.node, shard, module, _used(program, site))


def _uses(program: Program, trace: Trace) -> Iterator[tuple[str, Object, Site]]:
    for read in trace.of(Unwrap):
        if not _is_wrapped(trace, read):
            yield read.name, read.module, read.site
    for call in trace.of(Call):
        module = _subject(call)
        if module is None or not is_unit(module):
            continue
        if call.name != _ISINSTANCE:
            yield call.name, module, call.site
        elif _skips_for_good(program, call.site):
            yield "isinstance", module, call.site


def _subject(call: Call) -> Object | None:
    """Return the model that a call of FSDP1's API concerns."""
    found: Value | None = None
    if call.name in METHODS:
        found = followed(call.receiver)
    elif call.name in FSDP1_STATICS:
        found = call.argument(*FSDP1_STATICS[call.name][:2])
    elif call.name == _ISINSTANCE:
        found = call.argument(0, "")
    return found if isinstance(found, Object) else None


def _is_wrapped(trace: Trace, read: Unwrap) -> bool:
    """Whether the model is, or may be, in a wrapper that has it as its ``module``."""
    wrappers = trace.calls(*WRAPPERS, *REPOINTING_CALLS, *REPOINTING_METHODS)
    given = [followed(value) for call in wrappers for value in call.arguments.values()]
    # A model that is only declared a unit may have a class with such an attribute.
    said = not isinstance(unit_of(trace, read.module), Shard)
    unknown = read.module.cls is None and (said or read.module.parent is not None)
    return unknown or read.module in given or read.module.escaped is not None


def _is_certain(
    program: Program, site: Site, shard: Sharding, module: Object, name: str, caught: bool
) -> bool:
    expected = not caught and is_caught(program, site, "AttributeError")
    if expected or not program.together(site, shard.site):
        return False
    cls = module.cls
    if not isinstance(cls, ClassValue) or name not in ABSENT_FROM_FSDP2:
        return True
    return not cls.opaque() and not _mentions(cls, name)


def _serves_fsdp2(
    program: Program, trace: Trace, site: Site, shard: Sharding, module: Object
) -> bool:
    """Whether the program uses the API on FSDP2 models, too, instead of choosing by the mode.

    A method without callers serves both FSDPs if it runs the model and tests no mode.
    """
    if not program.sometimes_without(site, shard.site) or not _wraps_by_fsdp1(program):
        return True
    if trace.method_code is None or program.sometimes_without(shard.site, site):
        return False
    forwards = (call for call in trace.calls("forward") if call.time > trace.method_start)
    return any(call.receiver is module for call in forwards)


def _mentions(cls: ClassValue, name: str) -> bool:
    """Whether a class may give its objects the attribute, as in ``self.module = …``."""
    classes = (each.node for each in cls.lineage() if isinstance(each, ClassValue))
    nodes = (node for each in classes for node in ir.walk(each))
    return any(
        isinstance(node, ir.Attribute)
        and node.attr == name
        and isinstance(node.value, ir.Name)
        and node.value.id == "self"
        for node in nodes
    )


def _used(program: Program, site: Site) -> bool:
    parent = program.tree(site.path).parent(site.node)
    return not isinstance(parent, ir.Expression)


def _skips_for_good(program: Program, site: Site) -> bool:
    """Whether `isinstance(model, FSDP)` skips work that FSDP2 needs as well.

    It does if the other case does nothing, and the program wraps nothing with FSDP1.
    """
    tree = program.tree(site.path)
    test = tree.parent(site.node)
    branch = tree.parent(test) if isinstance(test, ir.Not) else test
    if not isinstance(branch, ir.If) or _wraps_by_fsdp1(program):
        return False
    arms = (branch.body, branch.orelse)
    taken, other = reversed(arms) if isinstance(test, ir.Not) else arms
    if not taken or any(not isinstance(each, ir.Pass) for each in other):
        return False
    if isinstance(taken[-1], (ir.Return, ir.Raise, ir.Continue, ir.Break)):
        return False
    calls = (n for each in taken for n in ir.walk(each) if isinstance(n, ir.Call))
    names = {name for call in calls for name in _names(call.func)}
    unit = program.project.unit(Path(site.path))
    needed = set() if unit is None else _needed(program, unit, names)
    if unit is None or not needed:
        return False
    return needed.isdisjoint(_needed(program, unit, _named_beside(tree, branch)))


def _names(func: ir.Expr) -> set[str]:
    """Return the name of a called function, and the name of its owner."""
    owner = func.value if isinstance(func, ir.Attribute) else func
    return {ir.last_name(func), owner.id if isinstance(owner, ir.Name) else ""}


def _named_beside(tree: Tree, branch: ir.If) -> set[str]:
    """The names and attributes in the function of a branch that are not in the branch."""
    nodes = tree.nodes_of(tree.function(branch) or tree.module)
    beside = (node for node in nodes if not branch.start <= node.start < branch.end)
    return set(map(ir.last_name, beside)) - {""}


def _needed(program: Program, unit: Unit, names: Set[str], depth: int = 0) -> set[str]:
    """Return what FSDP2 needs among ``names`` and in the functions that they refer to."""
    found = {name for name in names if name in _NEEDED}
    named = modules(program.project, unit) if depth < 3 else {}
    units = [unit, *(each for name in named.keys() & names for each in named[name])]
    definitions = (program.project.definition(each, name) for each in units for name in names)
    for each in definitions if depth < 3 else ():
        if each is not None and each.kind == "def":
            found |= _needed(program, each.unit, each.names | each.attributes, depth + 1)
    return found


def _wraps_by_fsdp1(program: Program) -> bool:
    """Whether something may wrap a model with FSDP1: the class is called or passed on."""
    if any(s.generation is Generation.FSDP1 for t in program.traces for s in t.of(Shard)):
        return True
    for unit in program.units:
        bound = unit.bindings.items()
        names = [n for n, (m, level, k) in bound if not level and canonical(f"{m}.{k}") == FSDP1]
        rest = _TEST.sub("", unit.text) if names else ""
        if any(re.search(rf"\b{name}\s*\(|[(,=]\s*{name}\s*[,)]", rest) for name in names):
            return True
    return False


_NO_FIX = {
    "_handle": "FSDP2 has no `_handle`; call `reshard()` or `unshard()` on the module by hand",
    "isinstance": "FSDP2 needs other code in this branch; write it by hand",
    "set_state_dict_type": "FSDP2 has no such setting; replace each later `state_dict()` by a "
    "helper of `torch.distributed.checkpoint.state_dict` by hand",
    "summon_full_params": "FSDP2 has no equivalent; by hand, gather a unit with `unshard()` and "
    "`reshard()`, or a parameter with `full_tensor()`",
}


def reports(program: Program) -> Iterator[Report]:
    for fact in fsdp1_uses(program):
        site, shard = fact.site, fact.shard
        yield Report(
            program.span(site),
            _message(program, fact),
            _label(fact),
            (
                program.evidence(shard.site, "sharded by FSDP2 here"),
                *program.conditions(site, shard.site),
            ),
            partial(_fix, program, fact),
        )


def _message(program: Program, fact: Fsdp1Use) -> str:
    path, node = fact.site.path, fact.node
    if fact.name == "isinstance":
        return (
            f"`{program.text(path, node)}` is always false: {_why_no_wrapper(program, fact)}, so "
            "the branch for FSDP1 never runs"
        )
    read = node.func if isinstance(node, ir.Call) else node
    if fact.name in FSDP1_STATICS:
        sharded, effect = _sharded(program, fact), FSDP1_STATICS[fact.name][2]
        call = program.text(path, read)
        return f"`{call}` supports only FSDP1 models, but {sharded}: the call {effect}"
    return f"`{program.text(path, read)}` does not exist: {_why_no_wrapper(program, fact)}"


def _sharded(program: Program, fact: Fsdp1Use) -> str:
    shard = fact.shard
    if isinstance(shard, Shard):
        return (
            f"`{_sharder(program, shard)}` {program.where(shard.site, fact.site)} shards this one"
        )
    return f"this one is {as_unit(program, shard, fact.site)}"


def _why_no_wrapper(program: Program, fact: Fsdp1Use) -> str:
    shard = fact.shard
    if isinstance(shard, Shard):
        sharder, where = _sharder(program, shard), program.where(shard.site, fact.site)
        return f"`{sharder}` {where} shards in place and adds no wrapper"
    return f"the model is {as_unit(program, shard, fact.site)}, which adds no wrapper"


def _sharder(program: Program, shard: Shard) -> str:
    return program.text(shard.site.path, shard.call.func)


def _label(fact: Fsdp1Use) -> str:
    if fact.name == "isinstance":
        return "always false"
    return "has no effect" if "does nothing" in _effect(fact) else "raises an error"


def _effect(fact: Fsdp1Use) -> str:
    return FSDP1_STATICS[fact.name][2] if fact.name in FSDP1_STATICS else ""


def _fix(program: Program, fact: Fsdp1Use) -> Fix | Declined:
    code = Code.of(program.tree(fact.site.path))
    last = fact.name.rpartition(".")[2]
    if fact.name in WRAPPED:
        return drop_wrapper(code, fact.node, _safety(program, fact))
    if fact.name == "clip_grad_norm_":  # FSDP1's method needs every rank, too
        return clip_by_torch(code, fact.node, fact.used, _safety(program, fact))
    if any(program.is_rank_test(guard) for guard in fact.site.guards):
        return Declined(
            "only some ranks reach this, and the replacement for FSDP2 would hang; call it by "
            "hand where every rank runs"
        )
    if last == "state_dict_type":
        return gather_by_options(code, fact.node)
    instead = "use the helpers of `torch.distributed.checkpoint.state_dict` by hand"
    return Declined(_NO_FIX.get(last, f"the replacement takes other arguments; {instead}"))


def _safety(program: Program, fact: Fsdp1Use) -> Safety:
    """Return `SAFE` if the model certainly lacks the attribute or method at this place."""
    read = fact.node.func if isinstance(fact.node, ir.Call) else fact.node
    if not isinstance(read, ir.Attribute):
        return Safety.UNSAFE
    at = program.tree(fact.site.path).statement(read)
    lacks = partial(_lacks, program, read.attr)
    sure = always(program, fact.site.path, read.value, at, lacks)
    return Safety.SAFE if sure else Safety.UNSAFE


def _lacks(program: Program, name: str, value: Known) -> bool:
    """Whether a value is a module of a class that has no attribute of FSDP1's wrapper."""
    if not is_module(program, value):
        return False
    if isinstance(value, Instance):
        return not has_attribute(program, value.cls, name)
    return isinstance(value, Result) and value.name not in (*WRAPPERS, FSDP1)


@builder
def drop_wrapper(code: Code, read: ir.Node, safety: Safety) -> Fix:
    """``model.module`` to ``model``, and a choice between both, too."""
    if not isinstance(read, ir.Attribute):
        raise NoFixError("the attribute is not written as `model.name`; remove it by hand")
    edit = code.edit(read.value.end, read.end, "")
    choice = code.parent(read)
    if isinstance(choice, ir.Conditional) and choice.body is read and dotted(choice.test):
        model, other = code.slice(read.value), code.slice(choice.orelse)
        if model == other and not code.comments(choice.start, choice.end):
            edit = code.edit(choice.start, choice.end, model)
    return Fix(f"drop `.{read.attr}`: there is no wrapper", safety, (edit,))


@builder
def clip_by_torch(code: Code, call: ir.Node, used: bool, safety: Safety) -> Fix:
    """``model.clip_grad_norm_(1.0)`` to ``clip_grad_norm_(model.parameters(), 1.0)``.

    Args:
        used: whether the norm is used, which then becomes a plain tensor, as with FSDP1.
    """
    method = call.func if isinstance(call, ir.Call) else None
    if not isinstance(call, ir.Call) or not isinstance(method, ir.Attribute):
        raise NoFixError(
            "`clip_grad_norm_` is not called as `model.clip_grad_norm_(…)`; replace it by hand"
        )
    imports = Imports(code, call)
    torch = imports.bound("torch")
    name = "clip_grad_norm_"
    function = imports.name(NN_UTILS, name) if torch is None else f"{torch}.nn.utils.{name}"
    model = code.slice(method.value)
    separator = ", " if call.args else ""
    start = call.args[0].start if call.args else call.end - 1
    edits = [code.edit(call.start, start, f"{function}({model}.parameters(){separator}")]
    if used:
        edits.append(code.edit(call.end, call.end, ".full_tensor()"))
    title = "clip with `torch.nn.utils.clip_grad_norm_`, which supports DTensors"
    return Fix(title, safety, (*edits, *imports.edits()))
