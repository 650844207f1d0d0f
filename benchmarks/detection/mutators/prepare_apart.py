"""prepare-called-apart: a second model, which accelerate shards, gets its optimizer too late."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import indented, modules
from benchmarks.detection.mutators.materialized import models
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "prepare-called-apart"
IMPORTS = (
    "import torch\n"
    "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
    "from transformers import AutoModelForCausalLM"
)
MODEL = 'judge = AutoModelForCausalLM.from_pretrained("judge")'
OPTIMIZER = "judge_optimizer = torch.optim.AdamW(judge.parameters())"
MODEL_ALONE = f"judge = {MARK}accelerator.prepare(judge)"
OPTIMIZER_ALONE = "judge_optimizer = accelerator.prepare(judge_optimizer)"
TOGETHER = "judge, judge_optimizer = accelerator.prepare(judge, judge_optimizer)"


@dataclass(frozen=True, slots=True)
class Preparation:
    """Statements below the sharding, and a function for the top level of the file."""

    lines: tuple[str, ...]
    helper: str = ""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if program.roots:
        return  # one function shards several models
    for module in modules(program):
        for root in models(program, module):
            statement = module.statement(root)
            if not isinstance(statement, (ast.Expr, ast.Assign)):
                continue
            for variant in random.sample(WRONG, 4) + random.sample(LEGAL, 3):
                made = variant()
                end = module.rows(statement)[1]
                below = "".join(f"{line}\n" for line in made.lines)
                edits = [(end, end, indented(below, module.indent(statement)))]
                text = module.edited(edits, imports=IMPORTS, helper=made.helper)
                rule = RULE if variant in WRONG else ""
                yield mutant(program, rule, variant.__name__.strip("_"), {module.path: text})


def _accelerator(arguments: str) -> str:
    return f"accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin({arguments}))"


def _model_first() -> Preparation:
    made = _accelerator("fsdp_version=2")
    return Preparation((made, MODEL, MODEL_ALONE, OPTIMIZER, OPTIMIZER_ALONE))


def _optimizer_before() -> Preparation:
    made = _accelerator("fsdp_version=2, cpu_ram_efficient_loading=True")
    return Preparation((made, MODEL, OPTIMIZER, MODEL_ALONE, OPTIMIZER_ALONE))


def _optimizer_first() -> Preparation:
    made = _accelerator("fsdp_version=2")
    alone = f"judge_optimizer = {MARK}accelerator.prepare(judge_optimizer)"
    return Preparation((made, MODEL, OPTIMIZER, alone, MODEL_ALONE.replace(MARK, "")))


def _to_evaluate() -> Preparation:
    return Preparation((_accelerator("fsdp_version=2"), MODEL, MODEL_ALONE, "judge.eval()"))


def _by_helper() -> Preparation:
    helper = f"""
    def prepared(network, version):
        plugin = FullyShardedDataParallelPlugin(fsdp_version=version)
        accelerator = Accelerator(fsdp_plugin=plugin)
        return {MARK}accelerator.prepare(network)
    """
    return Preparation((MODEL, "judge = prepared(judge, 2)"), helper)


def _flattened() -> Preparation:
    made = _accelerator("fsdp_version=1, use_orig_params=False")
    return Preparation((made, MODEL, OPTIMIZER, MODEL_ALONE, OPTIMIZER_ALONE))


def _together() -> Preparation:
    return Preparation((_accelerator("fsdp_version=2"), MODEL, OPTIMIZER, TOGETHER))


def _original_parameters() -> Preparation:
    made = _accelerator("fsdp_version=1, use_orig_params=True")
    alone = MODEL_ALONE.replace(MARK, "")
    return Preparation((made, MODEL, OPTIMIZER, alone, OPTIMIZER_ALONE))


def _built_after() -> Preparation:
    made = _accelerator("fsdp_version=1, use_orig_params=False")
    alone = MODEL_ALONE.replace(MARK, "")
    return Preparation((made, MODEL, alone, OPTIMIZER, OPTIMIZER_ALONE))


def _settings_elsewhere() -> Preparation:
    alone = MODEL_ALONE.replace(MARK, "")
    return Preparation(("accelerator = Accelerator()", MODEL, alone, OPTIMIZER, OPTIMIZER_ALONE))


def _loader_alone() -> Preparation:
    loader = "numbers = accelerator.prepare(torch.utils.data.DataLoader(range(8)))"
    return Preparation((_accelerator("fsdp_version=2"), MODEL, loader, OPTIMIZER, TOGETHER))


Variant = Callable[[], Preparation]
WRONG: list[Variant] = [
    _model_first,
    _optimizer_before,
    _optimizer_first,
    _to_evaluate,
    _by_helper,
    _flattened,
]
LEGAL: list[Variant] = [
    _together,
    _original_parameters,
    _built_after,
    _settings_elsewhere,
    _loader_alone,
]
