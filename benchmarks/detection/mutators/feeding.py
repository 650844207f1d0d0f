"""What training loops are fed with: the same data on all ranks, the same order, own seeds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, indented, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant

SHARED = "same-data-on-every-rank"
EPOCH = "epoch-not-set"
SEED = "sampler-seed-differs-by-rank"
SPLIT = "split-differs-by-rank"
IMPORTS = "from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split"
DATASET = """
class Samples(Dataset):
    def __init__(self, path):
        self.rows = torch.load(path)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
"""
# A loader as it is made, with what has to stand above it.
LOADERS = {
    "in order": ("DataLoader(samples, batch_size=4)", ""),
    "shuffled alike": ("DataLoader(dataset=samples, shuffle=True)", "torch.manual_seed(11)\n"),
    "no sampler": ("DataLoader(samples, 4, sampler=None, drop_last=True)", ""),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        yield from _untold(program, module)
        if "parallelize_module" in module.text or "replicate" in module.text:
            continue  # ranks along one dimension of a mesh may need the same data
        for loop in _loops(module):
            yield from _shared(program, module, loop, random)
            yield from _sampled(program, module, loop)
            yield from _seeded(program, module, loop)
            yield from _split(program, module, loop)


def _untold(program: Program, module: Module) -> Iterator[Mutant]:
    """The program's own loader, and nobody calls `set_epoch` any more."""
    if "DistributedSampler(" not in module.text:
        return
    start = module.text.index("DistributedSampler(")
    calls = [call for call in module.calls() if name_of(call) == "set_epoch"]
    gone = [(*module.rows(module.statement(call)), "") for call in calls]
    text = module.edited([*gone, (start, start, MARK)])
    yield mutant(program, EPOCH, "set_epoch dropped", {module.path: text})


def _shared(
    program: Program, module: Module, loop: ast.For | ast.While, random: Random
) -> Iterator[Mutant]:
    for kind in random.sample(sorted(LOADERS), 2):
        made, before = LOADERS[kind]
        text = _rewritten(module, loop, f"{before}loader = {MARK}{made}", "loader", epochs=False)
        yield mutant(program, SHARED, f"{kind}, line {loop.lineno}", {module.path: text})


def _sampled(program: Program, module: Module, loop: ast.For | ast.While) -> Iterator[Mutant]:
    for fed, epochs in (("loader", True), ("tqdm(loader)", True), ("loader", False)):
        mark = MARK if epochs else ""
        divided = f"loader = DataLoader(samples, sampler={mark}DistributedSampler(samples))"
        text = _rewritten(module, loop, divided, fed, epochs=epochs)
        kind = f"{fed} in {'several epochs' if epochs else 'one epoch'}, line {loop.lineno}"
        yield mutant(program, EPOCH if epochs else "", kind, {module.path: text})


def _seeded(program: Program, module: Module, loop: ast.For | ast.While) -> Iterator[Mutant]:
    rank = "torch.distributed.get_rank()"
    for kind, seed in (("rank", rank), ("sum", f"7 + {rank}"), ("plain", "7")):
        mark = MARK * (kind != "plain")
        made = (
            f"loader = DataLoader(samples, sampler=DistributedSampler(samples, seed={mark}{seed}))"
        )
        text = _rewritten(module, loop, made, "loader", epochs=False)
        rule = SEED * bool(mark)
        yield mutant(program, rule, f"{kind}, line {loop.lineno}", {module.path: text})


def _split(program: Program, module: Module, loop: ast.For | ast.While) -> Iterator[Mutant]:
    by_rank = "torch.manual_seed(7 + torch.distributed.get_rank())"
    for kind, seed, generator in (
        ("rank", by_rank, ""),
        ("no generator", by_rank, ", generator=None"),
        ("seeded", "torch.manual_seed(7)", ""),
        ("generator", by_rank, ", generator=torch.Generator().manual_seed(7)"),
    ):
        wrong = kind in ("rank", "no generator")
        made = (
            f"{seed}\n"
            f"part, rest = {MARK * wrong}random_split(samples, [0.9, 0.1]{generator})\n"
            "loader = DataLoader(part, sampler=DistributedSampler(part))"
        )
        text = _rewritten(module, loop, made, "loader", epochs=False)
        yield mutant(program, SPLIT * wrong, f"{kind}, line {loop.lineno}", {module.path: text})


def _loops(module: Module) -> Iterator[ast.For | ast.While]:
    """`for i in range(n):` and `while …:` around random inputs that have a name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.While) and any(_drawn(node)):
            yield node
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            counts = isinstance(node.iter, ast.Call) and name_of(node.iter) == "range"
            if counts and any(_drawn(node)):
                yield node


def _drawn(loop: ast.For | ast.While) -> Iterator[ast.Assign]:
    for statement in loop.body:
        value = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(value, ast.Call) and ast.unparse(value).startswith("torch.rand"):
            assert isinstance(statement, ast.Assign)
            yield statement


def _rewritten(
    module: Module, loop: ast.For | ast.While, made: str, fed: str, *, epochs: bool
) -> str:
    """The loop over the batches of a loader that is made above it."""
    start, end = module.rows(loop)
    begin = module.span(loop)[0]
    head = loop.iter if isinstance(loop, ast.For) else loop.test
    colon = module.text.index(":", module.span(head)[1]) + 1
    edits: list[Edit] = [(*module.span(each.value), "sample") for each in _drawn(loop)]
    edits.append((begin, colon, f"for {_target(loop)} in enumerate({fed}):"))
    grown = sum(len(new) - (stop - first) for first, stop, new in edits)
    inner = module.edited(edits)[start : end + grown]
    indent = module.indent(loop)
    if epochs:
        inner = f"{indent}for epoch in range(3):\n" + indented(inner, "    ")
    before = indented(f'samples = Samples("samples.pt")\n{made}\n', indent)
    imports = IMPORTS + ("\nfrom tqdm import tqdm" if "tqdm" in fed else "")
    return module.edited([(start, end, before + inner)], imports=imports, helper=DATASET)


def _target(loop: ast.For | ast.While) -> str:
    counter = (
        loop.target.id if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else "_"
    )
    return f"{counter}, sample"
