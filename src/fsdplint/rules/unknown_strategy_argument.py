"""Arguments that Lightning's strategies do not have."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.strategies import StrategyCall, strategy_calls
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.arguments import drop_argument, renamed
from fsdplint.fixes.code import Code, Declined, builder
from fsdplint.knowledge.lightning_settings import NEEDLESS, OTHER_NAMES, is_fsdp
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD931",
    summary="a strategy of Lightning is given an argument that FSDP refuses",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Few public strategies for FSDP were found, and hardly a finding in them.",
)


def reports(program: Program) -> Iterator[Report]:
    """Yield a report for each argument that no release of the project has."""
    for made in strategy_calls(program):
        for argument in made.call.args:
            name = argument.keyword
            if name is not None and not made.settings.is_known(name):
                yield _report(made, argument, name)


def _report(made: StrategyCall, argument: ir.Argument, name: str) -> Report:
    meant = _meant(made, name)
    cls = made.settings.name.rpartition(".")[2]
    when = "once the model is set up" if is_fsdp(made.settings.kind) else "when it is made"
    hint = f"; did you mean `{meant}`?" if meant else ""
    if name in NEEDLESS and is_fsdp(made.settings.kind):
        hint = f"; {NEEDLESS[name]}"
    return Report(
        Span(made.tree.path, argument.start, argument.start + len(name)),
        f"`{cls}` of {made.settings.lightning} has no argument `{name}`: it fails {when}{hint}",
        "is refused",
        (),
        partial(_fix, made, argument, name, meant),
    )


def _meant(made: StrategyCall, name: str) -> str:
    """Return the argument that is evidently meant, "" if none is."""
    newest = made.settings.releases[-1]
    names = [each for each in newest.names(made.settings.kind) if each.isidentifier()]
    other = OTHER_NAMES.get(name, "")
    if other in names:
        return other
    close = get_close_matches(name, names, 1, 0.85)
    return close[0] if close and name not in NEEDLESS else ""


def _fix(made: StrategyCall, argument: ir.Argument, name: str, meant: str) -> Fix | Declined:
    code = Code.of(made.tree)
    if meant and made.argument(meant) is None:
        return _renamed(code, argument, meant)
    return drop_argument(code, made.call, name)


@builder
def _renamed(code: Code, argument: ir.Argument, name: str) -> Fix:
    return Fix(f"rename it to `{name}`", Safety.UNSAFE, (renamed(code, argument, name),))
