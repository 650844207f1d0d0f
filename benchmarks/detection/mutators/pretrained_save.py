"""save-without-gathered-state: a Hugging Face model saved by itself once it is sharded."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import indented, modules, name_of
from benchmarks.detection.mutators.materialized import models
from benchmarks.detection.mutators.only_root import WRAPPERS
from benchmarks.detection.mutators.rank_init import first_sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "save-without-gathered-state"
IMPORTS = (
    "import torch.distributed\n"
    "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n"
    "from transformers import AutoModelForCausalLM, AutoTokenizer"
)
FIRST = "if torch.distributed.get_rank() == 0:"
WHOLE = "get_model_state_dict({}, options=StateDictOptions(full_state_dict=True, cpu_offload=True))"


@dataclass(frozen=True, slots=True)
class Save:
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
            fsdp1 = name_of(root) in WRAPPERS
            bound = statement.targets[0] if isinstance(statement, ast.Assign) else root.args[0]
            wrong = [*WRONG_FSDP1, *WRONG] if fsdp1 else [*WRONG_FSDP2, *WRONG]
            legal = LEGAL if fsdp1 else [*LEGAL_FSDP2, *LEGAL]
            for variant in random.sample(wrong, 4) + random.sample(legal, 3):
                save = variant(ast.unparse(bound))
                first = first_sharding(module, root)
                load = f'{module.source(root.args[0])} = AutoModelForCausalLM.from_pretrained("a")'
                start, end = module.rows(first)[0], module.rows(statement)[1]
                below = "".join(f"{line}\n" for line in save.lines)
                edits = [
                    (start, start, indented(f"{load}\n", module.indent(first))),
                    (end, end, indented(below, module.indent(statement))),
                ]
                text = module.edited(edits, imports=IMPORTS, helper=save.helper)
                rule = "" if variant in legal else RULE
                yield mutant(program, rule, variant.__name__.strip("_"), {module.path: text})


def _by_rank_0(model: str) -> Save:
    return Save((FIRST, f'    {MARK}{model}.save_pretrained("out")'))


def _by_name(model: str) -> Save:
    lines = (
        "is_main = torch.distributed.get_rank() == 0",
        "if is_main:",
        f'    {MARK}{model}.save_pretrained("out", max_shard_size="2GB")',
    )
    return Save(lines)


def _by_helper(model: str) -> Save:
    helper = f"""
    def export_weights(network, folder):
        if torch.distributed.get_rank() != 0:
            return
        {MARK}network.save_pretrained(folder, safe_serialization=True)
    """
    return Save((f'export_weights({model}, "out")',), helper)


def _by_guarded_helper(model: str) -> Save:
    helper = f"""
    def export_weights(network):
        {MARK}network.save_pretrained("out", state_dict=None)
    """
    return Save((FIRST, f"    export_weights({model})"), helper)


def _wrapper(model: str) -> Save:
    return Save((f'{MARK}{model}.save_pretrained("out")',))


def _inner(model: str) -> Save:
    return Save((FIRST, f'    {MARK}{model}.module.save_pretrained("out")'))


def _inner_by_helper(model: str) -> Save:
    helper = f"""
    def export_weights(network):
        {MARK}network.module.save_pretrained("out")
    """
    return Save((f"export_weights({model})",), helper)


def _accelerated(_model: str) -> Save:
    lines = (
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1))",
        'judge = accelerator.prepare(AutoModelForCausalLM.from_pretrained("judge"))',
        f'{MARK}accelerator.unwrap_model(judge).save_pretrained("judge")',
    )
    return Save(lines)


def _accelerated_by_rank_0(_model: str) -> Save:
    lines = (
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())",
        'judge = accelerator.prepare_model(AutoModelForCausalLM.from_pretrained("judge"))',
        "plain = accelerator.unwrap_model(judge)",
        "if accelerator.is_main_process:",
        f'    {MARK}plain.save_pretrained("judge")',
    )
    return Save(lines)


def _given_the_state(model: str) -> Save:
    lines = (
        f"whole = {WHOLE.format(model)}",
        FIRST,
        f'    {model}.save_pretrained("out", state_dict=whole)',
    )
    return Save(lines)


def _tokenizer(_model: str) -> Save:
    lines = (FIRST, '    AutoTokenizer.from_pretrained("a").save_pretrained("out")')
    return Save(lines)


def _another_model(_model: str) -> Save:
    lines = (FIRST, '    AutoModelForCausalLM.from_pretrained("judge").save_pretrained("out")')
    return Save(lines)


def _by_accelerate(_model: str) -> Save:
    lines = (
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1))",
        'judge = accelerator.prepare(AutoModelForCausalLM.from_pretrained("judge"))',
        "accelerator.unwrap_model(judge).save_pretrained(",
        '    "judge",',
        "    is_main_process=accelerator.is_main_process,",
        "    state_dict=accelerator.get_state_dict(judge),",
        ")",
    )
    return Save(lines)


def _settings_unknown(_model: str) -> Save:
    lines = (
        "accelerator = Accelerator()",
        'judge = accelerator.prepare(AutoModelForCausalLM.from_pretrained("judge"))',
        "if accelerator.is_main_process:",
        '    accelerator.unwrap_model(judge).save_pretrained("judge")',
    )
    return Save(lines)


def _by_all_ranks(model: str) -> Save:
    return Save((f'{model}.save_pretrained("out")',))


Variant = Callable[[str], Save]
WRONG_FSDP2: list[Variant] = [_by_rank_0, _by_name, _by_helper, _by_guarded_helper]
WRONG_FSDP1: list[Variant] = [_wrapper, _inner, _inner_by_helper]
WRONG: list[Variant] = [_accelerated, _accelerated_by_rank_0]
LEGAL_FSDP2: list[Variant] = [_by_all_ranks]
LEGAL: list[Variant] = [
    _given_the_state,
    _tokenizer,
    _another_model,
    _by_accelerate,
    _settings_unknown,
]
