"""inference-mode-forward: an evaluation in inference mode, right after the optimizer is built."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.module import fresh, indented, modules
from benchmarks.detection.mutators.eval_first import Site, sites
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "inference-mode-forward"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if program.optimizer_first:
        return
    for site in (site for m in modules(program) for site in sites(program, m)):
        if not isinstance(site.module.statement(site.build), ast.Assign):
            continue
        for variant in random.sample(VARIANTS, 4):
            kind = variant.__name__.strip("_")
            yield mutant(program, RULE, kind, {site.module.path: variant(site)})
        for variant in random.sample(LEGAL, 2):
            kind = f"legal: {variant.__name__.strip('_')}"
            yield mutant(program, "", kind, {site.module.path: variant(site)})


def _inserted(site: Site, lines: str, helper: str = "") -> str:
    """``lines`` after the statement that builds the optimizer."""
    statement = site.module.statement(site.build)
    _, end = site.module.rows(statement)
    text = indented(lines.rstrip() + "\n", site.module.indent(statement))
    return site.module.edited([(end, end, text)], imports="import torch", helper=helper)


def _input(site: Site) -> str:
    return f"{site.model}(torch.ones(2, 8))"


def _context(site: Site) -> str:
    return _inserted(site, f"with {MARK}torch.inference_mode():\n    print({_input(site)}.mean())")


def _with_mode(site: Site) -> str:
    lines = f"with {MARK}torch.inference_mode(mode=True):\n    outputs = {_input(site)}"
    return _inserted(site, lines)


def _in_loop(site: Site) -> str:
    lines = f"with {MARK}torch.inference_mode():\n    for _ in range(2):\n        {_input(site)}"
    return _inserted(site, lines)


def _decorated_helper(site: Site) -> str:
    name = fresh("evaluate", site.module.text)
    helper = f"""
    @{MARK}torch.inference_mode()
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
    call = f"print({name}({site.model}, [torch.ones(2, 8)]))"
    return _inserted(site, f"with {MARK}torch.inference_mode():\n    {call}", helper)


def _no_grad(site: Site) -> str:
    return _inserted(site, f"with torch.no_grad():\n    print({_input(site)}.mean())")


def _off(site: Site) -> str:
    return _inserted(site, f"with torch.inference_mode(False):\n    print({_input(site)}.mean())")


def _trained(site: Site) -> str:
    train = f"{_input(site)}.mean().backward()"
    return _inserted(site, f"{train}\nwith torch.inference_mode():\n    {_input(site)}")


VARIANTS: list[Callable[[Site], str]] = [
    _context,
    _with_mode,
    _in_loop,
    _decorated_helper,
    _helper_in_context,
]
LEGAL: list[Callable[[Site], str]] = [_no_grad, _off, _trained]
