"""rank-dependent-init: ranks draw or load different weights, of which sharding makes a mix."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, indented, modules, name_of
from benchmarks.detection.mutators.materialized import models
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "rank-dependent-init"
RANKS = ("torch.distributed.get_rank()", 'int(os.environ["RANK"])')


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if any("to_empty" in text or "dcp.load" in text for text in program.files.values()):
        return  # the weights come from elsewhere
    for module in modules(program):
        for kind, text in [*_seeds(module, random), *_loads(program, module)]:
            yield mutant(program, RULE, kind, {module.path: text})


def _seeds(module: Module, random: Random) -> Iterator[tuple[str, str]]:
    """The seed that the weights are drawn by, made another on each rank."""
    for call in module.calls():
        if ast.unparse(call.func) != "torch.manual_seed" or "rank" in module.source(call):
            continue
        if "parallelize_module" in module.text:
            continue  # which spreads the weights of rank 0 over its group
        start, end = module.span(call)
        seed, rank = module.source(call.args[0]), random.choice(RANKS)
        sum_ = random.choice([f"{seed} + {rank}", f"{rank} + {seed}", f"{seed} + 1000 * {rank}"])
        edits = [(start, end, f"{MARK}torch.manual_seed({sum_})")]
        yield f"seed {sum_}", module.edited(edits, imports="import os")
        helper = f"""
        def seed_everything(seed):
            random.seed(seed)
            {MARK}torch.manual_seed(seed)
        """
        edits = [(start, end, f"{MARK}seed_everything({seed} + {rank})")]
        text = module.edited(edits, imports="import os\nimport random", helper=helper)
        yield "seed by a helper", text
        return


def _loads(program: Program, module: Module) -> Iterator[tuple[str, str]]:
    """Rank 0 alone starts from a file, right before the model is sharded."""
    for root in models(program, module):
        model = module.source(root.args[0])
        first = first_sharding(module, root)
        line = f'    {MARK}{model}.load_state_dict(torch.load("start.pt"))\n'
        lines = f"if torch.distributed.get_rank() == 0:\n{line}"
        start = module.rows(first)[0]
        text = module.edited([(start, start, indented(lines, module.indent(first)))])
        yield f"loaded on rank 0, {model}", text


def first_sharding(module: Module, root: ast.Call) -> ast.stmt:
    """The first statement that shards anything in the block where ``root`` stands."""
    statement = module.statement(root)
    block = module.block(statement).statements
    shards = {name_of(root), "fully_shard"}
    return next(
        each
        for each in block
        if each is statement
        or (
            isinstance(each, ast.For)
            and any(isinstance(n, ast.Call) and name_of(n) in shards for n in ast.walk(each))
        )
    )
