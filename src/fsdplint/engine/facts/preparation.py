"""What accelerate prepares in calls of their own, though it has to prepare it together.

Source: accelerate 1.6 to 1.15 (`accelerator.py`, `prepare`): FSDP2 wants a model and its optimizer
in one call, since it hands the new parameters to the optimizer there; for FSDP1 nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsdplint.engine.accelerators import generation, plugin_of
from fsdplint.engine.events import BuildOptimizer, Call, Trace
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import ClassValue, Const, Object, Value, class_names
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.names import MODULE, is_optimizer

# A class of another package may be a model.
_PACKAGES = ("torch", "transformers", "accelerate", "datasets")


@dataclass(frozen=True, slots=True)
class PreparedApart:
    """A model or an optimizer that is prepared without the other.

    Attributes:
        alone: the ``prepare`` that is given one of them only; of FSDP1, the model.
        other: the ``prepare`` that is given the other, if there is one.
        plugin: where accelerate is told of FSDP.
        build: of FSDP1, the optimizer that keeps the old parameters.
    """

    alone: Call
    other: Call | None
    plugin: Site | None
    build: BuildOptimizer | None = None


def prepared_apart(program: Program) -> Iterator[PreparedApart]:
    """Of each path, the first ``prepare`` that fails, or that leaves an optimizer behind."""
    for trace in program.traces:
        calls = [call for call in trace.calls("prepare") if plugin_of(call.receiver) is not None]
        for call in calls:
            fact = _apart(program, trace, call, calls)
            if fact is not None:
                yield fact
            if fact is not None and fact.build is None:
                break  # the program ends there


def _apart(program: Program, trace: Trace, call: Call, calls: list[Call]) -> PreparedApart | None:
    plugin = plugin_of(call.receiver)
    if plugin is None or not _is_read(call):
        return None
    models, optimizers = _given(call, _is_model), _given(call, _is_optimizer)
    if bool(models) == bool(optimizers):
        return None
    wanted = _is_optimizer if models else _is_model
    others = [other for other in calls if other is not call and _given(other, wanted)]
    others = [other for other in others if program.together(call.site, other.site)]
    other = next((o for o in others if o.time > call.time), others[0] if others else None)
    if generation(plugin) is Generation.FSDP2:
        return PreparedApart(call, other, plugin.site)
    build = _left_behind(program, trace, call, models, plugin)
    return None if build is None else PreparedApart(call, other, plugin.site, build)


def _left_behind(
    program: Program, trace: Trace, call: Call, models: list[Object], plugin: Object
) -> BuildOptimizer | None:
    """The optimizer with parameters that FSDP1 flattens, if the plugin says that it does."""
    flattens = plugin.keywords.get("use_orig_params")
    if not isinstance(flattens, Const) or flattens.value is not False:
        return None
    builds = trace.of(BuildOptimizer)
    own = [build for build in builds if any(c.module in models for c in build.captures)]
    stale = [build for build in own if build.time < call.time]
    later = [build for build in own if build.time > call.time]
    if not stale or later or not program.together(stale[0].site, call.site):
        return None
    return stale[0]


def _is_read(call: Call) -> bool:
    """Whether it is known of every argument whether it is a model or an optimizer."""
    return not call.arguments.open and all(map(_is_told, call.arguments.args))


def _is_told(value: Value) -> bool:
    """Whether a value is a model, an optimizer, or of a class that is known to be neither."""
    if not isinstance(value, Object) or _is_model(value) or _is_optimizer(value):
        return isinstance(value, Object)
    if isinstance(value.cls, ClassValue):
        return not value.cls.opaque()
    return value.cls is not None and value.cls.name.split(".")[0] in _PACKAGES


def _given(call: Call, kind: Callable[[Value], bool]) -> list[Object]:
    return [v for v in call.arguments.args if isinstance(v, Object) and kind(v)]


def _is_optimizer(value: Value) -> bool:
    if not isinstance(value, Object):
        return False
    return bool(value.captures) or any(is_optimizer(name) for name in class_names(value.cls))


def _is_model(value: Value) -> bool:
    if not isinstance(value, Object):
        return False
    return any(
        name == MODULE or name.startswith("torch.nn.") or _is_pretrained(name)
        for name in class_names(value.cls)
    )


def _is_pretrained(name: str) -> bool:
    package, _, cls = name.rpartition(".")
    return package.split(".")[0] == "transformers" and ("For" in cls or cls.endswith("Model"))
