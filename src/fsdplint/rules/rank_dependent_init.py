"""Weights that differ between the ranks whose slices make up one model."""

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
    summary="ranks build a model from different weights, and sharding mixes them",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="of its four findings on real code one was wrong, which is mended.",
)


_KEEPS = "each rank keeps its slice of its own weights"


@dataclass(frozen=True, slots=True)
class DifferentSeeds:
    """A model that each rank draws by a seed of its own, and that is sharded like that.

    Attributes:
        drawn: where it gets its weights, if that is known.
        place: the innermost call whose words say that it is given the rank.
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
    """A model that only some ranks load, and that is sharded like that.

    Attributes:
        source: where those ranks load it.
        guard: the test that they pass.
    """

    source: Site
    guard: Guard
    shard: Shard


def different_seeds(program: Program) -> Iterator[DifferentSeeds]:
    """Models whose weights are drawn by a seed that depends on the rank, and never made equal."""
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
    """Models that ranks load under a test which only some of them pass, before the sharding."""
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
    """Whether the ranks that do not make a load may get their weights in another way."""
    loads = [each for each in trace.calls("load_state_dict") if each is not load]
    given = [escape for escape in trace.escapes if model in escape.objects]
    apart = any(guard.divergent for escape in given for guard in escape.site.guards)
    return apart or any(_concerns(each, model) for each in loads)


def _built_alone(program: Program, trace: Trace, model: Object) -> Iterator[LoadedAlone]:
    """``model = Model.from_pretrained(…)`` where others build it in another way."""
    site = model.site
    shard = next((s for s in trace.of(Shard) if related(s.module, model)), None)
    if site is None or not _loads(site.node):
        return
    guard = _own_guard(site, shard)
    if guard is not None and _stays_different(program, trace, model, site, model.born):
        assert shard is not None
        yield LoadedAlone(site, guard, shard)


def _sharded_models(trace: Trace) -> list[Object]:
    """The outermost modules that are sharded, or parts of which are."""
    return list(dict.fromkeys(root(shard.module) for shard in trace.of(Shard)))


def _of_the_rank(program: Program, seed: Call) -> bool:
    differs = bool(taint_of(*seed.arguments.values()) & Taint.RANK)
    partly = any(guard.divergent or guard.progress for guard in seed.site.guards)
    trees = ((program.tree(path), node) for path, node in seed.site.frames()[-2:])
    words = " ".join(tree.slice(each) for tree, node in trees for each in tree.sources(node))
    return differs and not partly and not means_model_parallel(words)


def _drawing(trace: Trace, model: Object, first: Shard) -> tuple[int, Site | None] | None:
    """When and where a model surely draws its weights: as it is built, or by FSDP1 if on meta."""
    if _is_drawn(trace, model):
        return model.born, model.site
    return (first.time, first.site) if _is_reset(trace, model, first) else None


def _is_reset(trace: Trace, model: Object, first: Shard) -> bool:
    """Whether FSDP1 finds a model on meta, and calls its layers' own ``reset_parameters``."""
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
    """Whether all that a model is made of surely has random weights when it is built."""
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
    """Whether a Hugging Face model is built from a configuration, by which it draws its weights."""
    made = model.site.node if model.site is not None else None
    if hugging_face_blocks(name) is None or not isinstance(made, ir.Call):
        return False
    return ir.last_name(made.func) in ("from_config", "_from_config", name.rpartition(".")[2])


def _concerns(load: Call, part: Object) -> bool:
    return isinstance(load.receiver, Object) and related(load.receiver, part)


def _stays_different(
    program: Program, trace: Trace, model: Object, source: Site, start: int, load: int = -1
) -> bool:
    """Whether a model is sharded and used without anything that could make ranks' weights equal.

    Args:
        load: the time of the load that makes them different.
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
    """The test that only some ranks pass on the way to a place, and all do to the sharding."""
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
        f"`{program.text(seed.path, seed.node)}` gives each rank different weights, and "
        f"`{program.text(shard.site.path, shard.call.func)}` {program.where(shard.site, seed)} "
        "builds the model from slices of all of them",
        "another seed on each rank",
        (
            *(() if drawn is None else (program.evidence(drawn, "the weights are drawn"),)),
            *(() if drawn is shard.site else (program.evidence(shard.site, _KEEPS),)),
            *program.conditions(fact.seed.site, shard.site),
        ),
        partial(_reseed, program, fact),
    )


def _reseed(program: Program, fact: DifferentSeeds) -> Fix | Declined:
    frame = common_frame(fact.seed.site, fact.last.site)
    if frame is None or frame[1] is not fact.place.node:
        return Declined("the seed is set in one function and the model sharded in another")
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
        "builds the model from slices of all ranks",
        "the other ranks keep other weights",
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
    """Builds the model by one seed, and sets each rank's own once it is sharded."""
    statement = code.statement(seed)
    if not isinstance(statement, ir.Expression) or statement.value is not seed:
        raise NoFixError(f"`{code.short(seed)}` is part of another statement")
    _, lifted = common_block(code, seed, last_sharding)
    if not code.alone(statement) or not code.ends_line(lifted):
        raise NoFixError(f"`{code.short(lifted)}` shares its line with other code")
    argument = _ranked(code, seed)
    equal = code.edit(argument.start, argument.end, _without_rank(code, argument) or "0")
    line = code.indentation(lifted) + code.slice(statement) + code.newline
    again = code.insert_lines(code.after(lifted), line)
    title = "seed all ranks alike, and each by its rank once the model is sharded"
    return Fix(title, Safety.UNSAFE, (equal, again))


def _ranked(code: Code, seed: ir.Call) -> ir.Expr:
    """The one argument that the rank is part of."""
    found = [each.value for each in seed.args if means_rank(code.slice(each.value))]
    if len(found) != 1:
        raise NoFixError(f"how the rank gets into `{code.short(seed)}` is not plain to see")
    return found[0]


def _without_rank(code: Code, node: ir.Expr) -> str:
    """A sum without the terms that the rank is part of; empty if none is left."""
    if not means_rank(code.slice(node)):
        return code.slice(node)
    if isinstance(node, ir.BinOp) and node.op == "Add":
        terms = [_without_rank(code, node.left), _without_rank(code, node.right)]
        return " + ".join(term for term in terms if term)
    plain = (ir.Name, ir.Attribute, ir.Subscript, ir.Call)
    product = isinstance(node, ir.BinOp) and node.op == "Multiply"
    if product or isinstance(node, plain):
        return ""
    raise NoFixError(f"`{code.short(node)}` is no sum of a seed and the rank")


@builder
def sync_states(code: Code, shard: ir.Call) -> Fix:
    """Has FSDP1 broadcast what rank 0 loaded."""
    given = {argument.keyword for argument in shard.args}
    if "sync_module_states" in given or any(a.star for a in shard.args) or not shard.args:
        raise NoFixError(f"what `{code.short(shard)}` is given is not plain to see")
    if "device_id" not in given:
        raise NoFixError("FSDP broadcasts only from a GPU, and is given no `device_id`")
    edit = add_argument(code, shard, "sync_module_states=True")
    return Fix("broadcast rank 0's weights", Safety.UNSAFE, (edit,))


@builder
def load_everywhere(code: Code, load: ir.Node, test: ir.Node) -> Fix:
    """Takes a load, and what it reads, out of the test that only some ranks pass."""
    statement = code.statement(load)
    branch = code.parent(statement)
    if not isinstance(branch, ir.If) or test not in ir.walk(branch.test):
        raise NoFixError("the test and the load stand apart")
    body = branch.body
    plain = all(isinstance(each, ir.Assign) or each is statement for each in body)
    if branch.orelse or not plain or body[-1] is not statement or code.is_elif(branch):
        raise NoFixError(f"`{code.short(branch.test)}` guards more than the load")
    edits = tuple(code.unwrapped(branch))
    return Fix("load the weights on every rank", Safety.UNSAFE, edits)
