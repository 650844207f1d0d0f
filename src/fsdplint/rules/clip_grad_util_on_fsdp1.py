from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.clipping import LocalNorm, local_norms
from fsdplint.engine.must.values import Result, possible
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined, NoFixError
from fsdplint.knowledge.names import FSDP1
from fsdplint.rule import Report


def clip_grad_util_on_fsdp1(program: Program) -> Iterator[Report]:
    for fact in local_norms(program):
        site, call = fact.call.site, fact.call.site.node
        assert isinstance(call, ir.Call)
        shard = fact.shard.site
        wrap, where = program.text(shard.path, fact.shard.call.func), program.where(shard, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call.func)}` takes the norm of this rank's shards of the "
            f"gradients, since `{wrap}` wraps the model {where}: "
            f"{_consequence(fact)}",
            "not the norm of the whole gradient",
            (
                program.evidence(fact.shard.site, "wrapped by FSDP1 here"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _consequence(fact: LocalNorm) -> str:
    if fact.call.name.endswith("get_total_norm"):
        return "each rank gets a number of its own"
    return "each rank scales by a factor of its own"


def _fix(program: Program, fact: LocalNorm) -> Fix | Declined:
    site = fact.call.site
    assert isinstance(site.node, ir.Call)
    if fact.call.name.endswith("get_total_norm"):
        return Declined("an FSDP1 model has no method that measures the norm without clipping")
    if not fact.of_root:
        return Declined("only the root of an FSDP1 model can clip, and only all its gradients")
    if any(program.is_rank_test(guard) for guard in site.guards):
        return Declined("only some ranks come here, and the root's method waits for all")
    code = fixes.code.Code.of(program.tree(site.path))
    return fixes.clip.clip_by_root(code, site.node, partial(_is_wrapped, program, site))


def _is_wrapped(program: Program, site: Site, root: str) -> bool:
    """Whether ``root`` is an FSDP1 model whenever the gradients are clipped.

    Raises:
        NoFixError: it never is.
    """
    at = program.tree(site.path).statement(site.node)
    values = possible(program, site.path, root, at)
    known = [isinstance(each, Result) and each.name == FSDP1 for each in values or ()]
    if known and not any(known):
        raise NoFixError(f"`{root}` is not itself the FSDP1 model")
    return bool(known) and all(known)
