"""optimizer-before-sharding: an optimizer captures parameters that sharding then replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import (
    Edit,
    Module,
    called_names,
    fresh,
    indented,
    modules,
    name_of,
    reaching,
)
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "optimizer-before-sharding"
OPTIMIZERS = {"AdamW", "Adam", "SGD", "RAdam"}
SHARDERS = {"fully_shard", "FSDP", "FullyShardedDataParallel"}
NOT_OPTIMIZERS = {"clip_grad_norm_", "clip_grad_value_", "zip", "sum", "list", "iter", "next"}


@dataclass(frozen=True, slots=True)
class Site:
    """An optimizer built after sharding, in one block.

    Attributes:
        build: the statement that builds it, itself or through a helper.
        inputs: the statements between sharding and ``build`` that it needs, in order.
        gaps: the statements it could stand before and still run, all at or before a sharding.
    """

    module: Module
    build: ast.stmt
    inputs: list[ast.stmt]
    gaps: list[ast.stmt]


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if program.optimizer_first:
        return
    everything = modules(program)
    builders = reaching(everything, _direct_builders(everything))
    sharders = reaching(everything, SHARDERS)
    constructions = [(m, call) for m in everything for call in m.calls() if constructs(call)]
    for module in everything:
        for block in module.blocks():
            for site in _sites(module, block, builders, sharders):
                yield from _mutants(program, site, constructions, random)


def constructs(call: ast.Call) -> bool:
    if name_of(call) in OPTIMIZERS:
        return True
    return isinstance(call.func, ast.Subscript) and ".parameters()" in ast.unparse(call)


def _direct_builders(everything: list[Module]) -> set[str]:
    return {
        function
        for module in everything
        for call in module.calls()
        if constructs(call)
        for function in module.functions(call)[:1]
    }


def _sites(
    module: Module, block: list[ast.stmt], builders: set[str], sharders: set[str]
) -> Iterator[Site]:
    steps = [s for s in block if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    for build in steps:
        if not isinstance(build, ast.Assign) or not _builds(build, builders):
            continue
        before = steps[: steps.index(build)]
        sharding = [s for s in before if called_names(s) & sharders and not _builds(s, builders)]
        if not sharding:
            continue
        inputs = _inputs(build, before[before.index(sharding[-1]) + 1 :])
        earliest = _earliest([*inputs, build], before, sharding)
        gaps = [s for s in before[earliest:] if before.index(s) <= before.index(sharding[-1])]
        if gaps:
            yield Site(module, build, inputs, gaps)


def _builds(statement: ast.stmt, builders: set[str]) -> bool:
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(constructs(call) or name_of(call) in builders for call in calls)


def _inputs(build: ast.stmt, between: list[ast.stmt]) -> list[ast.stmt]:
    """What stands between sharding and ``build`` and makes the values it uses."""
    needed, kept = _used(build), []
    for statement in reversed(between):
        if _defined(statement) & needed:
            needed |= _used(statement)
            kept.append(statement)
    return kept[::-1]


def _earliest(moving: list[ast.stmt], before: list[ast.stmt], sharding: list[ast.stmt]) -> int:
    """The index in ``before`` from which on everything that ``moving`` uses is there."""
    used = set().union(*map(_used, moving)) - set().union(*map(_defined, moving))
    first: dict[str, int] = {}
    for index, statement in enumerate(before):
        for name in _defined(statement) & used:
            if statement not in sharding or name not in first:
                first[name] = index
    return max((index + 1 for index in first.values()), default=0)


def _used(node: ast.AST) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names - {"self"} | _fields(node, ast.Load)


def _defined(node: ast.AST) -> set[str]:
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _stores(n)}
    imported = {
        a.asname or a.name for n in ast.walk(node) if isinstance(n, ast.ImportFrom) for a in n.names
    }
    made = {"self.model"} if "self.build_model()" in ast.unparse(node) else set()
    return stored | imported | _fields(node, ast.Store) | made


def _stores(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _fields(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Attributes of self that ``node`` reads or writes; a method may use any of them."""
    found = {
        ast.unparse(n)
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id == "self"
        and isinstance(n.ctx, context)
    }
    if context is ast.Load and any(name.startswith("self.build_") for name in found):
        found.add("self.model")
    return found


def _mutants(
    program: Program,
    site: Site,
    constructions: list[tuple[Module, ast.Call]],
    random: Random,
) -> Iterator[Mutant]:
    for place, gap in _places(site, random):
        texts = {site.module.path: site.module.edited(_move(site, gap))}
        if MARK not in texts[site.module.path]:
            texts = _marked(site, gap, constructions)
        yield mutant(program, RULE, f"moved {place}", texts)
    direct = next((c for c in ast.walk(site.build) if _is_direct(c)), None)
    if isinstance(direct, ast.Call) and not site.inputs:
        variants = [_list, _filtered, _groups, _factory, _partial, _holder, _dict]
        for variant in random.sample(variants, 5):
            gap = random.choice(site.gaps)
            kind = f"{variant.__name__.strip('_')} before {_shown(site.module, gap)}"
            text = variant(site, gap, direct)
            yield mutant(program, RULE, kind, {site.module.path: text})
    if any(_captures(node) for statement in site.inputs for node in ast.walk(statement)):
        gap = random.choice(site.gaps)
        yield mutant(
            program, RULE, "captured early, built late", {site.module.path: _capture(site, gap)}
        )


def _is_direct(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not constructs(node) or not node.args:
        return False
    return isinstance(node.args[0], ast.Call) and name_of(node.args[0]) == "parameters"


def _places(site: Site, random: Random) -> Iterator[tuple[str, ast.stmt]]:
    chosen = {site.gaps[0]: "right after the model", site.gaps[-1]: "before the last sharding"}
    other = random.choice(site.gaps)
    chosen.setdefault(other, f"before {_shown(site.module, other)}")
    yield from ((place, gap) for gap, place in chosen.items())


def _shown(module: Module, statement: ast.stmt) -> str:
    return repr(module.source(statement).splitlines()[0][:40])


def _move(site: Site, gap: ast.stmt) -> list[Edit]:
    """``inputs`` and ``build`` cut out and put before ``gap``, wrong places marked."""
    module = site.module
    texts, edits = [], []
    for statement in [*site.inputs, site.build]:
        texts.append(_with_marks(module, statement))
        edits.append((*module.rows(statement), ""))
    start = module.rows(gap)[0]
    return [*edits, (start, start, "".join(texts))]


def _with_marks(module: Module, statement: ast.stmt) -> str:
    """The rows of ``statement`` with a mark before each construction and capture in it."""
    start, end = module.rows(statement)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    offsets = {module.span(call)[0] - start for call in calls if _captures(call)}
    text = module.text[start:end]
    for offset in sorted(offsets, reverse=True):
        text = text[:offset] + MARK + text[offset:]
    return text


def _captures(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return constructs(node) or name_of(node) in {"parameters", "named_parameters"}


def _marked(
    site: Site, gap: ast.stmt, constructions: list[tuple[Module, ast.Call]]
) -> dict[str, str]:
    """The move, where the construction stands in a helper: that is what is wrong."""
    edits: dict[Module, list[Edit]] = {site.module: _move(site, gap)}
    for module, call in constructions:
        start = module.span(call)[0]
        home = next((m for m in edits if m.path == module.path), module)
        edits.setdefault(home, []).append((start, start, MARK))
    return {module.path: module.edited(changes) for module, changes in edits.items()}


def _capture(site: Site, gap: ast.stmt) -> str:
    """Only the inputs are moved: what they captured is stale when the optimizer is built."""
    module = site.module
    start = module.rows(gap)[0]
    texts = "".join(_with_marks(module, statement) for statement in site.inputs)
    edits = [(*module.rows(statement), "") for statement in site.inputs]
    return module.edited([*edits, (start, start, texts), *_mark_build(site)])


def _mark_build(site: Site) -> list[Edit]:
    calls = [n for n in ast.walk(site.build) if isinstance(n, ast.Call) and constructs(n)]
    return [(start, start, MARK) for start, _ in map(site.module.span, calls)]


def _line(site: Site, gap: ast.stmt, line: str) -> Edit:
    start = site.module.rows(gap)[0]
    return start, start, indented(line + "\n", site.module.indent(gap))


def _owner(site: Site, direct: ast.Call) -> str:
    """`model` of `AdamW(model.parameters(), ...)`."""
    captured = direct.args[0]
    assert isinstance(captured, ast.Call) and isinstance(captured.func, ast.Attribute)
    return site.module.source(captured.func.value)


def _options(site: Site, direct: ast.Call) -> str:
    """The construction's arguments after the parameters, with a leading comma."""
    rest = [*direct.args[1:], *(keyword.value for keyword in direct.keywords)]
    if not rest:
        return ""
    text = site.module.text[site.module.span(direct.args[0])[1] : site.module.span(rest[-1])[1]]
    return re.sub(r"\s+", " ", text)


def _captured_as(name: str, make: str) -> Callable[[Site, ast.stmt, ast.Call], str]:
    def change(site: Site, gap: ast.stmt, direct: ast.Call) -> str:
        variable = fresh(name, site.module.text)
        captured = make.format(model=_owner(site, direct))
        return site.module.edited(
            [
                _line(site, gap, f"{variable} = {MARK}{captured}"),
                (*site.module.span(direct.args[0]), variable),
                (site.module.span(direct)[0],) * 2 + (MARK,),
            ]
        )

    change.__name__ = name
    return change


_list = _captured_as("params", "list({model}.parameters())")
_filtered = _captured_as("trainable", "[p for p in {model}.parameters() if p.requires_grad]")
_groups = _captured_as(
    "param_groups",
    """[
    {{"params": [p for p in {model}.parameters() if p.ndim > 1], "weight_decay": 0.1}},
    {{"params": [p for p in {model}.parameters() if p.ndim <= 1], "weight_decay": 0.0}},
]""",
)


def _factory(site: Site, gap: ast.stmt, direct: ast.Call) -> str:
    """A module-level function builds it; the call of that function is early."""
    helper = f"""
    def create_optimizer(module, **options):
        return {MARK}{_type(site, direct)}(module.parameters(), **options)
    """
    call = f"{MARK}create_optimizer({_owner(site, direct)}{_options(site, direct)})"
    return _early(site, gap, direct, call, helper)


def _type(site: Site, direct: ast.Call) -> str:
    """How the construction names the optimizer's class, as module-level code can."""
    if isinstance(direct.func, ast.Attribute):
        return site.module.source(direct.func)
    return f"torch.optim.{name_of(direct) or 'AdamW'}"


def _early(site: Site, gap: ast.stmt, direct: ast.Call, call: str, helper: str = "") -> str:
    """``build`` moved before ``gap`` with ``call`` for its construction."""
    module = site.module
    (start, end), (row, stop) = module.span(direct), module.rows(site.build)
    text = module.text[row:start] + call + module.text[end:stop]
    target = module.rows(gap)[0]
    return module.edited([(row, stop, ""), (target, target, text)], helper=helper)


def _late(site: Site, gap: ast.stmt, direct: ast.Call, early: str, late: str, **more: str) -> str:
    """``early`` as a statement before ``gap``; ``late`` for the construction where it stands."""
    edits = [_line(site, gap, early), (*site.module.span(direct), late)]
    return site.module.edited(edits, **more)


def _partial(site: Site, gap: ast.stmt, direct: ast.Call) -> str:
    name = fresh("make_optimizer", site.module.text)
    func = site.module.source(direct.func)
    params = f"list({_owner(site, direct)}.parameters())"
    early = f"{name} = {MARK}functools.partial({func}, {params}{_options(site, direct)})"
    return _late(site, gap, direct, early, f"{MARK}{name}()", imports="import functools")


def _holder(site: Site, gap: ast.stmt, direct: ast.Call) -> str:
    """A constructor argument: an object that builds its optimizer when it is made."""
    helper = f"""
    class OptimizerHolder:
        def __init__(self, module, **options):
            self.module = module
            self.inner = {MARK}{_type(site, direct)}(module.parameters(), **options)
    """
    early = f"holder = {MARK}OptimizerHolder({_owner(site, direct)}{_options(site, direct)})"
    return _late(site, gap, direct, early, "holder.inner", helper=helper)


def _dict(site: Site, gap: ast.stmt, direct: ast.Call) -> str:
    construction = re.sub(r"\s+", " ", site.module.source(direct))
    early = f'training = {{"optimizer": {MARK}{construction}}}'
    return _late(site, gap, direct, early, 'training["optimizer"]')
