"""Ranks with different weights whose slices are sharded into one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.facts.weights import (
    driven,
    first_forward,
    related,
    root,
    syncs_states,
    uses_between,
)
from fsdplint.engine.interpreter.elements import composed
from fsdplint.engine.interpreter.events import Call, Shard, Trace, Use
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import ClassValue, Object, Origin, Symbol, Taint, taint_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.move import common_block
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.initialisation import (
    DRAWN_LAYERS,
    SEEDS,
    SPREADS_WEIGHTS,
    draws_weights,
    keeps_weights,
)
from fsdplint.knowledge.modules import hugging_face_blocks
from fsdplint.knowledge.names import NN
from fsdplint.knowledge.suspicious_words import means_model_parallel, means_rank
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD205",
    summary="ranks start with different weights, and sharding mixes them into one model",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="one of its five findings on real code was wrong; its cause is fixed.",
)


_KEEPS = "each rank shards its own weights"
_ALIKE = "seed all ranks alike by hand until the model is sharded"


@dataclass(frozen=True, slots=True)
class DifferentSeeds:
    """A sharded model whose weights each rank draws with a different seed.

    Attributes:
        drawn: where it gets its weights, if that is known.
        place: the innermost call whose text mentions the rank.
        last: the last call that shards the model or a part of it.
    """

    seed: Call
    place: Site
    drawn: Site | None
    model: Object
    shard: Shard
    last: Shard


@dataclass(frozen=True, slots=True)
class LoadedAlone:
    """A sharded model whose weights only some ranks load.

    Attributes:
        source: where those ranks load it.
        guard: the test that only they pass.
    """

    source: Site
    guard: Guard
    shard: Shard


def different_seeds(program: Program) -> Iterator[DifferentSeeds]:
    """Yield models drawn with a seed that depends on the rank and never made equal."""
    for trace in program.traces:
        seeds = trace.calls(*SEEDS)
        for model in _sharded_models(trace) if seeds else ():
            shards = [shard for shard in trace.of(Shard) if related(shard.module, model)]
            drawn = _drawing(trace, model, shards[0])
            if drawn is None:
                continue
            time, site = drawn
            seed = next((s for s in reversed(seeds) if s.time <= time), None)
            if seed is None or not _of_the_rank(program, seed):
                continue
            if _stays_different(program, trace, model, seed.site, time):
                place = _telling_call(program, seed.site)
                yield DifferentSeeds(seed, place, site, model, shards[0], shards[-1])


def _telling_call(program: Program, seed: Site) -> Site:
    frames = [frame for frame in seed.frames() if means_rank(program.text(*frame))]
    return Site(*frames[-1]) if frames else seed


def loaded_alone(program: Program) -> Iterator[LoadedAlone]:
    """Yield models that only some ranks load before the sharding."""
    for trace in program.traces:
        for load in trace.calls("load_state_dict"):
            shard = _next_sharding(trace, load)
            guard = _own_guard(load.site, shard)
            if shard is None or guard is None or not isinstance(load.receiver, Object):
                continue
            model = load.receiver
            if not _others_load(trace, load, model) and _stays_different(
                program, trace, model, load.site, model.born, load.time
            ):
                yield LoadedAlone(load.site, guard, shard)
        for model in _sharded_models(trace):
            yield from _built_alone(program, trace, model)


def _others_load(trace: Trace, load: Call, model: Object) -> bool:
    """True if the ranks that skip a load may get their weights in another way."""
    loads = [each for each in trace.calls("load_state_dict") if each is not load]
    given = [escape for escape in trace.escapes if model in escape.objects]
    apart = any(guard.divergent for escape in given for guard in escape.site.guards)
    return apart or any(_concerns(each, model) for each in loads)


def _built_alone(program: Program, trace: Trace, model: Object) -> Iterator[LoadedAlone]:
    """Yield models that some ranks build with ``from_pretrained`` and others differently."""
    site = model.site
    shard = next((s for s in trace.of(Shard) if related(s.module, model)), None)
    if site is None or not _loads(site.node):
        return
    guard = _own_guard(site, shard)
    if guard is not None and _stays_different(program, trace, model, site, model.born):
        assert shard is not None
        yield LoadedAlone(site, guard, shard)


def _sharded_models(trace: Trace) -> list[Object]:
    """Return the outermost modules that are sharded at least in part."""
    return list(dict.fromkeys(root(shard.module) for shard in trace.of(Shard)))


def _of_the_rank(program: Program, seed: Call) -> bool:
    differs = bool(taint_of(*seed.arguments.values()) & Taint.RANK)
    partly = any(guard.divergent or guard.progress for guard in seed.site.guards)
    trees = ((program.tree(path), node) for path, node in seed.site.frames()[-2:])
    words = " ".join(tree.slice(each) for tree, node in trees for each in tree.sources(node))
    return differs and not partly and not means_model_parallel(words)


def _drawing(trace: Trace, model: Object, first: Shard) -> tuple[int, Site | None] | None:
    """Return when and where a model surely draws its weights; FSDP1 draws those on meta."""
    if _is_drawn(trace, model):
        return model.born, model.site
    return (first.time, first.site) if _is_reset(trace, model, first) else None


def _is_reset(trace: Trace, model: Object, first: Shard) -> bool:
    """True if FSDP1 materializes a meta model with its layers' ``reset_parameters``."""
    if first.generation is not Generation.FSDP1 or model.on_meta is not True or first.open:
        return False
    if "param_init_fn" in first.keywords or first.positional[8:]:  # perhaps by position
        return False
    before = [use.name for use in uses_between(trace, model, model.born, first.time)]
    if "to_empty" in before or not all(keeps_weights(n) or draws_weights(n) for n in before):
        return False
    layers = [part.cls for part in composed(first.module)]
    return any(isinstance(cls, Symbol) and cls.name in DRAWN_LAYERS for cls in layers)


def _is_drawn(trace: Trace, model: Object) -> bool:
    """True if every part of a model surely has random weights when it is built."""
    if model.origin is not Origin.ALLOCATED or model.on_meta is not False:
        return False
    if isinstance(model.cls, Symbol):
        return model.cls.name.startswith(f"{NN}.") or _is_from_config(model, model.cls.name)
    if not isinstance(model.cls, ClassValue) or model.cls.opaque():
        return False
    parts = list(composed(model))
    layers = [part.cls.name for part in parts if isinstance(part.cls, Symbol)]
    known = all(name.startswith(f"{NN}.") for name in layers)
    known &= any(name in DRAWN_LAYERS for name in layers)
    loads = trace.calls("load_state_dict")
    return known and not any(_concerns(load, part) for load in loads for part in parts)


def _is_from_config(model: Object, name: str) -> bool:
    """True if a Hugging Face model is built from a configuration, which draws its weights."""
    made = model.site.node if model.site is not None else None
    if hugging_face_blocks(name) is None or not isinstance(made, ir.Call):
        return False
    return ir.last_name(made.func) in ("from_config", "_from_config", name.rpartition(".")[2])


def _concerns(load: Call, part: Object) -> bool:
    return isinstance(load.receiver, Object) and related(load.receiver, part)


def _stays_different(
    program: Program, trace: Trace, model: Object, source: Site, start: int, load: int = -1
) -> bool:
    """True if a model is sharded and used while nothing can make the ranks' weights equal.

    Args:
        load: the time of the load that makes them differ.
    """
    forward = first_forward(trace, model, start)
    if forward is None:
        return False
    uses = uses_between(trace, model, start, forward.time)
    if any(_may_equal(use) for use in uses if use.time != load):
        return False
    shard = sharding_of(trace, model, None, before=forward.time)
    if shard is None or any(
        each.generation is Generation.FSDP1 and syncs_states(each) is not False
        for each in trace.of(Shard)
        if related(each.module, model)
    ):
        return False
    together = program.together(source, shard.site)
    return together and driven(source, forward.site) and driven(shard.site, forward.site)


def _may_equal(use: Use) -> bool:
    if use.name in SPREADS_WEIGHTS:
        return True
    return not keeps_weights(use.name) and not draws_weights(use.name)


def _next_sharding(trace: Trace, load: Call) -> Shard | None:
    model = load.receiver
    if not isinstance(model, Object):
        return None
    shards = [shard for shard in trace.of(Shard) if related(shard.module, model)]
    return shards[0] if shards and shards[0].time > load.time else None


def _own_guard(site: Site, shard: Shard | None) -> Guard | None:
    """Return the test that only some ranks pass before a place and that spares the sharding."""
    if shard is None or any(guard.progress for guard in site.guards):
        return None
    shared = {(guard.key, guard.taken) for guard in shard.site.guards}
    own = [g for g in site.guards if g.divergent and (g.key, g.taken) not in shared]
    return own[-1] if own else None


def _loads(node: ir.Node) -> bool:
    function = node.func if isinstance(node, ir.Call) else None
    return isinstance(function, ir.Attribute) and function.attr == "from_pretrained"


def reports(program: Program) -> Iterator[Report]:
    for seeds in different_seeds(program):
        yield _seeds(program, seeds)
    for load in loaded_alone(program):
        yield _load(program, load)


def _seeds(program: Program, fact: DifferentSeeds) -> Report:
    seed, shard, drawn = fact.place, fact.shard, fact.drawn
    return Report(
        program.span(seed),
        f"`{program.text(seed.path, seed.node)}` makes each rank draw different weights, and "
        f"`{program.text(shard.site.path, shard.call.func)}` {program.where(shard.site, seed)} "
        "keeps a slice of each: the model starts as a mix of them",
        "different seed on each rank",
        (
            *(() if drawn is None else (program.evidence(drawn, "the weights are drawn here"),)),
            *(() if drawn is shard.site else (program.evidence(shard.site, _KEEPS),)),
            *program.conditions(fact.seed.site, shard.site),
        ),
        partial(_reseed, program, fact),
    )


def _reseed(program: Program, fact: DifferentSeeds) -> Fix | Declined:
    frame = common_frame(fact.seed.site, fact.last.site)
    if frame is None or frame[1] is not fact.place.node:
        return Declined(
            f"the seed is set in one function and the model is sharded in another; {_ALIKE}"
        )
    path, seed, last = frame
    assert isinstance(seed, ir.Call)
    return seed_after_sharding(Code.of(program.tree(path)), seed, last)


def _load(program: Program, fact: LoadedAlone) -> Report:
    site, shard = fact.source, fact.shard
    assert isinstance(site.node, ir.Call)
    return Report(
        program.span(site),
        f"`{program.text(site.path, site.node.func)}` loads weights on some ranks only, and "
        f"`{program.text(shard.site.path, shard.call.func)}` {program.where(shard.site, site)} "
        "keeps a slice of each rank's model: loaded weights are mixed with others",
        "other ranks keep different weights",
        (
            program.evidence(shard.site, _KEEPS),
            *program.conditions(site, shard.site),
        ),
        partial(_load_fix, program, fact),
    )


def _load_fix(program: Program, fact: LoadedAlone) -> Fix | Declined:
    shard = fact.shard
    if shard.generation is Generation.FSDP1:
        return sync_states(Code.of(program.tree(shard.site.path)), shard.call)
    return load_everywhere(
        Code.of(program.tree(fact.source.path)), fact.source.node, fact.guard.test
    )


@builder
def seed_after_sharding(code: Code, seed: ir.Call, last_sharding: ir.Node) -> Fix:
    """Build the model with one seed, and set each rank's seed after the sharding."""
    statement = code.statement(seed)
    if not isinstance(statement, ir.Expression) or statement.value is not seed:
        raise NoFixError(f"`{code.short(seed)}` is part of a larger statement; {_ALIKE}")
    _, lifted = common_block(code, seed, last_sharding)
    if not code.alone(statement) or not code.ends_line(lifted):
        raise NoFixError(f"`{code.short(lifted)}` shares its line with other code; {_ALIKE}")
    argument = _ranked(code, seed)
    equal = code.edit(argument.start, argument.end, _without_rank(code, argument) or "0")
    line = code.indentation(lifted) + code.slice(statement) + code.newline
    again = code.insert_lines(code.after(lifted), line)
    title = "seed all ranks alike, and by rank only after the sharding"
    return Fix(title, Safety.UNSAFE, (equal, again))


def _ranked(code: Code, seed: ir.Call) -> ir.Expr:
    """Return the one argument that contains the rank."""
    found = [each.value for each in seed.args if means_rank(code.slice(each.value))]
    if len(found) != 1:
        raise NoFixError(f"`{code.short(seed)}` does not show how it uses the rank; {_ALIKE}")
    return found[0]


def _without_rank(code: Code, node: ir.Expr) -> str:
    """Return a sum without the terms that contain the rank; empty if none is left."""
    if not means_rank(code.slice(node)):
        return code.slice(node)
    if isinstance(node, ir.BinOp) and node.op == "Add":
        terms = [_without_rank(code, node.left), _without_rank(code, node.right)]
        return " + ".join(term for term in terms if term)
    plain = (ir.Name, ir.Attribute, ir.Subscript, ir.Call)
    product = isinstance(node, ir.BinOp) and node.op == "Multiply"
    if product or isinstance(node, plain):
        return ""
    raise NoFixError(f"`{code.short(node)}` is not a sum of a seed and the rank; {_ALIKE}")


@builder
def sync_states(code: Code, shard: ir.Call) -> Fix:
    """Make FSDP1 broadcast the weights of rank 0."""
    given = {argument.keyword for argument in shard.args}
    if "sync_module_states" in given or any(a.star for a in shard.args) or not shard.args:
        raise NoFixError(
            f"`{code.short(shard)}` may set `sync_module_states` already; set it to `True` by hand"
        )
    if "device_id" not in given:
        raise NoFixError(
            "`sync_module_states=True` needs a module on a GPU; add it and `device_id` by hand"
        )
    edit = add_argument(code, shard, "sync_module_states=True")
    return Fix("broadcast rank 0's weights to all ranks", Safety.UNSAFE, (edit,))


@builder
def load_everywhere(code: Code, load: ir.Node, test: ir.Node) -> Fix:
    """Move a load, and what it reads, out of the test that only some ranks pass."""
    statement = code.statement(load)
    branch = code.parent(statement)
    if not isinstance(branch, ir.If) or test not in ir.walk(branch.test):
        raise NoFixError(
            "the load is not directly under the rank's test; load the weights on every rank by hand"
        )
    body = branch.body
    plain = all(isinstance(each, ir.Assign) or each is statement for each in body)
    if branch.orelse or not plain or body[-1] is not statement or code.is_elif(branch):
        raise NoFixError(
            f"`{code.short(branch.test)}` guards more than the load; move the load out by hand"
        )
    edits = tuple(code.unwrapped(branch))
    return Fix("load the weights on every rank", Safety.UNSAFE, edits)
