"""Random numbers that nothing seeds, of which each rank would draw its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.training_loops import trainings
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.data import SPLITS
from fsdplint.knowledge.initialisation import SEEDS
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.knowledge.tensors import SEEDED
from fsdplint.migrate.single.rank_zero import start
from fsdplint.migrate.step import Change, Context, Found, Question, attempt

_ALIKE, _OWN = "alike", "own"
# How to read and set the state of a generator, by what its functions begin with.
_STATES = {
    "random.": ("random", "random", "getstate", "setstate"),
    "numpy.random.": ("numpy", "np", "random.get_state", "random.set_state"),
}
# A class with one of these draws for each sample, or for each forward.
_OF_SAMPLES = frozenset({"__getitem__", "__call__", "__iter__", "forward"})


def random_states(context: Context) -> Iterator[Found]:
    """Yield a change that has all ranks begin with the random numbers of rank 0.

    Otherwise a split of the data by them differs between ranks, so that one rank trains on what
    another one evaluates on.
    """
    found = start(context)
    if found is None or _sets_state(found[0]):
        return
    code, init = found
    drawn = sorted(set(_drawn(context)))
    if drawn:
        yield from attempt(code, init, partial(_begun_alike, context, code, init, drawn))


def _sets_state(code: Code) -> bool:
    return any(set_state in code.text for _, _, _, set_state in _STATES.values())


def _drawn(context: Context) -> Iterator[str]:
    """Yield what the functions begin with that draw random numbers nothing seeds."""
    calls = [
        (code, node, context.name(code, node.func))
        for code in context.codes("random", "sklearn")
        for node in ir.walk(code.module)
        if isinstance(node, ir.Call)
    ]
    called = {name for _, _, name in calls}
    if any(not name.startswith("torch.") for name in called & SEEDS):
        return
    for code, node, name in calls:
        numpy = name in SPLITS and argument_of(node, 99, "random_state") is None
        prefix = next((p for p in SEEDED if name.startswith(p)), "numpy.random." if numpy else "")
        makes = name.rpartition(".")[2][:1].isupper() or name.endswith("default_rng")
        if prefix and SEEDED[prefix] not in called and not makes and not _is_of_samples(code, node):
            yield prefix


def _is_of_samples(code: Code, node: ir.Node) -> bool:
    classes = (each for each in code.ancestors(node) if isinstance(each, ir.ClassDef))
    defined = (e.function.name for c in classes for e in c.body if isinstance(e, ir.FunctionDef))
    return not _OF_SAMPLES.isdisjoint(defined)


def _begun_alike(context: Context, code: Code, init: ir.Call, drawn: list[str]) -> Change | None:
    used = " and ".join(f"`{prefix.removesuffix('.')}`" for prefix in drawn)
    span = code.span(init)
    text = (
        f"nothing seeds {used}: have all ranks begin with the numbers of rank 0, so that they "
        "split data alike, or leave each rank its own, so that it draws other batches?"
    )
    question = Question(span, "random-numbers", text, (_ALIKE, _OWN))
    program = context.program
    divided = any(True for trace in program.traces for _ in trainings(program, trace))
    if not divided and context.decided(question) == _OWN:
        return None
    imports, states = Imports(code, init), fresh(code, init, "states")
    dist = imports.module(DISTRIBUTED, "dist")
    named = [
        (imports.module(module, alias), get, put)
        for module, alias, get, put in map(_STATES.__getitem__, drawn)
    ]
    lines = [
        f"{states} = [{', '.join(f'{name}.{get}()' for name, get, _ in named)}]",
        f"{dist}.broadcast_object_list({states}, src=0)",
        *(f"{name}.{put}({states}[{place}])" for place, (name, _, put) in enumerate(named)),
    ]
    statement = code.statement(init)
    indent = code.indentation(statement)
    added = "".join(f"{indent}{line}{code.newline}" for line in lines)
    edit = code.insert_lines(code.after(statement), added)
    what = f"have all ranks begin with the random numbers of rank 0, since nothing seeds {used}"
    return Change(span, what, (edit,), (imports,))
