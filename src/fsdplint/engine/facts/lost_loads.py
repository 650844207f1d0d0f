"""Loads of distributed checkpoints that restore no state of a model or an optimizer.

A load fills the tensors of the state that it is given. It restores nothing of an optimizer that
has no state yet, and nothing where the state is a copy that nobody gives back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.loops import share_loop
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.facts.state_files import is_stateless
from fsdplint.engine.facts.weights import driven, related
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Sharding, Trace, Use
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.values import (
    Const,
    Mapping,
    Object,
    Sequence,
    StateDict,
    Symbol,
    Value,
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.checkpoints import (
    FILLS,
    HELPERS,
    LOADS,
    PLAIN_PLANNERS,
    SAVES,
    keeps_fresh,
    starts_empty,
)
from fsdplint.knowledge.names import KEYWORD_ONLY

GIVES_BACK = (
    "load_state_dict",
    *(f"{HELPERS}.set_{what}state_dict" for what in ("model_", "optimizer_", "")),
)
_GETTERS = tuple(f"{HELPERS}.get_{what}state_dict" for what in ("model_", "optimizer_", ""))


class Why(Enum):
    """Why what is loaded does not arrive: the state names no tensor yet, or only a copy of one."""

    FRESH = "fresh"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Entry:
    """State at ``keys`` of what a distributed checkpoint saves or loads.

    Attributes:
        given: the call that gave it; None where the model or the optimizer itself stands there.
        owner: the model, or what the optimizer trains.
        optimizer: None where it is a model's state.
    """

    keys: tuple[object, ...]
    value: Value
    given: Call | None
    owner: Object
    optimizer: Object | None

    @property
    def raw(self) -> bool:
        """Whether the optimizer's own ``state_dict`` gave it, here or in the checkpoint's code."""
        return self.optimizer is not None and (
            self.given is None or self.given.receiver is not None
        )


@dataclass(frozen=True, slots=True)
class LostLoad:
    """A distributed checkpoint's load of ``entries`` that restores none of their state."""

    trace: Trace
    call: Call
    why: Why
    entries: tuple[Entry, ...]
    shard: Sharding


def lost_loads(program: Program) -> Iterator[LostLoad]:
    """Loads that lose state on every path that comes to them."""
    return on_every_path(
        (call.site.frames(), _load(program, trace, call))
        for trace in program.traces
        for call in trace.calls(*LOADS)
    )


def saved_entries(program: Program) -> Iterator[tuple[Trace, Call, Entry]]:
    """What the program's distributed checkpoints are written with, as far as it is known."""
    for trace in program.traces:
        for call in trace.calls(*SAVES):
            yield from ((trace, call, entry) for entry in entries(trace, call))


def entries(trace: Trace, call: Call) -> list[Entry]:
    """The states in the first argument of a save or a load."""
    given = call.argument(0, "state_dict")
    return [] if given is None else list(_entries(trace, call, given, ()))


def _entries(trace: Trace, call: Call, value: Value, keys: tuple[object, ...]) -> Iterator[Entry]:
    value = followed(value)
    if isinstance(value, Mapping) and len(keys) < 4:
        for key, item in value.items.items():
            yield from _entries(trace, call, item, (*keys, key))
    elif isinstance(value, Object) and value.captures and keys:
        yield Entry(keys, value, None, value.captures[0].module, value)
    elif isinstance(value, (Object, StateDict)):
        entry = _given(trace, call, value, keys)
        if entry is not None:
            yield entry


def _given(
    trace: Trace, call: Call, value: Object | StateDict, keys: tuple[object, ...]
) -> Entry | None:
    """The entry of a value that some call gave, with the model or the optimizer that it is of."""
    for source in trace.calls("state_dict", *_GETTERS):
        part = _part(source, value)
        if source.time > call.time or part is None:
            continue
        if source.receiver is not None:
            owner, optimizer = _owner(source.receiver)
        else:
            model, other = source.argument(0, "model"), source.argument(1, "optimizers")
            owner = model if isinstance(model, Object) else None
            of_model = source.name == _GETTERS[0] or part == 0
            optimizer = other if isinstance(other, Object) and not of_model else None
            if optimizer is None and not of_model:
                return None
        return None if owner is None else Entry(keys, value, source, owner, optimizer)
    return None


def _part(source: Call, value: Object | StateDict) -> int | None:
    """Which result of ``source`` the value is, -1 where there is one; None if it is none."""
    if source.result is value:
        return -1
    if isinstance(source.result, Sequence):
        return next((i for i, item in enumerate(source.result.items) if item is value), None)
    held = source.result.elements if isinstance(source.result, Object) else {}
    return next((i for i, item in held.items() if item is value and isinstance(i, int)), None)


def _owner(receiver: Value) -> tuple[Object | None, Object | None]:
    if not isinstance(receiver, Object):
        return None, None
    if receiver.captures:
        return receiver.captures[0].module, receiver
    return receiver, None


def _load(program: Program, trace: Trace, call: Call) -> LostLoad | None:
    if not _is_plain(call):
        return None
    held = entries(trace, call)
    for why, test in ((Why.FRESH, _is_fresh), (Why.COPY, _is_dropped)):
        lost = [(entry, shard) for entry in held if (shard := test(program, trace, call, entry))]
        if lost:
            dropped = [e for e in held if why is Why.FRESH and _is_dropped(program, trace, call, e)]
            known = tuple(dict.fromkeys([*(entry for entry, _ in lost), *dropped]))
            return LostLoad(trace, call, why, known, lost[0][1])
    return None


def _is_plain(call: Call) -> bool:
    """Whether the load fills what it is given, and no planner of the program's own adds to it."""
    planner = call.argument(KEYWORD_ONLY, "planner")
    if call.arguments.open or len(call.arguments.args) > 4:
        return False
    if planner is None or (isinstance(planner, Const) and planner.value is None):
        return True
    cls = planner.cls if isinstance(planner, Object) else None
    return isinstance(cls, Symbol) and cls.name in PLAIN_PLANNERS


def _is_fresh(program: Program, trace: Trace, call: Call, entry: Entry) -> Sharding | None:
    """The sharding of what an optimizer trains that has no state when the load asks for it."""
    optimizer, at = entry.optimizer, entry.given or call
    if optimizer is None or not entry.raw or is_stateless(optimizer):
        return None
    if not isinstance(optimizer.cls, Symbol) or not starts_empty(optimizer.cls.name):
        return None
    if entry.given is None and call.name not in FILLS:
        return None
    build = next((b for b in trace.of(BuildOptimizer) if b.optimizer is optimizer), None)
    if build is None or not driven(build.site, call.site):
        return None
    uses = [u for u in trace.uses if build.time < u.time < at.time and optimizer in u.objects]
    if not all(_leaves_fresh(trace, use, optimizer) for use in uses):
        return None
    if _repeats(program, trace, call, optimizer) or _restored(trace, call, entry):
        return None
    shard = _sharded(trace, entry.owner, call.time)
    if shard is None or not program.together(call.site, shard.site):
        return None
    return shard if program.together(call.site, build.site) else None


def _leaves_fresh(trace: Trace, use: Use, optimizer: Object) -> bool:
    """Whether a use gives the optimizer no state; a scheduler's methods do not."""
    own = [c for c in trace.of(Call) if c.time == use.time and isinstance(c.receiver, Object)]
    if own and own[0].receiver is not optimizer:
        cls = own[0].receiver.cls if isinstance(own[0].receiver, Object) else None
        return isinstance(cls, Symbol) and keeps_fresh(cls.name)
    return keeps_fresh(use.name)


def _repeats(program: Program, trace: Trace, call: Call, optimizer: Object) -> bool:
    """Whether a loop around the load steps the optimizer too, as it has when it comes again."""
    steps = (step for step in trace.calls("step") if step.receiver is optimizer)
    return any(share_loop(program, call.site, step.site) for step in steps)


def _restored(trace: Trace, call: Call, entry: Entry) -> bool:
    """Whether the state comes from elsewhere between the load and the next step."""
    for later in trace.calls("step", *GIVES_BACK):
        if later.time < call.time or entry.optimizer not in (later.receiver, *_given_to(later)):
            continue
        if later.name == "step":
            return False
        if entry.given is None or entry.value not in map(followed, later.arguments.values()):
            return True
    return False


def _given_to(call: Call) -> list[Value]:
    return [followed(value) for value in call.arguments.args[:2]]


def _is_dropped(program: Program, trace: Trace, call: Call, entry: Entry) -> Sharding | None:
    """The sharding of what a copy is loaded of, which nothing can give back."""
    given = entry.given
    if given is None or given.site.calls != call.site.calls or given.site.path != call.site.path:
        return None
    shard = _sharded(trace, entry.owner, given.time)
    if shard is None or not _is_copy(program, given, entry, shard):
        return None
    about = [item for item in (entry.owner, entry.optimizer) if item is not None]
    gone = [escape for escape in trace.escapes if escape.time > call.time]
    if any(related(item, other) for item in about for e in gone for other in e.objects):
        return None
    if isinstance(entry.value, Object) and entry.value.escaped is not None:
        return None
    later = [c for c in trace.calls(*GIVES_BACK) if c.time > call.time]
    if any(_may_give(c, entry) for c in later):
        return None
    if not program.together(call.site, shard.site) or _is_read(program, call, entry):
        return None
    return shard


def _may_give(call: Call, entry: Entry) -> bool:
    """Whether a load by `GIVES_BACK` may be one into what ``entry`` is the state of."""
    position = 1 if entry.optimizer is not None else 0
    target = call.receiver
    if target is None:
        if call.name.endswith(f"set_{'model' if position else 'optimizer'}_state_dict"):
            return False
        target = call.argument(position, "optimizers" if position else "model")
    target = followed(target)
    if not isinstance(target, Object) or not (target.captures or is_module(target)):
        return True
    return related(target, entry.optimizer or entry.owner)


def _is_copy(program: Program, given: Call, entry: Entry, shard: Sharding) -> bool:
    """Whether the tensors of a state are surely others than those that are trained."""
    flat = shard.generation is Generation.FSDP1
    if given.receiver is not None:
        paths = {path for path, _ in (*given.site.frames(), *shard.site.frames())}
        local = any("LOCAL_STATE_DICT" in program.tree(path).text for path in paths)
        return flat and entry.optimizer is None and not local
    options = given.argument(KEYWORD_ONLY, "options")
    full = options.keywords.get("full_state_dict") if isinstance(options, Object) else None
    return flat or (isinstance(full, Const) and full.value is True)


def _sharded(trace: Trace, module: Object, time: int) -> Sharding | None:
    """What surely cut a module's parameters before ``time``."""
    around = {module, *module.ancestors()}
    flat = [s for s in trace.of(Shard) if s.cuts_flat and s.module in around and s.time < time]
    if flat:
        return flat[-1]
    shard = unit_of(trace, module) if is_module(module) or module.sharded else None
    return shard if shard is not None and shard.time < time else None


def _is_read(program: Program, call: Call, entry: Entry) -> bool:
    """Whether the function may read what was loaded, other than what stands under another key."""
    tree, node = program.tree(call.site.path), call.site.node
    argument = state_argument(node) if isinstance(node, ir.Call) else None
    if not isinstance(argument, (ir.Name, ir.DictDisplay)) or entry.given is None:
        return True
    names = {argument.id} if isinstance(argument, ir.Name) else set()
    statement = tree.statement(entry.given.site.node)
    for target in statement.targets if isinstance(statement, ir.Assign) else ():
        base = target.value if isinstance(target, ir.Subscript) else target
        parts = base.elements if isinstance(base, ir.Collection) else (base,)
        if not all(isinstance(part, ir.Name) for part in parts):
            return True
        names |= {part.id for part in parts if isinstance(part, ir.Name)}
    key = entry.keys[0] if entry.keys else None
    uses = [n for n in ir.walk(tree.function(node) or tree.module) if isinstance(n, ir.Name)]
    return any(
        n.id in names and n is not argument and not _builds(tree, n, names, key) for n in uses
    )


def _builds(tree: Tree, name: ir.Name, names: set[str], key: object) -> bool:
    """Whether a name is there to be bound, to put the state together, or for another key.

    One that is bound to what has a name already is not: that name may be read.
    """
    parent = tree.parent(name)
    if isinstance(parent, ir.Subscript) and parent.value is name:
        stored = tree.parent(parent)
        other = isinstance(parent.index, ir.Constant) and parent.index.value != key
        return other or (isinstance(stored, ir.Assign) and stored.value is not parent)
    if isinstance(parent, ir.Collection):
        parent, item = tree.parent(parent), parent
        return _binds_anew(parent) and parent.value is not item
    if isinstance(parent, ir.Assign) and parent.value is name:
        bases = [t.value for t in parent.targets if isinstance(t, ir.Subscript)]
        stored_in = [base.id for base in bases if isinstance(base, ir.Name)]
        return len(stored_in) == len(parent.targets) and names.issuperset(stored_in)
    return isinstance(parent, ir.DictDisplay) or _binds_anew(parent)


def _binds_anew(node: ir.Node) -> TypeGuard[ir.Assign]:
    return isinstance(node, ir.Assign) and not isinstance(node.value, ir.Name)


def state_argument(node: ir.Call) -> ir.Expr | None:
    """What a save or a load is told to write or to fill."""
    for index, argument in enumerate(node.args):
        if argument.keyword == "state_dict" or (index == 0 and argument.keyword is None):
            return None if argument.star else argument.value
    return None
