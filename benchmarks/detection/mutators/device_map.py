"""device-map-auto: the model loaded over all GPUs of the node, right before it is sharded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import indented, modules
from benchmarks.detection.mutators.materialized import models
from benchmarks.detection.mutators.rank_init import first_sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "device-map-auto"
IMPORTS = "import os\n\nimport transformers\nfrom transformers import AutoModelForCausalLM"
AUTO = "AutoModelForCausalLM.from_pretrained"


@dataclass(frozen=True, slots=True)
class Load:
    """Statements before the sharding, and a function for the top level of the file."""

    lines: tuple[str, ...]
    helper: str = ""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if program.roots:
        return  # one function shards several models
    for module in modules(program):
        for root in models(program, module):
            first = first_sharding(module, root)
            start, indent = module.rows(first)[0], module.indent(first)
            for variant in random.sample(WRONG, 4) + random.sample(LEGAL, 3):
                load = variant(module.source(root.args[0]))
                lines = "".join(f"{line}\n" for line in load.lines)
                text = module.edited(
                    [(start, start, indented(lines, indent))], imports=IMPORTS, helper=load.helper
                )
                rule = RULE if variant in WRONG else ""
                yield mutant(program, rule, variant.__name__.strip("_"), {module.path: text})


def _auto(model: str) -> Load:
    return Load((f'{model} = {MARK}{AUTO}("gpt2", device_map="auto")',))


def _balanced(model: str) -> Load:
    line = f'{model} = {MARK}transformers.LlamaForCausalLM.from_pretrained("llama", '
    return Load((f'{line}device_map="balanced_low_0", low_cpu_mem_usage=True)',))


def _by_name(model: str) -> Load:
    lines = (
        'placement = "sequential"',
        f'{model} = {MARK}{AUTO}(\n    "gpt2",\n    device_map=placement,\n)',
    )
    return Load(lines)


def _by_settings(model: str) -> Load:
    lines = (
        'settings = {"device_map": "auto", "low_cpu_mem_usage": True}',
        f'{model} = {MARK}{AUTO}("gpt2", **settings)',
    )
    return Load(lines)


def _by_helper(model: str) -> Load:
    helper = f"""
    def load_spread(name, device_map="auto"):
        loaded = {MARK}{AUTO}(name, device_map=device_map)
        loaded.config.use_cache = False
        return loaded
    """
    return Load((f'{model} = load_spread("gpt2")',), helper)


def _own_device(model: str) -> Load:
    device = '{"": int(os.environ["LOCAL_RANK"])}'
    return Load((f'{model} = {AUTO}("gpt2", device_map={device})',))


def _on_cpu(model: str) -> Load:
    return Load((f'{model} = {AUTO}("gpt2", device_map="cpu")',))


def _without(model: str) -> Load:
    return Load((f'{model} = {AUTO}("gpt2", device_map=None)',))


def _of_another(_model: str) -> Load:
    lines = (f'judge = {AUTO}("gpt2", device_map="auto").eval()', "print(judge.config)")
    return Load(lines)


def _where_alone(model: str) -> Load:
    lines = (
        'alone = os.environ.get("WORLD_SIZE", "1") == "1"',
        f'{model} = {AUTO}("gpt2", device_map="auto" if alone else None)',
    )
    return Load(lines)


Variant = Callable[[str], Load]
WRONG: list[Variant] = [_auto, _balanced, _by_name, _by_settings, _by_helper]
LEGAL: list[Variant] = [_own_device, _on_cpu, _without, _of_another, _where_alone]
