from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.process_groups import Wrong, WrongGroup, wrong_groups
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def process_group_arguments(program: Program) -> Iterator[Report]:
    for fact in wrong_groups(program):
        site, first = fact.call.site, fact.first
        message, label = _words(program, fact)
        before = [] if first is None else [program.evidence(first.site, "has made it")]
        yield Report(
            Span(site.path, fact.node.start, fact.node.end),
            message,
            label,
            (*before, *program.conditions(site)),
            partial(_fix, program, fact),
        )


def _words(program: Program, fact: WrongGroup) -> tuple[str, str]:
    text = program.text(fact.call.site.path, fact.node)
    if fact.wrong is Wrong.STORE_AND_METHOD:
        return "the processes meet either by `store` or by `init_method`", "the second way to meet"
    if fact.wrong is Wrong.UNNUMBERED:
        names = "` and `".join(fact.meant)
        return f"nothing numbers the processes: `{names}` must be given here", f"no `{names}`"
    if fact.wrong is Wrong.TIMEOUT:
        return f"the timeout `{text}` is a number, and must be a `timedelta`", "a number"
    if fact.wrong is Wrong.DEVICE:
        return f"`device_id` must be a device with its number, not `{text}`", "no numbered device"
    if fact.wrong is Wrong.BACKEND:
        return f"there is no backend `{text}`; `{fact.meant[0]}` is one", "no backend"
    assert fact.first is not None
    where = program.where(fact.first.site, fact.call.site)
    return f"the process group has been made {where} and is still up", "makes it once more"


def _fix(program: Program, fact: WrongGroup) -> Fix | Declined:
    code, call = fixes.code.Code.of(program.tree(fact.call.site.path)), fact.call.site.node
    if fact.wrong is Wrong.STORE_AND_METHOD:
        return fixes.process_group.without_method(code, call, fact.node)
    if fact.wrong is Wrong.UNNUMBERED:
        return fixes.process_group.numbered(code, call, fact.meant)
    if fact.wrong is Wrong.TIMEOUT:
        return fixes.process_group.as_timedelta(code, fact.node)
    if fact.wrong is Wrong.DEVICE:
        return fixes.process_group.device(code, fact.node)
    if fact.wrong is Wrong.BACKEND:
        return fixes.process_group.backend(code, fact.node, fact.meant[0])
    return fixes.process_group.only_once(code, call)
