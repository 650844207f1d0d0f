"""FSDP1's ways with a model, asked of one that FSDP2 shards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.events import Call, Shard, Trace, Unwrap
from fsdplint.engine.execute.calls import is_unit
from fsdplint.engine.facts.caught import is_caught
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.tree import Tree
from fsdplint.engine.unit import Unit
from fsdplint.engine.values import ClassValue, Object, Value, resolved
from fsdplint.knowledge.calls import REPOINTING_CALLS, REPOINTING_METHODS, Generation
from fsdplint.knowledge.fsdp1 import FSDP1_STATICS, WRAPPERS
from fsdplint.knowledge.names import FSDP1, canonical

_TEST = re.compile(r"isinstance\s*\([^()]*(?:\([^()]*\))?[^()]*\)")
METHODS = ("clip_grad_norm_", "summon_full_params", "state_dict_type")
_ISINSTANCE = "builtins.isinstance"
# What a branch for FSDP1 does that FSDP2 needs as well, in a way of its own.
_NEEDED = frozenset(
    {*METHODS, "set_state_dict_type", "optim_state_dict", "no_sync", "state_dict", "save"}
)


@dataclass(frozen=True, slots=True)
class Fsdp1Use:
    """Something of FSDP1's that a unit of FSDP2 lacks, or that does not know it.

    Attributes:
        name: the attribute or method, a static method's canonical name, or "isinstance".
        node: what the program writes: the attribute, or the call.
        used: the result of the call is.
    """

    name: str
    site: Site
    node: ir.Node
    shard: Shard
    module: Object
    used: bool = True


def fsdp1_uses(program: Program) -> Iterator[Fsdp1Use]:
    for trace in program.traces:
        if any(shard.generation is Generation.FSDP2 for shard in trace.of(Shard)):
            for name, module, site in _uses(program, trace):
                shard = sharding_of(trace, module)
                if shard is not None and _is_certain(program, site, shard, module, name):
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
    """The model that a call of FSDP1's is about."""
    found: Value | None = None
    if call.name in METHODS:
        found = None if call.receiver is None else resolved(call.receiver)
    elif call.name in FSDP1_STATICS:
        found = call.argument(*FSDP1_STATICS[call.name][:2])
    elif call.name == _ISINSTANCE:
        found = call.argument(0, "")
    return found if isinstance(found, Object) else None


def _is_wrapped(trace: Trace, read: Unwrap) -> bool:
    """Whether the model is, or may be, in a wrapper that has it as its ``module``."""
    wrappers = trace.calls(*WRAPPERS, *REPOINTING_CALLS, *REPOINTING_METHODS)
    given = [resolved(value) for call in wrappers for value in call.arguments.values()]
    unknown = read.module.cls is None and read.module.parent is not None
    return unknown or read.module in given or read.module.escaped is not None


def _is_certain(program: Program, site: Site, shard: Shard, module: Object, name: str) -> bool:
    if not program.together(site, shard.site) or is_caught(program, site, "AttributeError"):
        return False
    if program.sometimes_without(site, shard.site) and _wraps_by_fsdp1(program):
        return False  # what is asked for may be chosen together with the sharding
    cls = module.cls
    if not isinstance(cls, ClassValue) or name not in (*METHODS, "module", "_fsdp_wrapped_module"):
        return True
    return not cls.opaque() and not _mentions(cls, name)


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
    """Whether `isinstance(model, FSDP)` keeps from FSDP2 what it needs as well.

    It does where nothing is done in the other case, and nothing in the program is FSDP1's.
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
    names = {ir.last_name(call.func) for call in calls}
    unit = program.project.unit(Path(site.path))
    needed = set() if unit is None else _needed(program, unit, names)
    if unit is None or not needed:
        return False
    return needed.isdisjoint(_needed(program, unit, _named_beside(tree, branch)))


def _named_beside(tree: Tree, branch: ir.If) -> set[str]:
    """The names and attributes in the function of a branch that are not in the branch."""
    nodes = tree.nodes_of(tree.function(branch) or tree.module)
    beside = (node for node in nodes if not branch.start <= node.start < branch.end)
    return set(map(ir.last_name, beside)) - {""}


def _needed(program: Program, unit: Unit, names: Set[str], depth: int = 0) -> set[str]:
    """What FSDP2 needs of what code does that refers to ``names``, or a function among them."""
    found = {name for name in names if name in _NEEDED}
    definitions = [program.project.definition(unit, name) for name in names if depth < 3]
    for each in definitions:
        if each is not None and each.kind == "def":
            found |= _needed(program, each.unit, each.names | each.attributes, depth + 1)
    return found


def _wraps_by_fsdp1(program: Program) -> bool:
    """Whether something may make a model of FSDP1, the class being called or handed on."""
    if any(s.generation is Generation.FSDP1 for t in program.traces for s in t.of(Shard)):
        return True
    for unit in program.units:
        bound = unit.bindings.items()
        names = [n for n, (m, level, k) in bound if not level and canonical(f"{m}.{k}") == FSDP1]
        rest = _TEST.sub("", unit.text) if names else ""
        if any(re.search(rf"\b{name}\s*\(|[(,=]\s*{name}\s*[,)]", rest) for name in names):
            return True
    return False
