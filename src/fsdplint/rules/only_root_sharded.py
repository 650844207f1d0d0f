"""Models with repeated blocks that are sharded as one unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.repeated_blocks import Blocks, repeated_blocks
from fsdplint.engine.facts.sharding import only_replicates, unfollowed_sharding
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    NONE,
    ClassValue,
    Object,
    Origin,
    Symbol,
    contained,
    followed,
    may_be,
    reachable,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.shard_blocks import module_argument, shard_blocks, use_policy
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.initialisation import DRAWN_LAYERS
from fsdplint.knowledge.modules import HUGGING_FACE_CONSTRUCTORS, SETTINGS, WRAP_POLICIES
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD201",
    summary="a model with repeated blocks is sharded as one unit",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="blocks",
)


@dataclass(frozen=True, slots=True)
class RootOnly:
    """A root call on a model with repeated blocks that no call shards.

    Attributes:
        blocks: those of the model.
        model_class: the name of the model's class.
        several: the same call shards models whose blocks have other paths, or that have none.
        idle_policy: the assignment of a wrap policy that nothing uses.
    """

    shard: Shard
    blocks: tuple[Blocks, ...]
    model_class: str
    several: bool
    idle_policy: ir.Assign | None = None


def root_only_shards(program: Program) -> Iterator[RootOnly]:
    """Yield root calls on models with repeated blocks whose every path shards only the root.

    Only paths with the same call stack count: other callers of a helper shard other models.
    """
    spoiled = {
        shard.site.frames()
        for trace in program.traces
        for shard in trace.of(Shard)
        if not _alone(trace, shard)
    }
    models = _models(program)
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.site.frames() in spoiled or shard.wraps_children is not False:
                continue
            if _chooses_policy(program, shard) or only_replicates(trace, shard):
                continue
            found = repeated_blocks(shard.module)
            idle = _idle_policy(program, shard)
            if found is None and idle is not None:
                yield RootOnly(shard, (), "", False, idle)
            elif found is not None and not unfollowed_sharding(program, shard.site):
                yield RootOnly(shard, *found, len(models.get(shard.call, ())) > 1)


def _models(program: Program) -> dict[ir.Call, set[tuple[Blocks, ...]]]:
    """Return the blocks of all models of known classes, by the call that shards them."""
    models: dict[ir.Call, set[tuple[Blocks, ...]]] = {}
    for trace in program.traces:
        for shard in trace.of(Shard):
            given = shard.positional[0] if shard.positional else shard.keywords.get("module")
            for module in (shard.module, *may_be(given or NONE)):
                if isinstance(module, Object) and module.cls is not None:
                    blocks, _ = repeated_blocks(module) or ((), "")
                    models.setdefault(shard.call, set()).add(blocks)
    return models


def _chooses_policy(program: Program, shard: Shard) -> bool:
    """True if a call may get a wrap policy on paths that were not analyzed."""
    given = argument(shard.call, 4, "auto_wrap_policy")
    if given is None or shard.generation is not Generation.FSDP1:
        return False
    meant = program.tree(shard.site.path).meaning(given.value)
    return not (isinstance(meant, ir.Constant) and meant.value is None)


def _idle_policy(program: Program, shard: Shard) -> ir.Assign | None:
    """Return the assignment of a wrap policy to a name that nothing reads, before an FSDP1 call."""
    tree = program.tree(shard.site.path)
    if shard.generation is not Generation.FSDP1:
        return None
    for scope, node in _before(tree, shard.call):
        if isinstance(node, ir.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            named = isinstance(target, ir.Name) and _makes_policy(program, tree, node.value)
            if named and isinstance(target, ir.Name) and _is_idle(program, tree, scope, target.id):
                return node
    return None


def _before(tree: Tree, call: ir.Call) -> Iterator[tuple[ir.Function | ir.Module, ir.Node]]:
    """Yield the nodes before a call, each with its scope.

    They are those of the call's scope, and of functions called there whose result is unused.
    """
    scope = tree.function(call) or tree.module
    nodes = [node for node in tree.nodes_of(scope) if node.end < call.start]
    yield from ((scope, node) for node in nodes)
    calls = (node.value for node in nodes if isinstance(node, ir.Expression))
    called = {c.func.id for c in calls if isinstance(c, ir.Call) and isinstance(c.func, ir.Name)}
    for function in (each for each in tree.functions if each.name in called):
        yield from ((function, node) for node in tree.nodes_of(function))


def _is_idle(program: Program, tree: Tree, scope: ir.Function | ir.Module, name: str) -> bool:
    """True if a name is bound once in its scope and never read, other files included."""
    nodes = list(ir.walk(scope))
    named = [node for node in nodes if isinstance(node, ir.Name) and node.id == name]
    shared = any(isinstance(node, ir.Scope) and name in node.names for node in nodes)
    if scope is tree.module:
        shared = (
            shared
            or tree.looks_up_variables
            or any(other is not tree for other in program.trees_with(name))
        )
    return len(named) == 1 and not shared


def _makes_policy(program: Program, tree: Tree, value: ir.Expr) -> bool:
    for node in ir.walk(value):
        meant = tree.meaning(node) if isinstance(node, ir.Name) else node
        dotted = isinstance(meant, (ir.Name, ir.Attribute))
        if dotted and program.project.library_name(tree.path, meant) in WRAP_POLICIES:  # type: ignore[arg-type]  # an Expr
            return True
    return False


def _alone(trace: Trace, root: Shard) -> bool:
    """True if surely nothing inside the module of ``root`` was sharded before it."""
    module = root.module
    if any(is_module(above) for above in module.ancestors()):
        return False
    inside = {module, *reachable(module)}
    if any(part.escaped is not None and part.escaped < root.time for part in _parts(module)):
        return False
    if isinstance(module.cls, ClassValue) and module.cls.opaque():
        return False
    others = [shard for shard in trace.of(Shard) if shard is not root]
    return all(_elsewhere(shard.module, module, inside) for shard in others)


def _parts(module: Object) -> dict[Object, None]:
    """Return the objects in a model that may be modules.

    Settings, what only settings hold, sizes of layers and names of checkpoints are left out.
    """
    found: dict[Object, None] = {}
    sizes: set[Object] = set()
    queue = [module]
    while queue:
        part = queue.pop()
        cls = part.cls
        plain = isinstance(cls, ClassValue) and not cls.opaque() and not is_module(part)
        if part not in found and not plain:
            found[part] = None
            loaded = _is_loaded(part)
            own = (v for name, v in part.attrs.items() if not (loaded and name in SETTINGS))
            held = (*own, *part.elements.values(), *(() if loaded else part.args))
            items = (item for value in held for item in contained(value))
            queue.extend(item for item in items if isinstance(item, Object))
            if isinstance(cls, Symbol) and cls.name in DRAWN_LAYERS:
                given = map(followed, part.args)
                sizes.update(value for value in given if isinstance(value, Object))
    return {part: None for part in found if part not in sizes}


def _is_loaded(part: Object) -> bool:
    """True if a model is made from a published checkpoint or its configuration."""
    call = part.site.node if part.site is not None else None
    return isinstance(call, ir.Call) and ir.last_name(call.func) in HUGGING_FACE_CONSTRUCTORS


def _elsewhere(other: Object, root: Object, inside: set[Object]) -> bool:
    """True if a sharded module surely is no part of ``root``, whose parts are ``inside``."""
    if other in inside or root in other.ancestors():
        return False
    top = other
    for above in other.ancestors():
        top = above
    return top.origin is Origin.ALLOCATED


def reports(program: Program) -> Iterator[Report]:
    for fact in root_only_shards(program):
        site, call = fact.shard.site, fact.shard.call
        module = module_argument(call)
        model = f"`{program.text(site.path, module.value)}`" if module else "a model"
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call.func)}` shards {model} as one unit, "
            f"{_reason(program, fact)}: every rank holds the whole model during a step, which "
            "wastes memory",
            _label(fact),
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _reason(program: Program, fact: RootOnly) -> str:
    policy, path = fact.idle_policy, fact.shard.site.path
    if policy is None:
        return "not per block"
    where = program.where(Site(path, policy), fact.shard.site)
    return f"since `{program.text(path, policy.targets[0])}` {where} is never passed to it"


def _label(fact: RootOnly) -> str:
    if fact.idle_policy is not None:
        return "no wrap policy is passed"
    return f"all blocks of `{fact.model_class}` share one unit"


def _evidence(program: Program, fact: RootOnly) -> tuple[Evidence, ...]:
    module, policy = fact.shard.module, fact.idle_policy
    if policy is not None:
        span = Span(fact.shard.site.path, policy.start, policy.end)
        return (Evidence(span, "this policy is never used"),)
    if module.site is None:
        return ()
    paths = " and ".join(f"`{blocks.path}`" for blocks in fact.blocks if blocks.path)
    note = f"has repeated blocks in {paths}" if paths else "has repeated blocks"
    return (program.evidence(module.site, note),)


def _fix(program: Program, fact: RootOnly) -> Fix | Declined:
    tree = program.tree(fact.shard.site.path)
    code = Code.of(tree)
    if fact.idle_policy is not None:
        if tree.function(fact.idle_policy) is not tree.function(fact.shard.call):
            name = code.slice(fact.idle_policy.targets[0])
            return Declined(
                f"`{name}` is local to another function; return it and pass it as "
                "`auto_wrap_policy` by hand"
            )
        return use_policy(code, fact.shard.call, fact.idle_policy)
    if fact.several:
        return Declined(
            "the call shards several models, which do not all have blocks at the same paths; shard "
            "the blocks of each model by hand"
        )
    return shard_blocks(code, fact.shard.call, fact.blocks, fact.shard.generation)
