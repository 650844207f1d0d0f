from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.local_rank_options import UnsetOption, unset_options
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def local_rank_argument(program: Program) -> Iterator[Report]:
    for fact in unset_options(program):
        site = fact.option.site
        used = program.text(fact.use.path, fact.use.node)
        yield Report(
            program.span(site),
            "torchrun passes no such option: the local rank is in the environment, as `LOCAL_RANK`,"
            f" and `{used}` is the default in every process",
            "stays at its default",
            (program.evidence(fact.use, "the same device in every process"),),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: UnsetOption) -> Fix | Declined:
    option = fact.option
    code = fixes.code.Code.of(program.tree(option.site.path))
    if option.is_added:
        return fixes.local_rank_option.default_from_environment(code, option.site.node)
    return fixes.local_rank_option.own_default_from_environment(
        code, option.site.node, option.default
    )
