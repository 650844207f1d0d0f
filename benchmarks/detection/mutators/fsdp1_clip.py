"""clip-grad-util-on-fsdp1: torch's clipping before the step of a model that FSDP1 wraps.

A program of FSDP2 is first made one of FSDP1: the root's sharding becomes a wrapping, those of the
blocks are left to a policy.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from benchmarks.detection.module import Edit, Module, called_names, modules, name_of
from benchmarks.detection.mutators.only_root import WRAPPERS, sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "clip-grad-util-on-fsdp1"
IMPORTS = (
    "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy"
)
POLICY = "auto_wrap_policy=size_based_auto_wrap_policy"


@dataclass(frozen=True, slots=True)
class Step:
    """A statement that steps, with the names there of the optimizer and of its model."""

    statement: ast.stmt
    model: str
    optimizer: str


@dataclass(frozen=True, slots=True)
class Clip:
    """The statements of one way to clip before a step.

    Attributes:
        imports: lines for the top of the file.
        helper: a function for the top level of the file.
        strategy: FSDP1's argument of that name, "" for none.
    """

    lines: tuple[str, ...]
    imports: str = "import torch"
    helper: str = ""
    strategy: str = ""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    for module in everything:
        for step in steps(program, module):
            chosen = random.sample(WRONG, 4) + random.sample(LEGAL, 2)
            for variant in chosen:
                clip = variant(step)
                files = made_fsdp1(program, everything, module, step, clip)
                rule = RULE if variant in WRONG else ""
                if files is not None:
                    yield mutant(program, rule, variant.__name__.strip("_"), files)


def steps(program: Program, module: Module) -> Iterator[Step]:
    """Where an optimizer steps whose model has a name there."""
    for call in module.calls():
        method, statement = call.func, module.statement(call)
        if name_of(call) != "step" or not isinstance(method, ast.Attribute):
            continue
        optimizer = module.source(method.value)
        if "optim" not in optimizer or not isinstance(statement, ast.Expr):
            continue
        model = _model(program, module, statement)
        if model:
            yield Step(statement, model, optimizer)


def _model(program: Program, module: Module, statement: ast.stmt) -> str:
    """The root as the function around ``statement`` calls it; "" if it does not."""
    scope: ast.AST = statement
    while scope in module.parents and not isinstance(scope, ast.FunctionDef):
        scope = module.parents[scope]
    called = {ast.unparse(c.func) for c in ast.walk(scope) if isinstance(c, ast.Call)}
    roots = program.units[:1] or ("model", "fsdp_model")
    wanted = [root for root in roots if {root, f"{root}.forward"} & called]
    return wanted[0] if wanted else ""


def made_fsdp1(
    program: Program, everything: list[Module], module: Module, step: Step, clip: Clip
) -> dict[str, str] | None:
    """The files changed; None if the sharding cannot be made a wrapping."""
    edits = {each.path: _wrapping(program, each, clip.strategy) for each in everything}
    if not any(edits.values()) or any(found is None for found in edits.values()):
        return None
    indent = module.indent(step.statement)
    text = "".join(f"{indent}{line}\n" for line in clip.lines)
    start = module.rows(step.statement)[0]
    changed = {}
    for each in everything:
        own = [*(edits[each.path] or []), *(old_clips(each))]
        here = each is module
        if own or here:
            imports = IMPORTS if edits[each.path] else ""
            imports = "\n".join(filter(None, [imports, clip.imports if here else ""]))
            added: list[Edit] = [(start, start, text)] if here else []
            changed[each.path] = each.edited(
                [*own, *added], imports=imports, helper=clip.helper if here else ""
            )
    return changed


def old_clips(module: Module) -> Iterator[Edit]:
    """The program's own clipping goes."""
    for call in module.calls():
        if name_of(call) == "clip_grad_norm_" and "utils" in module.source(call.func):
            yield (*module.span(call), "torch.zeros(())")


def _wrapping(program: Program, module: Module, strategy: str) -> list[Edit] | None:
    """The edits that make FSDP2's calls FSDP1's; those that are FSDP1's take the strategy."""
    edits: list[Edit] = []
    argument = f", sharding_strategy={strategy}" if strategy else ""
    roots, children = sharding(program, module)
    for root in roots:
        model = module.source(root.args[0])
        statement = module.statement(root)
        wrapped = f"FullyShardedDataParallel({model}, {POLICY}{argument})"
        if isinstance(statement, ast.Expr):
            if is_lost(module, statement, root.args[0]):
                return None
            wrapped = f"{model} = {wrapped}"
        edits.append((*module.span(root), wrapped))
    edits += [(*module.rows(child), "") for child in children]
    for call in module.calls():
        if name_of(call) in WRAPPERS and strategy:
            keywords = [k for k in call.keywords if k.arg != "sharding_strategy"]
            kept = [module.source(a) for a in call.args]
            kept += [f"{k.arg}={module.source(k.value)}" for k in keywords]
            text = f"{module.source(call.func)}({', '.join(kept)}{argument})"
            edits.append((*module.span(call), text))
        elif name_of(call) in WRAPPERS:
            edits.append((*module.span(call), module.source(call)))
    return edits


def is_lost(module: Module, statement: ast.stmt, model: ast.expr) -> bool:
    """Whether a function gets the model and does not return it, so that its caller has the old."""
    function: ast.AST = statement
    while function in module.parents and not isinstance(function, ast.FunctionDef):
        function = module.parents[function]
    if not isinstance(function, ast.FunctionDef) or not isinstance(model, ast.Name):
        return False
    given = model.id in {argument.arg for argument in function.args.args}
    returns = [r for r in ast.walk(function) if isinstance(r, ast.Return) and r.value]
    returned = any(isinstance(r.value, ast.Name) and r.value.id == model.id for r in returns)
    return given and not returned and "backward" not in called_names(function)


def _qualified(step: Step) -> Clip:
    return Clip((f"{MARK}torch.nn.utils.clip_grad_norm_({step.model}.parameters(), 1.0)",))


def _by_name(step: Step) -> Clip:
    line = f"norm = {MARK}clip_grad_norm_({step.model}.parameters(), max_norm=1.0, norm_type=2.0)"
    return Clip((line,), "from torch.nn.utils import clip_grad_norm_")


def _from_module(step: Step) -> Clip:
    line = f"norm = {MARK}nn.utils.clip_grad_norm_({step.model}.parameters(), 0.5).item()"
    return Clip((line,), "from torch import nn")


def _listed(step: Step) -> Clip:
    lines = (
        f"with_gradient = [p for p in {step.model}.parameters() if p.grad is not None]",
        f"{MARK}torch.nn.utils.clip_grad_norm_(with_gradient, 1.0, foreach=False)",
    )
    return Clip(lines)


def _by_groups(step: Step) -> Clip:
    groups = f'p for group in {step.optimizer}.param_groups for p in group["params"]'
    return Clip((f"{MARK}torch.nn.utils.clip_grad_norm_([{groups}], 1.0)",))


def _helper(step: Step) -> Clip:
    helper = f"""
    def clip_gradients(module, limit=1.0):
        return {MARK}torch.nn.utils.clip_grad_norm_(module.parameters(), limit)
    """
    return Clip((f"clip_gradients({step.model})",), helper=helper)


def _wrong_branch(step: Step) -> Clip:
    lines = (
        f"if isinstance({step.model}, FullyShardedDataParallel):",
        f"    {MARK}torch.nn.utils.clip_grad_norm_({step.model}.parameters(), 1.0)",
    )
    return replace(Clip(lines), imports=f"import torch\n{IMPORTS.splitlines()[0]}")


def _measured(step: Step) -> Clip:
    lines = (
        f"gradients = [p.grad for p in {step.model}.parameters() if p.grad is not None]",
        f"norm = {MARK}torch.nn.utils.get_total_norm(gradients)",
        "print(norm.item())",
    )
    return Clip(lines)


def _own_method(step: Step) -> Clip:
    return Clip((f"norm = {step.model}.clip_grad_norm_(1.0)", "print(norm.item())"))


def _not_sharded(step: Step) -> Clip:
    lines = (f"torch.nn.utils.clip_grad_norm_({step.model}.parameters(), 1.0)",)
    strategy = "torch.distributed.fsdp.ShardingStrategy.NO_SHARD"
    return Clip(lines, "import torch\nimport torch.distributed.fsdp", strategy=strategy)


def _asked_first(step: Step) -> Clip:
    lines = (
        f'if hasattr({step.model}, "clip_grad_norm_"):',
        f"    {step.model}.clip_grad_norm_(1.0)",
        "else:",
        f"    torch.nn.utils.clip_grad_norm_({step.model}.parameters(), 1.0)",
    )
    return Clip(lines)


def _by_value(step: Step) -> Clip:
    return Clip((f"torch.nn.utils.clip_grad_value_({step.model}.parameters(), 1.0)",))


Variant = Callable[[Step], Clip]
WRONG: list[Variant] = [
    _qualified,
    _by_name,
    _from_module,
    _listed,
    _by_groups,
    _helper,
    _wrong_branch,
    _measured,
]
LEGAL: list[Variant] = [_own_method, _not_sharded, _asked_first, _by_value]
