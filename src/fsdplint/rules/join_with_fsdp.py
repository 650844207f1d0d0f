"""What is handed to torch's ``Join``, which asks each object for its hook and its process group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Origin,
    Sequence,
    Symbol,
    Value,
    class_names,
    resolved,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.arguments import add_argument, without
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.launch import HOOKED_OPTIMIZERS, JOINS, NEW_GROUP, WORLD
from fsdplint.knowledge.names import NN, OPTIM
from fsdplint.knowledge.replicas import DDP
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD602",
    summary="`Join` is given a sharded model, or something else that it cannot join",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# Bases of a class that surely have no hook, and of which none can be looked up otherwise.
_HOOKLESS = (f"{NN}.", f"{OPTIM}.", "object", "abc.ABC", "typing.")
_ANY_ATTRIBUTE = ("join_hook", "__getattr__", "__getattribute__")
# Of DistributedDataParallel, ahead of the process group, whose position differs by release.
_MAX_POSITIONAL = 5


class Trouble(Enum):
    """Why ``Join`` raises."""

    EMPTY = "nothing to join"
    SHARDED = "a sharded model"
    HOOKLESS = "no hook"
    LOOSE = "no list"
    GROUPS = "process groups"


@dataclass(frozen=True, slots=True)
class WrongJoin:
    """A ``Join`` that raises for one of the objects it is given.

    Attributes:
        node: the object as it is written in the list, or the list.
        shard: what sharded it, where that is the trouble.
        made: what built it and the object before it, where their process groups differ.
        name: of the object's class.
    """

    call: Call
    trouble: Trouble
    node: ir.Node
    shard: Shard | None = None
    made: tuple[Joined, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """An object that has a hook: what was called for it, and its process group.

    Attributes:
        group: the call that makes it, which may do so once for all; None for that of all ranks.
        replicas: it is a model of DistributedDataParallel.
    """

    call: ir.Call
    path: str
    group: ir.Node | None
    replicas: bool


def wrong_joins(program: Program) -> Iterator[WrongJoin]:
    """Calls of ``Join`` that raise, for what they are given."""
    for trace in program.traces:
        for call in trace.calls(*JOINS):
            written, given = argument(call.site.node, 0, "joinables"), call.arguments
            joinables = given.get(0, "joinables")
            if written is None or joinables is None:
                continue
            listed = resolved(joinables)
            if not isinstance(listed, Sequence):
                yield from _unlisted(trace, call, written.value, joinables)
            elif not listed.items and not listed.rest:
                yield WrongJoin(call, Trouble.EMPTY, written.value)
            else:
                yield from _elements(trace, call, written.value, listed)


def _unlisted(trace: Trace, call: Call, written: ir.Node, given: Value) -> Iterator[WrongJoin]:
    shard = _sharded(trace, call, given)
    if shard is not None:
        yield WrongJoin(call, Trouble.SHARDED, written, shard)
    elif isinstance(given, Object) and _hooked(trace, given) is not None:
        yield WrongJoin(call, Trouble.LOOSE, written)


def _elements(trace: Trace, call: Call, written: ir.Node, listed: Sequence) -> Iterator[WrongJoin]:
    """What is wrong with single elements, else with the first that has another group."""
    troubles = []
    for index, item in enumerate(listed.items):
        node = _element(written, index)
        shard = _sharded(trace, call, item)
        if shard is not None:
            troubles.append(WrongJoin(call, Trouble.SHARDED, node, shard))
        elif isinstance(item, Object) and _is_hookless(trace, item):
            troubles.append(WrongJoin(call, Trouble.HOOKLESS, node, name=_name(item)))
    yield from troubles
    joined = [_hooked(trace, item) for item in listed.items if isinstance(item, Object)]
    if troubles or listed.rest or len(joined) < len(listed.items):
        return
    for index, (before, after) in enumerate(itertools.pairwise(joined), start=1):
        if before is None or after is None:
            return
        if before.group is not after.group:
            yield WrongJoin(call, Trouble.GROUPS, _element(written, index), made=(before, after))
            return


def _element(written: ir.Node, index: int) -> ir.Node:
    if isinstance(written, ir.Collection) and index < len(written.elements):
        return written.elements[index]
    return written


def _sharded(trace: Trace, call: Call, given: Value) -> Shard | None:
    module = resolved(given)
    shards = (s for s in trace.of(Shard) if s.module is module and s.time < call.time)
    return next(shards, None)


# Hooks


def _is_hookless(trace: Trace, item: Object) -> bool:
    """Whether an object is of a known class that has no hook, and nothing has wrapped it."""
    if item.cls is None or item.origin is not Origin.ALLOCATED or item.escaped is not None:
        return False
    if isinstance(item.cls, ClassValue):
        if any(item.cls.lookup(name) is not None for name in _ANY_ATTRIBUTE) or item.cls.opaque():
            return False
        bases = class_names(item.cls)
    else:
        bases = frozenset((item.cls.name,))
    known = all(f"{name}.".startswith(_HOOKLESS) for name in bases) and not bases & {*DDP}
    given = any(call.argument(0, "module") is item for call in trace.calls(*DDP))
    return known and not given and "join_hook" not in item.attrs


def _name(item: Object) -> str:
    if isinstance(item.cls, ClassValue):
        return item.cls.node.name
    return item.cls.name.rpartition(".")[2] if item.cls is not None else ""


def _hooked(trace: Trace, item: Object) -> Joined | None:
    """What built an object that has a hook, None where its process group is not known."""
    replicas = [call for call in trace.calls(*DDP) if call.argument(0, "module") is item]
    if replicas:
        made = replicas[-1]
        keywords, given = made.arguments.keywords, len(made.arguments.args)
        if made.arguments.open or "device_mesh" in keywords or given > _MAX_POSITIONAL:
            return None
        site = made.site
    elif class_names(item.cls) & HOOKED_OPTIMIZERS and isinstance(item.cls, Symbol):
        keywords, found = item.keywords, item.site
        if found is None or not isinstance(found.node, ir.Call):
            return None
        if any(each.star for each in found.node.args) or len(item.args) > 2:
            return None
        site = found
    else:
        return None
    known, group = _group(trace, keywords.get("process_group"))
    if not known or not isinstance(site.node, ir.Call):
        return None
    return Joined(site.node, site.path, group, bool(replicas))


def _group(trace: Trace, given: Value | None) -> tuple[bool, ir.Node | None]:
    """Whether a process group is known, and the call that makes it, None for that of all ranks."""
    if given is None or (isinstance(given, Const) and given.value is None):
        return True, None
    if isinstance(given, Symbol):
        return given.name == WORLD, None
    made = next((call for call in trace.calls(NEW_GROUP) if call.result is given), None)
    return (False, None) if made is None else (True, made.site.node)


def reports(program: Program) -> Iterator[Report]:
    for fact in wrong_joins(program):
        site, shard = fact.call.site, fact.shard
        message, label = _said(program, fact)
        sites = [site] if shard is None else [site, shard.site]
        yield Report(
            Span(site.path, fact.node.start, fact.node.end),
            message,
            label,
            (*_evidence(program, fact), *program.conditions(*sites)),
            partial(_fix, program, fact),
        )


def _said(program: Program, fact: WrongJoin) -> tuple[str, str]:
    """The message, and the label of the place."""
    text = program.text(fact.call.site.path, fact.node)
    if fact.trouble is Trouble.EMPTY:
        return "`Join` is given nothing to join", "nothing"
    if fact.trouble is Trouble.LOOSE:
        return f"`Join` takes a list of what it joins, and `{text}` is none", "is no list"
    if fact.trouble is Trouble.GROUPS:
        return (
            f"`{text}` has another process group than what stands before it in the list, and "
            "`Join` raises: it counts the ranks that still train in one group"
        ), "is in another process group"
    hook = "has no `join_hook`"
    if fact.shard is None:
        return f"`Join` asks `{text}` for its `join_hook`, which no `{fact.name}` has", hook
    return (
        f"`Join` asks `{text}` for its `join_hook`, which {fact.shard.generation.value} does "
        "not have: a rank that is out of batches cannot stand in for its collectives"
    ), hook


def _evidence(program: Program, fact: WrongJoin) -> Iterator[Evidence]:
    if fact.shard is not None:
        yield program.evidence(fact.shard.site, "is sharded here")
    for made in fact.made:
        note = "has the group of all ranks" if made.group is None else "has a group of its own"
        yield program.evidence(Site(made.path, made.call), note)


def _fix(program: Program, fact: WrongJoin) -> Fix | Declined:
    code = Code.of(program.tree(fact.call.site.path))
    if fact.trouble is Trouble.LOOSE:
        return as_list(code, fact.node)
    if fact.trouble is not Trouble.GROUPS:
        alone = fact.trouble is Trouble.EMPTY
        return without_join(code, fact.call.site.node, None if alone else fact.node)
    models = [each for each in fact.made if each.replicas]
    others = [each for each in fact.made if not each.replicas]
    if len(models) != 1 or len(others) != 1:
        return Declined("which of the two process groups is meant is not known")
    if models[0].path != others[0].path:
        return Declined("the two are built in different files")
    return same_group(Code.of(program.tree(models[0].path)), models[0].call, others[0].call)


@builder
def without_join(code: Code, call: ir.Node, module: ir.Node | None) -> Fix:
    """Takes ``module`` from the list, or the whole context away where nothing is left in it."""
    joined = call.args[0].value if isinstance(call, ir.Call) and call.args else None
    if module is not None and isinstance(joined, ir.Collection) and len(joined.elements) > 1:
        return _without_element(code, joined, module)
    statement = code.statement(call)
    if not isinstance(statement, ir.With) or [item.value for item in statement.items] != [call]:
        raise NoFixError(f"`{code.short(call)}` is no context of its own")
    first = statement.body[0]
    if not code.starts_line(statement) or not code.starts_line(first):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code")
    start, inside = code.line_start(statement.start), code.line_start(first.start)
    if code.comments(start, inside):
        raise NoFixError("there is a comment on the context")
    extra = code.indentation(first).removeprefix(code.indentation(statement))
    edits = [code.edit(start, inside, "")]
    for line in code.code_lines(inside, code.after(statement)):
        if code.text.startswith(extra, line):
            edits.append(code.edit(line, line + len(extra), ""))
    return Fix("train without `Join`", Safety.UNSAFE, tuple(edits))


def _without_element(code: Code, joined: ir.Collection, module: ir.Node) -> Fix:
    elements = list(joined.elements)
    index = next((i for i, each in enumerate(elements) if each is module), None)
    if index is None:
        raise NoFixError("the list is made elsewhere")
    if index:
        edit = code.edit(elements[index - 1].end, module.end, "")
    else:
        edit = code.edit(module.start, elements[1].start, "")
    return Fix(f"join without `{code.short(module)}`", Safety.UNSAFE, (edit,))


@builder
def as_list(code: Code, joined: ir.Node) -> Fix:
    """Puts the one object that is given into a list."""
    edits = (
        code.edit(joined.start, joined.start, "["),
        code.edit(joined.end, joined.end, "]"),
    )
    # A name may stand for a list in another run.
    stated = isinstance(code.meaning(joined), ir.Call)  # type: ignore[arg-type]  # an argument
    safety = Safety.SAFE if stated else Safety.UNSAFE
    return Fix(f"join `[{code.short(joined)}]`", safety, edits)


@builder
def same_group(code: Code, model: ir.Call, optimizer: ir.Call) -> Fix:
    """Gives an optimizer the process group of the model whose gradients it gets."""
    wanted, given = (
        next((each for each in call.args if each.keyword == "process_group"), None)
        for call in (model, optimizer)
    )
    if wanted is None:
        kept = [each for each in optimizer.args if each is not given]
        return Fix(
            "leave the optimizer to all ranks",
            Safety.UNSAFE,
            (*without(code, optimizer.args, kept),),
        )
    if code.scope(model) is not code.scope(optimizer) or model.start > optimizer.start:
        raise NoFixError(f"`{code.short(wanted.value)}` may be something else at the optimizer")
    if not isinstance(wanted.value, (ir.Name, ir.Attribute)):
        raise NoFixError(f"`{code.short(wanted.value)}` would be made twice")
    text = code.slice(wanted.value)
    if given is None:
        edit = add_argument(code, optimizer, f"process_group={text}")
    else:
        edit = code.edit(given.value.start, given.value.end, text)
    return Fix(f"give the optimizer `{text}` as well", Safety.UNSAFE, (edit,))
