"""A summary of the analysis of one script, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.repeated_blocks import repeated_blocks
from fsdplint.engine.facts.sharding import replaces
from fsdplint.engine.inspection.outline import Step, outline, role, written
from fsdplint.engine.inspection.unresolved import Unresolved, unresolved
from fsdplint.engine.inspection.variants import Variant, variants
from fsdplint.engine.interpreter.events import (
    BuildOptimizer,
    Call,
    Divided,
    Event,
    MethodCall,
    Shard,
    Store,
    Trace,
    Unwrap,
)
from fsdplint.engine.interpreter.frameworks import has_sharded
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Origin,
    Parameters,
    Symbol,
    Value,
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.finding import TOP_LEVEL, Span


@dataclass(frozen=True, slots=True)
class Sharding:
    """One sharding call on a model or a part of it.

    Attributes:
        generation: "FSDP1" or "FSDP2"; "settings" if a framework shards as these say.
        targets: the parts, as paths from the model such as ".layers[]", "" for the model itself.
        arguments: all but the module, as written; what ``**`` brings is named. Of a framework's
            call, the call.
    """

    generation: str
    targets: tuple[str, ...]
    arguments: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is sharded, or whose parameters an optimizer takes.

    Attributes:
        name: its class, or the variable where that is not known.
        built: the call that constructs it or, if there is none, where else it comes from.
        unsharded: paths of its containers of repeated blocks that no call shards.
    """

    name: str
    built: str
    span: Span | None
    shardings: tuple[Sharding, ...]
    unsharded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """A mesh or a policy: its role, the call that makes it and where."""

    role: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer and the parameters it was built on.

    Attributes:
        text: the call that builds it.
        takes: per model or part of one, when its parameters were taken: "before sharding", "after
            sharding", "before wrapping, which keeps them", "before sharding by settings" or "not
            sharded".
    """

    name: str
    text: str
    span: Span
    takes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A place where the program can start, and what happens from there on.

    Attributes:
        name: a function, "Class.method", or "<module>" for the top level of the file.
        steps: the first path, in order.
        variants: the paths that differ from it.
        followed: how many paths reach sharding.
    """

    path: str
    name: str
    models: tuple[Model, ...]
    settings: tuple[Setting, ...]
    optimizers: tuple[Optimizer, ...]
    steps: tuple[Step, ...]
    variants: tuple[Variant, ...]
    followed: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """The analysis of the script at ``path``, as a part of the program around it.

    Attributes:
        entries: where the program starts in the script; if only functions and methods that others
            may call do so, the entries of other files that lead through it after them. Only those
            from which a sharding call is reached.
    """

    path: str
    entries: tuple[Entry, ...]
    unresolved: Unresolved


def inspect(program: Program, path: str, *scripts: str) -> Inspection:
    """Summarize the analysis of the script at the absolute ``path``.

    Args:
        scripts: those that it writes, if it is a notebook.
    """
    own_paths = {path, *scripts}
    every = (*program.traces, *(trace for trace in program.method_traces if _own(trace)))
    own = [trace for trace in every if trace.path in own_paths]
    others = [trace for trace in every if trace.path not in own_paths]
    callers = [trace for trace in others if own_paths & _files(trace)]
    alone = [trace for trace in own if not _is_followed(trace, callers)]
    runs = any(trace.entry == TOP_LEVEL for trace in own)
    traces = own if runs and alone == own else alone + callers
    grouped: dict[tuple[str, str], list[Trace]] = {}
    for trace in traces:
        grouped.setdefault((trace.path, trace.entry), []).append(trace)
    entries = tuple(_entry(program, paths) for paths in grouped.values())
    files = own_paths.union(*(_files(trace) for trace in traces))
    return Inspection(path, entries, unresolved(program, path, files, traces))


def _is_followed(trace: Trace, callers: Sequence[Trace]) -> bool:
    """True if others call the function that a path starts in, with the models that they have.

    A method that nothing calls has no callers, and calls none but what its own object does.
    """
    if trace.entry == TOP_LEVEL or trace.method_code is not None:
        return False
    calls = {shard.call for shard in trace.of(Shard)}
    others = (caller for caller in callers if caller.method_code is None)
    theirs = {shard.call for caller in others for shard in caller.of(Shard)}
    return bool(calls) and calls <= theirs


def _own(trace: Trace) -> list[Event]:
    """Return the events of a path; for a method that nothing calls, without the constructor's."""
    return [event for event in trace.events if event.time > trace.method_start]


def _files(trace: Trace) -> set[str]:
    return {path for event in trace.events for path, _ in event.site.frames()}


def _entry(program: Program, traces: Sequence[Trace]) -> Entry:
    """Summarize the paths of an entry, of which the first represents the others."""
    first = traces[0]
    models = _roots(first)
    steps = [_steps(program, trace) for trace in traces]
    return Entry(
        path=first.path,
        name=first.entry,
        models=tuple(dict.fromkeys(_model(program, first, root) for root in models)),
        settings=tuple(dict.fromkeys(_settings(program, first))),
        optimizers=tuple(dict.fromkeys(_optimizers(program, first))),
        steps=steps[0],
        variants=tuple(variants(program, traces, steps)),
        followed=len(traces),
    )


# Models


def _roots(trace: Trace) -> list[Object]:
    """Return the models of a path, each by the outermost module that it is part of."""
    held = [event.module for event in trace.events if isinstance(event, Shard)]
    held += [capture.module for build in _builds(trace) for capture in build.optimizer.captures]
    held += [
        value for event in trace.of(Call) if has_sharded(event) for value in _models_given(event)
    ]
    return list(dict.fromkeys(_root(module) for module in held))


def _root(module: Object) -> Object:
    chain = [module, *module.ancestors()]
    modules = [part for part in chain if is_module(part)]
    return (modules or chain)[-1]


def _given(call: Call) -> list[tuple[str, Object]]:
    """Return what a call gets, or the framework's object that it is called on, with keywords."""
    made = call.receiver if isinstance(call.receiver, Object) else None
    named = [*call.arguments.keywords.items(), *(made.keywords.items() if made else ())]
    values = [*call.arguments.args, *(made.args if made else ())]
    pairs = [*named, *(("", value) for value in values)]
    return [(name, value) for name, value in pairs if isinstance(value, Object)]


def _models_given(call: Call) -> list[Object]:
    return [value for name, value in _given(call) if name == "model" or is_module(value)]


def _by_settings(trace: Trace, root: Object) -> list[Call]:
    """Return the calls by which a framework shards a model."""
    calls = (event for event in trace.of(Call) if has_sharded(event))
    return [call for call in calls if root in [_root(value) for _, value in _given(call)]]


def _target(module: Object, root: Object) -> str:
    """Return how ``module`` is reached from ``root``, e.g. ".layers[]"."""
    steps = []
    for part in (module, *module.ancestors()):
        if part is root:
            break
        steps.append(part.step)
    return "".join(reversed(steps))


def _model(program: Program, trace: Trace, root: Object) -> Model:
    """Summarize how a model is built and sharded on a path."""
    calls: dict[ir.Call, list[Shard]] = {}
    for event in trace.events:
        if isinstance(event, Shard) and _root(event.module) is root:
            calls.setdefault(event.call, []).append(event)
    shardings = tuple(_sharding(program, events, root) for events in calls.values())
    whole = [_as_settings_say(program, call) for call in _by_settings(trace, root)]
    sharded = [target for sharding in shardings for target in sharding.targets]
    blocks, _ = repeated_blocks(root) or ((), "")
    paths = () if whole else (f".{each.path}" for each in blocks if not each.named)
    bare = tuple(path for path in paths if not _covered(path, sharded, calls))
    built, span = _built(program, root)
    return Model(_model_name(program, trace, root), built, span, (*shardings, *whole), bare)


def _covered(container: str, sharded: Sequence[str], calls: dict[ir.Call, list[Shard]]) -> bool:
    """True if a container's blocks are, or may be, sharded."""
    views = any("()" in target or target.startswith(container) for target in sharded)
    return views or any(
        event.wraps_children is not False for group in calls.values() for event in group
    )


def _sharding(program: Program, events: Sequence[Shard], root: Object) -> Sharding:
    first = events[0]
    targets = tuple(dict.fromkeys(_target(event.module, root) for event in events))
    arguments = tuple(_arguments(program, first))
    return Sharding(first.generation.value, targets, arguments, program.span(first.site))


def _as_settings_say(program: Program, call: Call) -> Sharding:
    text = written(program, call.site.path, call.site.node)
    return Sharding("settings", ("",), (text,), program.span(call.site))


def _arguments(program: Program, shard: Shard) -> Iterator[str]:
    """Yield the arguments of a sharding call except the module."""
    path, given = shard.site.path, shard.call.args
    named = {argument.keyword for argument in given}
    brought = [name for name in shard.keywords if name not in named and name != "module"]
    for index, argument in enumerate(given):
        module = argument.keyword == "module" or (index == 0 and argument.keyword is None)
        if not module and not (argument.star == "**" and brought):
            yield written(program, path, argument)
    for name in brought:
        yield f"{name}={_value(program, shard.keywords[name])}"


def _value(program: Program, value: Value) -> str:
    value = followed(value)
    if isinstance(value, Const):
        return repr(value.value)
    if isinstance(value, Symbol):
        return value.name.rpartition(".")[2]
    if isinstance(value, Object) and value.site and isinstance(value.site.node, ir.Call):
        return f"{written(program, value.site.path, value.site.node.func)}(…)"
    return "…"


def _model_name(program: Program, trace: Trace, root: Object) -> str:
    if isinstance(root.cls, ClassValue):
        return root.cls.node.name
    if isinstance(root.cls, Symbol):
        return root.cls.name.rpartition(".")[2]
    for event in trace.events:
        if isinstance(event, Shard) and event.module is root and event.call.args:
            return written(program, event.site.path, event.call.args[0].value)
    return root.path() or "a model"


def _built(program: Program, root: Object) -> tuple[str, Span | None]:
    site = root.site
    if site is not None and isinstance(site.node, ir.Call):
        return written(program, site.path, site.node), program.span(site)
    if site is not None:
        return "", program.span(site)
    top = [root, *root.ancestors()][-1]
    made = top.site
    if made is not None and isinstance(made.node, ir.Call) and isinstance(top.cls, Symbol):
        return written(program, made.path, made.node), program.span(made)
    if top.origin is Origin.PARAMETER:
        return f"the parameter `{root.path()}`", None
    if top.made_by is not None:
        path, call = top.made_by
        return written(program, path, call), Span(path, call.start, call.end)
    return "created by code that was not analyzed", None


# Meshes, policies, optimizers


def _settings(program: Program, trace: Trace) -> Iterator[Setting]:
    for event in trace.events:
        if isinstance(event, Call) and role(event) == "mesh":
            yield _setting(program, "mesh", event.site)
        if isinstance(event, Shard):
            for name, value in event.keywords.items():
                made = followed(value)
                if isinstance(made, Object) and made.site and _is_made_elsewhere(made.site, event):
                    yield _setting(program, name, made.site)


def _is_made_elsewhere(site: Site, shard: Shard) -> bool:
    """True if a value is made by a call outside the arguments of the sharding call."""
    call = shard.call
    inside = site.path == shard.site.path and call.start <= site.node.start < call.end
    return isinstance(site.node, ir.Call) and not inside


def _setting(program: Program, role: str, site: Site) -> Setting:
    return Setting(role, written(program, site.path, site.node), program.span(site))


def _builds(trace: Trace) -> Iterator[BuildOptimizer]:
    return (event for event in trace.events if isinstance(event, BuildOptimizer))


def _optimizers(program: Program, trace: Trace) -> Iterator[Optimizer]:
    for build in _builds(trace):
        takes = dict.fromkeys(
            (_captured(program, trace, capture), _when(trace, capture))
            for capture in build.optimizer.captures
        )
        text = written(program, build.site.path, build.site.node)
        yield Optimizer(build.label, text, program.span(build.site), tuple(takes))


def _captured(program: Program, trace: Trace, capture: Parameters) -> str:
    root = _root(capture.module)
    some = "some of " if capture.filtered else ""
    name = _model_name(program, trace, root)
    return f"{some}{name}{_target(capture.module, root)}"


def _when(trace: Trace, capture: Parameters) -> str:
    """Return when parameters were captured, relative to the sharding of their module."""
    root = _root(capture.module)
    shards = [shard for shard in trace.of(Shard) if _root(shard.module) is root]
    if any(replaces(shard, capture) for shard in shards):
        return "before sharding"
    if any(shard.time > capture.time for shard in shards):
        kept = all(shard.keeps_parameters for shard in shards if shard.time > capture.time)
        return "before wrapping, which keeps them" if kept else "before wrapping"
    settings = _by_settings(trace, root)
    if any(call.time > capture.time for call in settings):
        return "before sharding by settings"
    return "after sharding" if shards or settings else "not sharded"


# Paths


def _steps(program: Program, trace: Trace) -> tuple[Step, ...]:
    roots = set(_roots(trace))
    events = sorted(_own(trace), key=lambda event: event.time)  # one may be recognized later
    return outline(program, (event for event in events if _is_shown(event, roots)))


def _is_shown(event: Event, roots: set[Object]) -> bool:
    """True if an event gets a line: not each layer's forward, nor every state dict."""
    if not isinstance(event, Call):
        silent = isinstance(event, (Store, MethodCall, Divided, Unwrap))
        return not silent and getattr(event, "certain", True)
    if event.name == "forward":
        module = event.receiver
        return isinstance(module, Object) and (module in roots or bool(module.sharded))
    if role(event) == "state":
        owner = event.argument(0, "model") if event.receiver is None else event.receiver
        return isinstance(owner, Object) and (bool(owner.captures) or _root(owner) in roots)
    return role(event) != ""
