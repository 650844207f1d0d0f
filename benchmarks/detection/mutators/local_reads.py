"""sharded-reduction-read-locally: a number of a sharded model is read where its optimizer steps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Module, modules
from benchmarks.detection.mutators.fsdp1_clip import steps
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "sharded-reduction-read-locally"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Statements that read numbers of a model, and a function for the top level of the file."""

    lines: tuple[str, ...]
    helper: str = ""
    imports: str = "import torch"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if not program.units:
        return
    for module in modules(program):
        for step in steps(program, module):
            for variant in random.sample(WRONG, 4) + random.sample(LEGAL, 2):
                text = _inserted(module, step.statement, variant(step.model))
                rule = RULE if variant in WRONG else ""
                kind = variant.__name__.strip("_")
                yield mutant(program, rule, kind, {module.path: text})


def _inserted(module: Module, statement: ast.stmt, numbers: Numbers) -> str:
    start, indent = module.rows(statement)[0], module.indent(statement)
    text = "".join(f"{indent}{line}\n" for line in numbers.lines)
    return module.edited([(start, start, text)], imports=numbers.imports, helper=numbers.helper)


def _norm_loop(model: str) -> Numbers:
    lines = (
        "squares = 0.0",
        f"for p in {model}.parameters():",
        "    if p.grad is not None:",
        f"        squares += {MARK}p.grad.data.norm(2).item() ** 2",
        "print(squares**0.5)",
    )
    return Numbers(lines)


def _norm_listed(model: str) -> Numbers:
    norms = f"[{MARK}torch.norm(p.grad).item() for p in {model}.parameters() if p.grad is not None]"
    return Numbers((f"print(max({norms}))",))


def _named(model: str) -> Numbers:
    lines = (
        f"for name, weight in {model}.named_parameters():",
        "    if weight.grad is None:",
        "        continue",
        f"    print(name, {MARK}float(weight.detach().abs().mean()))",
    )
    return Numbers(lines)


def _nan_guard(model: str) -> Numbers:
    lines = (
        f"for p in {model}.parameters():",
        f"    if p.grad is not None and {MARK}torch.isnan(p.grad).any():",
        "        p.grad.zero_()",
    )
    return Numbers(lines)


def _nan_any(model: str) -> Numbers:
    return Numbers((f"print(any({MARK}torch.isnan(p).any() for p in {model}.parameters()))",))


def _sum_of_sums(model: str) -> Numbers:
    lines = (
        f"squares = sum((p**2).sum() for p in {model}.parameters())",
        f"print({MARK}squares.item())",
    )
    return Numbers(lines)


def _accumulated(model: str) -> Numbers:
    lines = (
        "zeros = 0",
        f"for p in {model}.parameters():",
        "    zeros = zeros + (p == 0).sum()",
        f"print({MARK}int(zeros))",
    )
    return Numbers(lines)


def _largest(model: str) -> Numbers:
    lines = (
        f"grads = [p.grad for p in {model}.parameters() if p.grad is not None]",
        f"print({MARK}torch.stack([g.abs().max() for g in grads]).max().item())",
    )
    return Numbers(lines)


def _helper(model: str) -> Numbers:
    helper = f"""
    def gradient_norms(module):
        found = {{}}
        for name, p in module.named_parameters():
            if p.grad is not None:
                norm = torch.linalg.vector_norm(p.grad)
                found[name] = {MARK}norm.item()
        return found
    """
    return Numbers((f"print(gradient_norms({model}))",), helper)


def _maximum_norm(model: str) -> Numbers:
    lines = (
        f"largest = torch.nn.utils.clip_grad_norm_({model}.parameters(), 9.0, float('inf'))",
        f"print('%.3f' % {MARK}largest)",
    )
    return Numbers(lines)


def _state(model: str) -> Numbers:
    lines = (
        f"for name, value in {model}.state_dict().items():",
        f"    print(name, {MARK}value.float().norm().item())",
    )
    return Numbers(lines)


def _gathered(model: str) -> Numbers:
    lines = (
        f"for p in {model}.parameters():",
        "    if p.grad is not None:",
        "        print(p.grad.norm().full_tensor().item(), p.grad.full_tensor().sum().item())",
    )
    return Numbers(lines)


def _squared(model: str) -> Numbers:
    norms = f"p.grad.norm() ** 2 for p in {model}.parameters() if p.grad is not None"
    return Numbers((f"print((sum({norms}) ** 0.5).item())",))


def _combined(model: str) -> Numbers:
    lines = (
        "squares = 0.0",
        f"for p in {model}.parameters():",
        "    if p.grad is not None:",
        "        squares += p.grad.norm().item() ** 2",
        "squares = torch.tensor([squares])",
        "torch.distributed.all_reduce(squares)",
        "print(squares.sqrt().item())",
    )
    return Numbers(lines, imports="import torch\nimport torch.distributed")


def _clipped(model: str) -> Numbers:
    clip = f"torch.nn.utils.clip_grad_norm_({model}.parameters(), 9.0)"
    return Numbers((f"print({clip}.item())",))


def _own_shard(model: str) -> Numbers:
    lines = (
        f"for p in {model}.parameters():",
        '    local = p.to_local() if hasattr(p, "to_local") else p',
        "    print(local.norm().item())",
    )
    return Numbers(lines)


def _asked_first(model: str) -> Numbers:
    lines = (
        f"for p in {model}.parameters():",
        "    if isinstance(p, torch.distributed.tensor.DTensor):",
        "        whole = p.full_tensor()",
        "    else:",
        "        whole = p",
        "    print(whole.abs().max().item())",
    )
    return Numbers(lines, imports="import torch\nimport torch.distributed.tensor")


Variant = Callable[[str], Numbers]
WRONG: list[Variant] = [
    _norm_loop,
    _norm_listed,
    _named,
    _nan_guard,
    _nan_any,
    _sum_of_sums,
    _accumulated,
    _largest,
    _helper,
    _maximum_norm,
    _state,
]
LEGAL: list[Variant] = [_gathered, _squared, _combined, _clipped, _own_shard, _asked_first]
