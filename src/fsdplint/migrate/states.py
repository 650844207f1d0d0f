"""State dicts that a program took and loaded whole, before its model was sharded.

Where the fix of a rule gathers a state, it is left to that fix. Here are states that go through
other functions or objects before they are written, and functions that only rank 0 called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import may_be_alone
from fsdplint.engine.facts.sharding import runs_alone, unit_of
from fsdplint.engine.facts.state_files import sharded_writes
from fsdplint.engine.interpreter import optimizers
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Sharding, Trace
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.every_rank import Guarded, call_on_every_rank
from fsdplint.fixes.gather_state import (
    GatheredState,
    gather_on_entry,
    gather_state,
    gathered_write,
    local_tests,
    model_name,
    on_each_node,
    receiver,
    several_pass,
)
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.load_state import load_state
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.calls import COMPILE, COMPILED, Generation
from fsdplint.knowledge.checkpoints import HELPERS, LOADS, PLAIN_ENTRIES, SAVES
from fsdplint.migrate.helpers import defined
from fsdplint.migrate.step import Change, Context, Found, Kept, attempt, kept

Scope = ir.Function | ir.ClassDef | ir.Module
_FULL = "full_state_dict=True"
_WAYS_OUT = (ir.Return, ir.Raise, ir.Break, ir.Continue)
_SEVERAL = "it is called on a sharded model and on other objects; write one call for each by hand"
_TAKES = "takes this state; gather it"
_NAMED = "by_parameter_name"
_NAMED_DEFINITION = f'''def {_NAMED}(state, model, optimizer):
    """Return an optimizer state by parameter names, also if it was saved by numbers."""
    if not state or any(isinstance(key, str) for key in state["state"]):
        return state
    names = {{{{parameter: {{name}} for name, parameter in model.named_parameters()}}}}
    order = [names[each] for group in optimizer.param_groups for each in group["params"]]
    groups = [
        {{{{**group, "params": [order[key] for key in group["params"]]}}}}
        for group in state["param_groups"]
    ]
    entries = {{{{order[key]: value for key, value in state["state"].items()}}}}
    return {{{{"state": entries, "param_groups": groups}}}}


'''


@dataclass(frozen=True, slots=True)
class _Use:
    """A call of ``state_dict`` or ``load_state_dict`` on what is sharded.

    Attributes:
        model: the text of the model, as the function of the call can write it.
        optimizer: the text of the optimizer, if the state is an optimizer's.
        guards: the tests that only some ranks pass.
    """

    call: Call
    model: str
    optimizer: str | None
    guards: tuple[Guard, ...]

    @property
    def node(self) -> ir.Call:
        assert isinstance(self.call.site.node, ir.Call)
        return self.call.site.node


def gathers(context: Context) -> Iterator[Found]:
    """Yield a change for each function that takes the state of what is sharded."""
    program = context.program
    handled = {
        state.source.node
        for fact in sharded_writes(program)
        if isinstance(gathered_write(program, fact), Fix)
        for state in fact.states
    }
    groups: dict[object, list[_Use]] = {}
    for use in _uses(program, "state_dict", handled):
        if isinstance(use, Kept):
            yield use
            continue
        function = program.tree(use.call.site.path).function(use.node)
        tests = tuple(guard.test for guard in use.guards)
        groups.setdefault((use.call.site.path, function, tests), []).append(use)
    for uses in groups.values():
        code = Code.of(program.tree(uses[0].call.site.path))
        yield from attempt(code, uses[0].node, partial(_gathered, program, uses))


def loads(context: Context) -> Iterator[Found]:
    """Yield a change for each load of a full state into what is sharded."""
    program = context.program
    for use in _uses(program, "load_state_dict", set()):
        if isinstance(use, Kept):
            yield use
            continue
        code = Code.of(program.tree(use.call.site.path))
        local = local_tests(code, use.call.site, use.guards)
        outside = len(local) < len(use.guards)
        alone = may_be_alone(program, use.call.site)
        yield _loaded(
            *(code, use.node, use.model, use.optimizer, local),
            outside=outside,
            alone=alone,
            compiled=_compiles(context),
        )


def _compiles(context: Context) -> bool:
    return any(context.codes(COMPILE))


def _loaded(
    code: Code,
    call: ir.Call,
    model: str,
    optimizer: str | None,
    guards: Sequence[ir.If] = (),
    *,
    outside: bool = False,
    alone: bool = False,
    compiled: bool = False,
) -> Found:
    """Load with the helper that gives each rank its shards, also what was saved without sharding.

    An optimizer's state then numbered its parameters, and the helper silently restores only those
    that are named. Of a compiled model, it takes names without that of its attribute, and fails to
    broadcast a state that other ranks have as well (run on torch 2.13).
    """
    span = code.span(call)
    adapted, extra = "{}", []
    if optimizer is not None:
        adapted = f"{_NAMED}({{}}, {model}, {optimizer})"
        name = f'name.replace("{COMPILED}.", "")' if compiled else "name"
        extra = list(defined(code, _NAMED, _NAMED_DEFINITION.format(name=name)))
    alone |= compiled and not guards
    fix = load_state(
        code, call, model, optimizer, guards, rank_zero=outside, adapted=adapted, alone=alone
    )
    if isinstance(fix, Fix):
        return Change(span, fix.title, (*fix.edits, *extra))
    return Kept(span, f"`{code.short(call)}`", fix.reason)


def unseen(context: Context) -> Iterator[Found]:
    """Yield a change for each load where no path leads, by names of what is sharded."""
    yield from (each for each in _unreached(context) if isinstance(each, Change))


def untaken(context: Context) -> Iterator[Found]:
    """Yield states that are taken or loaded where no path leads, in the result of a migration."""
    yield from (each for each in _unreached(context) if isinstance(each, Kept))


def _unreached(context: Context) -> Iterator[Found]:
    program = context.program
    reached = {
        call.site.node
        for trace in program.traces
        for call in trace.calls("state_dict", "load_state_dict")
        if isinstance(call.receiver, Object)
    }
    for (path, scope), names in sharded_names(program).items():
        code = Code.of(program.tree(path))
        for node in code.nodes_of(scope):
            target = receiver(node)
            if target is None or node in reached or path not in context.files:
                continue
            assert isinstance(node, ir.Call)
            known = names.get(code.slice(target))
            if known is None or known.start > node.start:
                continue
            yield from _unseen(code, node, known, compiled=_compiles(context))


def _unseen(code: Code, call: ir.Call, known: ShardedName, *, compiled: bool) -> Iterator[Found]:
    span = code.span(call)
    name = ir.last_name(call.func)
    if name == "load_state_dict" and known.model:
        yield _loaded(code, call, known.model, known.optimizer, compiled=compiled)
    elif name in ("load_state_dict", "state_dict"):
        what = "loads this state; load it" if name == "load_state_dict" else _TAKES
        reason = f"no analyzed path {what} by hand on every rank"
        yield Kept(span, f"`{code.short(call)}`", reason)


@dataclass(frozen=True, slots=True)
class ShardedName:
    """A variable that holds a sharded model, or its optimizer, after the offset ``start``.

    Attributes:
        model: the text of the model, "" where that of an optimizer is not known.
    """

    start: int
    model: str
    optimizer: str | None = None


# By file and function, and in that by the text of the variable.
ShardedNames = dict[tuple[str, Scope], dict[str, ShardedName]]


def sharded_names(program: Program) -> ShardedNames:
    """Return the names of sharded models and of their optimizers, by file and function."""
    found: ShardedNames = {}
    for trace in program.traces:
        for shard in trace.of(Shard):
            tree, given = program.tree(shard.site.path), module_argument(shard.call)
            if given is not None and shard.generation is Generation.FSDP2:
                text = tree.slice(given.value)
                place = shard.site.path, tree.scope(shard.call)
                found.setdefault(place, {}).setdefault(text, ShardedName(shard.call.start, text))
    for trace in program.traces:
        for build in trace.of(BuildOptimizer):
            for path, node in build.site.frames():
                tree = program.tree(path)
                statement = tree.statement(node)
                known = found.get((path, tree.scope(node)), {})
                if isinstance(statement, ir.Assign) and statement.value is node and known:
                    model = next(iter(known.values())).model
                    text = tree.slice(statement.targets[0])
                    known.setdefault(text, ShardedName(node.start, model, text))
    _add_attributes(program, found)
    return found


def _add_attributes(program: Program, found: ShardedNames) -> None:
    """Add attributes such as ``self.model``, by which methods use what is sharded."""
    for trace in program.traces:
        for call in trace.calls("forward", "zero_grad"):
            node, tree = call.site.node, program.tree(call.site.path)
            given = receiver(node) if call.name == "zero_grad" else getattr(node, "func", None)
            text = "" if given is None else tree.slice(given)
            owner = next((n for n in tree.ancestors(node) if isinstance(n, ir.ClassDef)), None)
            if owner is not None and text.startswith("self.") and takes_shards(trace, call):
                named = ShardedName(0, "", text) if _kind(trace, call)[1] else ShardedName(0, text)
                for method in tree.functions:
                    if tree.scope(method) is owner:
                        found.setdefault((call.site.path, method), {}).setdefault(text, named)


def _uses(program: Program, name: str, handled: set[ir.Node]) -> Iterator[_Use | Kept]:
    """Yield the calls of a method on what surely is sharded by then, each once."""
    seen: set[ir.Node] = set(handled)
    several = _several_kinds(program, name)
    unclear: dict[ir.Node, Kept] = {}
    for trace in program.traces:
        if trace.calls(*SAVES, *LOADS):
            continue  # its states are meant to be shards
        for call in trace.calls(name):
            node = call.site.node
            if node in seen or not takes_shards(trace, call) or _reads_groups(program, call):
                continue
            try:
                if node in several:
                    raise NoFixError(_SEVERAL)
                use = _use(program, trace, call)
            except NoFixError as reason:
                unclear[node] = kept(Code.of(program.tree(call.site.path)), node, reason)
            else:
                if use is not None:
                    seen.add(node)
                    yield use
    yield from (each for node, each in unclear.items() if node not in seen)


def _reads_groups(program: Program, call: Call) -> bool:
    """True for an entry of the state without tensors, such as the groups of an optimizer."""
    around = program.tree(call.site.path).parent(call.site.node)
    key = around.index if isinstance(around, ir.Subscript) else None
    return isinstance(key, ir.Constant) and key.value in PLAIN_ENTRIES


def _several_kinds(program: Program, name: str) -> set[ir.Node]:
    """Return the calls of a method that a loop makes on what is sharded and on other objects."""
    found: set[ir.Node] = set()
    for trace in program.traces:
        kinds: dict[ir.Node, set[tuple[bool, bool]]] = {}
        for call in trace.calls(name):
            kinds.setdefault(call.site.node, set()).add(_kind(trace, call))
        found.update(node for node, each in kinds.items() if len(each) > 1)
    return found


def _kind(trace: Trace, call: Call) -> tuple[bool, bool]:
    """Return whether a call is on what is sharded, and whether on an optimizer."""
    optimizes = isinstance(call.receiver, Object) and _is_optimizer(call.receiver)
    return takes_shards(trace, call), optimizes


def _is_optimizer(value: Object) -> bool:
    return bool(value.captures) or optimizers.is_class(value.cls)


def takes_shards(trace: Trace, call: Call) -> bool:
    """True if a method is called on a model that is sharded by then, or on its optimizer."""
    if not isinstance(call.receiver, Object):
        return False
    modules = [capture.module for capture in call.receiver.captures] or [call.receiver]
    shards: list[Sharding | None] = [unit_of(trace, module) for module in modules]
    if not call.receiver.captures and _is_optimizer(call.receiver):
        shards = [_only_root(trace)]
    return any(shard is not None and shard.time < call.time for shard in shards)


def _only_root(trace: Trace) -> Shard | None:
    """Return the sharding of the only model that is sharded, around all its blocks."""
    shards = {shard.module: shard for shard in trace.of(Shard)}
    roots = [module for module in shards if shards.keys().isdisjoint(module.ancestors())]
    return shards[roots[0]] if len(roots) == 1 else None


def _use(program: Program, trace: Trace, call: Call) -> _Use | None:
    """Return what is taken or loaded by ``call``.

    An optimizer whose parameters are not known has those of the only model that is sharded.

    Raises:
        NoFixError: the function of the call has no name for the model.
    """
    target = receiver(call.site.node)
    if target is None or not isinstance(call.receiver, Object):
        return None
    guards = _rank_tests(program, call)
    text = program.text(call.site.path, target)
    if not _is_optimizer(call.receiver):
        return _Use(call, text, None, guards)
    captured, root = call.receiver.captures, _only_root(trace)
    owner = captured[0].module if captured else root and root.module
    model = model_name(program, trace, call.site, owner, call.receiver) if owner else None
    if model is None:
        raise NoFixError(
            f"the model of `{text}` has no known name here; pass it to this function by hand"
        )
    return _Use(call, model, text, guards)


def _rank_tests(program: Program, call: Call) -> tuple[Guard, ...]:
    return tuple(
        guard
        for guard in call.site.guards
        if program.is_rank_test(guard) and not _ends_in_error(program, guard)
    )


def _ends_in_error(program: Program, guard: Guard) -> bool:
    """True if ranks leave at ``guard`` by an error, which ends the whole job."""
    statement = program.tree(guard.path).statement(guard.test)
    if not guard.early or not isinstance(statement, ir.If):
        return False
    arm = statement.orelse if guard.taken else statement.body
    ways = [each for one in arm for each in ir.walk(one) if isinstance(each, _WAYS_OUT)]
    return bool(ways) and all(isinstance(each, ir.Raise) for each in ways)


def _gathered(program: Program, uses: Sequence[_Use]) -> Change:
    """Gather all of ``uses``, which are in one function, on every rank."""
    what = "gather the full state on every rank"
    first = uses[0]
    site = first.call.site
    code = Code.of(program.tree(site.path))
    local = local_tests(code, site, first.guards)
    here = site.path
    outer = [g for g in first.guards if g.path != here or code.statement(g.test) not in local]
    states = [GatheredState(use.node, use.model, use.optimizer) for use in uses]
    if local:
        if outer:
            raise NoFixError("several tests keep ranks from this; gather the state by hand")
        several = several_pass(first.guards)
        fix = _made(gather_state(code, first.node, states, local, several=several, every_time=True))
        return Change(code.span(first.node), what, fix.edits)
    if not outer:
        imports = Imports(code, first.node)
        edits = tuple(_in_place(code, imports, use) for use in uses)
        return Change(code.span(first.node), what, edits, (imports,))
    if any(
        not _rank_tests(program, call)
        for trace in program.traces
        if not runs_alone(trace)
        for call in trace.calls(first.call.name)
        if call.site.node is first.node
    ):
        raise NoFixError("one rank calls this function, or all do; gather the state by hand")
    on_nodes = on_each_node(outer)
    through = [
        edit
        for guard in outer
        for edit in _let_all_through(program, guard, site.calls, on_nodes=on_nodes)
    ]
    alone = may_be_alone(program, site)
    fix = _made(gather_on_entry(code, states, alone=alone, on_nodes=on_nodes))
    return Change(code.span(first.node), what, (*fix.edits, *through))


def _in_place(code: Code, imports: Imports, use: _Use) -> Edit:
    """Gather where every rank takes the state."""
    kind = "model" if use.optimizer is None else "optimizer"
    get = imports.name(HELPERS, f"get_{kind}_state_dict")
    options = imports.name(HELPERS, "StateDictOptions")
    of = use.model if use.optimizer is None else f"{use.model}, {use.optimizer}"
    return code.edit(use.node.start, use.node.end, f"{get}({of}, options={options}({_FULL}))")


def _let_all_through(
    program: Program, guard: Guard, frames: Sequence[tuple[str, ir.Node]], *, on_nodes: bool
) -> tuple[Edit, ...]:
    """Move the call that leads to a gather out of ``guard``, which is in one of ``frames``."""
    for depth, (path, node) in enumerate(frames):
        code = Code.of(program.tree(path))
        if path == guard.path and code.function(guard.test) is code.function(node):
            if not isinstance(node, ir.Call):
                raise NoFixError("the test and the call are too far apart; gather by hand")
            _check_result(code, guard, node)
            guarded = Guarded(node, guard.test, guard.rank_tests, (), guard.early, "result", False)
            edits = [*_made(call_on_every_rank(code, guarded)).edits]
            for between in frames[depth + 1 :]:
                edits += _called_on_entry(program, *between, on_nodes=on_nodes)
            return tuple(edits)
    raise NoFixError("the test of the rank is in another function; gather the state by hand")


def _called_on_entry(
    program: Program, path: str, call: ir.Node, *, on_nodes: bool
) -> tuple[Edit, ...]:
    """Make a call that gathers a state first in its function, which one rank called."""
    code = Code.of(program.tree(path))
    if not isinstance(call, ir.Call) or isinstance(code.parent(call), ir.Expression):
        raise NoFixError("the test and the state are too far apart; gather by hand")
    text = code.slice(call)
    alone = may_be_alone(program, Site(path, call))
    state = GatheredState(call, text, gather=text)
    return _made(gather_on_entry(code, [state], alone=alone, on_nodes=on_nodes)).edits


def _check_result(code: Code, guard: Guard, call: ir.Call) -> None:
    """Raise `NoFixError` if a rank that gets None from a call may use it."""
    statement, place = code.statement(call), code.statement(guard.test)
    if isinstance(statement, ir.Expression):
        return
    alone = isinstance(statement, ir.Assign) and statement.value is call
    target = statement.targets[0] if isinstance(statement, ir.Assign) and alone else None
    names = [node for node in code.nodes_of(code.scope(call)) if isinstance(node, ir.Name)]
    uses = [node for node in names if isinstance(target, ir.Name) and node.id == target.id]
    if not uses or not all(place.start <= node.start < place.end for node in uses):
        raise NoFixError(
            f"all ranks may use what `{code.short(call)}` returns; gather the state by hand"
        )


def _made(fix: Fix | Declined) -> Fix:
    if isinstance(fix, Declined):
        raise NoFixError(fix.reason)
    return fix
