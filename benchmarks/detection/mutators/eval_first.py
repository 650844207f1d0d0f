"""root-unsharded-after-eval: a forward without a backward before the shards are taken or set."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Module, fresh, indented, modules
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "root-unsharded-after-eval"


@dataclass(frozen=True, slots=True)
class Site:
    """An optimizer's construction.

    Attributes:
        build: the call that takes the parameters.
        model: the expression of the root.
    """

    module: Module
    build: ast.Call
    model: str


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if not program.units or program.optimizer_first:
        return
    for site in (site for m in modules(program) for site in sites(program, m)):
        assigned = isinstance(site.module.statement(site.build), ast.Assign)
        later = LATER if assigned else []
        for variant in (*random.sample(VARIANTS, 5), *later):
            kind = variant.__name__.strip("_")
            yield mutant(program, RULE, kind, {site.module.path: variant(site)})
        for variant in (*random.sample(LEGAL, 2), *(LEGAL_LATER if assigned else [])):
            kind = f"legal: {variant.__name__.strip('_')}"
            yield mutant(program, "", kind, {site.module.path: variant(site)})


def sites(program: Program, module: Module) -> Iterator[Site]:
    for call in module.calls():
        taken = [arg.func for arg in call.args[:1] if isinstance(arg, ast.Call)]
        if not taken or not _optimizes(call) or program.plain & set(module.functions(call)):
            continue
        whole = isinstance(module.statement(call), (ast.Assign, ast.Return))
        method = taken[0]
        if whole and isinstance(method, ast.Attribute) and method.attr == "parameters":
            yield Site(module, call, module.source(method.value))


def _optimizes(call: ast.Call) -> bool:
    return any(keyword.arg == "lr" for keyword in call.keywords)


def _inserted(site: Site, lines: str, helper: str = "", *, wrong: bool = True) -> str:
    """``lines`` before the statement that builds the optimizer, which is then wrong."""
    statement = site.module.statement(site.build)
    start, _ = site.module.rows(statement)
    indent = site.module.indent(statement)
    mark = site.module.span(site.build)[0]
    edits = [(start, start, indented(lines.rstrip() + "\n", indent))]
    if wrong:
        edits.append((mark, mark, MARK))
    return site.module.edited(edits, imports="import torch", helper=helper)


def _input(site: Site) -> str:
    return f"{site.model}(torch.ones(2, 8))"


def _no_grad(site: Site) -> str:
    return _inserted(site, f"with torch.no_grad():\n    loss_before = {_input(site)}.mean()")


def _in_loop(site: Site) -> str:
    lines = f"with torch.no_grad():\n    for _ in range(2):\n        outputs = {_input(site)}"
    return _inserted(site, lines)


def _warm_up(site: Site) -> str:
    return _inserted(site, _input(site))


def _decorated_helper(site: Site) -> str:
    name = fresh("evaluate", site.module.text)
    helper = f"""
    @torch.no_grad()
    def {name}(module, batch):
        module.eval()
        loss = module(batch).mean()
        module.train()
        return loss
    """
    return _inserted(site, f"print({name}({site.model}, torch.ones(2, 8)))", helper)


def _helper_in_context(site: Site) -> str:
    name = fresh("validate", site.module.text)
    helper = f"""
    def {name}(module, batches):
        return [module(batch).mean() for batch in batches]
    """
    lines = f"with torch.no_grad():\n    print({name}({site.model}, [torch.ones(2, 8)]))"
    return _inserted(site, lines, helper)


def _unsharded(site: Site) -> str:
    return _inserted(site, f"{site.model}.unshard()")


def _after(site: Site, lines: str, imports: str = "") -> str:
    """``lines`` after the statement that builds the optimizer, with their own marks."""
    statement = site.module.statement(site.build)
    _, end = site.module.rows(statement)
    edits = [(end, end, indented(lines.rstrip() + "\n", site.module.indent(statement)))]
    return site.module.edited(edits, imports="\n".join(filter(None, ("import torch", imports))))


def _frozen(site: Site) -> str:
    evaluated = f"with torch.no_grad():\n    {_input(site)}"
    return _after(site, f"{evaluated}\n{MARK}{site.model}.requires_grad_(False)")


def _loaded(site: Site) -> str:
    lines = f"""kept = {{"model": {site.model}.state_dict()}}
with torch.no_grad():
    {_input(site)}
{MARK}dcp.load(kept, checkpoint_id="checkpoint")"""
    return _after(site, lines, "import torch.distributed.checkpoint as dcp")


def _stepped(site: Site) -> str:
    statement = site.module.statement(site.build)
    assert isinstance(statement, ast.Assign)
    optimizer = site.module.source(statement.targets[0])
    lines = f"""for number in range(10):
    {_input(site)}.mean().backward()
    if number % 5 == 0:
        with torch.no_grad():
            print({_input(site)}.mean())
    {MARK}{optimizer}.step()
    {optimizer}.zero_grad()"""
    return _after(site, lines)


def _evaluated_after_step(site: Site) -> str:
    statement = site.module.statement(site.build)
    assert isinstance(statement, ast.Assign)
    optimizer = site.module.source(statement.targets[0])
    lines = f"""for number in range(10):
    {_input(site)}.mean().backward()
    {optimizer}.step()
    with torch.no_grad():
        print({_input(site)}.mean())
{site.model}.reshard()"""
    return _after(site, lines)


def _trained_again(site: Site) -> str:
    lines = f"with torch.no_grad():\n    {_input(site)}\n{site.model}.requires_grad_(True)"
    return _after(site, lines + f"\n{site.model}.reshard()")


def _resharded(site: Site) -> str:
    lines = f"with torch.no_grad():\n    {_input(site)}\n{site.model}.reshard()"
    return _inserted(site, lines, wrong=False)


def _trained(site: Site) -> str:
    return _inserted(site, f"{_input(site)}.mean().backward()", wrong=False)


def _read(site: Site) -> str:
    lines = f"with torch.no_grad():\n    {_input(site)}\nprint(len({site.model}.state_dict()))"
    return _inserted(site, lines, wrong=False)


VARIANTS: list[Callable[[Site], str]] = [
    _no_grad,
    _in_loop,
    _warm_up,
    _decorated_helper,
    _helper_in_context,
    _unsharded,
]
LEGAL: list[Callable[[Site], str]] = [_resharded, _trained, _read]
LATER: list[Callable[[Site], str]] = [_frozen, _loaded, _stepped]
LEGAL_LATER: list[Callable[[Site], str]] = [_evaluated_after_step, _trained_again]
