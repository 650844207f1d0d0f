"""The local rank is passed as the global rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.devices import is_for_one_node
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Value, may_be, must_be
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.local_rank import use_rank
from fsdplint.knowledge.launch import GLOBAL_RANKS, INIT
from fsdplint.knowledge.ranks import VARIABLES, Role
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD113",
    summary="the local rank is passed as the global rank",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)


@dataclass(frozen=True, slots=True)
class LocalRank:
    """A process group with the size of all nodes and ranks that are counted per node.

    Attributes:
        site: the expression for the rank.
        variable: the environment variable with the global rank.
    """

    init: Call
    site: Site
    variable: str


def local_ranks(program: Program) -> Iterator[LocalRank]:
    """Yield process groups that surely get a local rank and the number of all ranks."""
    for trace in program.traces:
        for init in trace.calls(INIT):
            fact = _local_rank(program, trace, init)
            if fact is not None:
                yield fact


def _local_rank(program: Program, trace: Trace, init: Call) -> LocalRank | None:
    # A default for a missing variable is for runs without a launcher.
    options = may_be(init.arguments.get(4, "rank"))
    ranks = [option for option in options if not isinstance(option, Const)]
    written = argument(init.site.node, 4, "rank")
    rank = ranks[0] if len(ranks) == 1 else None
    if not isinstance(rank, Object) or rank.role is not Role.NUMBER or written is None:
        return None
    variable = GLOBAL_RANKS.get(rank.rank_source)
    if variable is None or init.arguments.open or not _is_of_all(init):
        return None
    site = init.site._replace(node=written.value)
    return None if is_for_one_node(program, trace, site) else LocalRank(init, site, variable)


def _is_of_all(init: Call) -> bool:
    """True if the size of the group is the number of ranks on all nodes."""
    size = must_be(init.arguments.get(3, "world_size"))
    if isinstance(size, Object):
        return size.role is Role.SIZE and size.rank_source in VARIABLES
    from_environment = size is None and init.arguments.get(3, "world_size") is None
    method = init.arguments.get(1, "init_method")
    return from_environment and init.arguments.get(5, "store") is None and _is_default(method)


def _is_default(method: Value | None) -> bool:
    known = must_be(method)
    return method is None or (isinstance(known, Const) and known.value in (None, "env://"))


def reports(program: Program) -> Iterator[Report]:
    for fact in local_ranks(program):
        site = fact.site
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` is a local rank, but `rank` must be global: "
            "with several nodes, ranks are duplicated, and every process hangs until the timeout",
            "local rank passed as global rank",
            program.conditions(site),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: LocalRank) -> Fix | Declined:
    code = Code.of(program.tree(fact.site.path))
    return use_rank(code, fact.site.node, fact.variable, "global rank")  # type: ignore[arg-type]  # an argument is an expression
