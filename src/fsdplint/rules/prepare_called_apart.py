"""What accelerate prepares in calls of their own, though it has to prepare it together.

Source: accelerate 1.6 to 1.15 (`accelerator.py`, `prepare`): FSDP2 wants a model and its optimizer
in one call, since it hands the new parameters to the optimizer there; for FSDP1 nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import common_frame, nodes_in_frame
from fsdplint.engine.interpreter.accelerators import generation, plugin_of
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import ClassValue, Const, Object, Value, class_names
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.move import build_after_sharding
from fsdplint.fixes.names import clash, dotted, names_in, written_between
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.names import MODULE, NN, is_optimizer
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD318",
    summary="accelerate prepares a model for FSDP without its optimizer",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# A class of another package may be a model.
_PACKAGES = ("torch", "transformers", "accelerate", "datasets")


@dataclass(frozen=True, slots=True)
class PreparedApart:
    """A model and an optimizer that are prepared apart.

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
    """What one ``prepare`` lacks; of FSDP1 only where an optimizer is left with old parameters."""
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
        name == MODULE or name.startswith(f"{NN}.") or _is_pretrained(name)
        for name in class_names(value.cls)
    )


def _is_pretrained(name: str) -> bool:
    package, _, cls = name.rpartition(".")
    return package.split(".")[0] == "transformers" and ("For" in cls or cls.endswith("Model"))


def reports(program: Program) -> Iterator[Report]:
    for fact in prepared_apart(program):
        site = fact.alone.site
        assert isinstance(site.node, ir.Call)
        call = program.text(site.path, site.node.func)
        yield Report(
            program.span(site),
            f"`{call}` {_harm(program, fact)}",
            "model and optimizer prepared apart" if fact.build is None else "too late",
            _evidence(program, fact),
            partial(fix, program, fact),
        )


def _harm(program: Program, fact: PreparedApart) -> str:
    if fact.build is not None:
        return (
            f"flattens the model's parameters, and `{fact.build.label}` "
            f"({program.where(fact.build.site, fact.alone.site)}) still updates the old ones: "
            "the model never trains"
        )
    return "raises ValueError: under FSDP2, model and optimizer must be prepared in one call"


def _evidence(program: Program, fact: PreparedApart) -> tuple[Evidence, ...]:
    built = (
        () if fact.build is None else (program.evidence(fact.build.site, "optimizer built here"),)
    )
    plugin = () if fact.plugin is None else (program.evidence(fact.plugin, "turns FSDP on"),)
    other = () if fact.other is None else (program.evidence(fact.other.site, "the other call"),)
    return (*plugin, *built, *other, *program.conditions(fact.alone.site))


def fix(program: Program, fact: PreparedApart) -> Fix | Declined:
    """Build the optimizer later, or prepare it with its model."""
    if fact.build is not None:
        return _built_later(program, fact)
    if fact.other is None:
        return Declined(
            "the program does not prepare the other one; pass both to one `prepare` call"
        )
    frame = common_frame(fact.alone.site, fact.other.site)
    if frame is None:
        return Declined(
            "the two calls are in functions without a common caller; "
            "prepare both in one call by hand"
        )
    path, *nodes = frame
    one, two = nodes
    if not isinstance(one, ir.Call) or not isinstance(two, ir.Call):
        return Declined("other code runs between the two calls; prepare both in one call by hand")
    if one is not fact.alone.site.node or two is not fact.other.site.node:
        return Declined(
            "the two calls are in different functions; prepare both in one call by hand"
        )
    return prepare_together(Code.of(program.tree(path)), (one, two))


def _built_later(program: Program, fact: PreparedApart) -> Fix | Declined:
    assert fact.build is not None
    frame = common_frame(fact.build.site, fact.alone.site)
    if frame is None:
        return Declined(
            "the optimizer and the call are in functions without a common caller; "
            "build the optimizer after `prepare` by hand"
        )
    path, built, prepared = frame
    if not isinstance(built, ir.Call):
        return Declined("the optimizer is built where its class is defined")
    captures = nodes_in_frame(fact.build.optimizer.captures, fact.build.site, built)
    return build_after_sharding(Code.of(program.tree(path)), built, captures, prepared)


@builder
def prepare_together(code: Code, calls: tuple[ir.Call, ir.Call]) -> Fix:
    """``a = x.prepare(a)`` and ``b = x.prepare(b)`` to ``a, b = x.prepare(a, b)``."""
    first, second = sorted(calls, key=lambda call: call.start)
    above, below = _assignment(code, first), _assignment(code, second)
    if code.block(above) != code.block(below):
        raise NoFixError("other code runs between the two calls; prepare both in one call by hand")
    if code.slice(first.func) != code.slice(second.func):
        raise NoFixError("the two calls are not on the same accelerator")
    given = [path for argument in first.args for path in names_in(argument.value).all]
    changed = clash(given, written_between(code, second, above.end, below.start))
    if changed is not None:
        raise NoFixError(f"`{changed}` changes between the two calls")
    target = below.targets[0]
    arguments = code.text[first.args[0].start : first.args[-1].end]
    made = code.slice(above.targets[0])
    removed = [code.delete_lines(*code.extent(above))]
    used = _used_between(code, second, above.end, second.end)
    if made != arguments and clash(names_in(above.targets[0]).all, used) is not None:
        if len(first.args) != 1 or dotted(above.targets[0]) is None:
            raise NoFixError(
                f"`{made}` is used before the second call; give the model a name before both, "
                "and prepare it with its optimizer by hand"
            )
        only = first.args[0]
        removed = [code.edit(first.start, only.start, ""), code.edit(only.end, first.end, "")]
        arguments = made
    edits = (
        *removed,
        code.edit(target.start, target.start, f"{made}, "),
        code.edit(second.args[0].start, second.args[0].start, f"{arguments}, "),
    )
    return Fix("prepare the model and its optimizer in one call", Safety.UNSAFE, edits)


def _used_between(code: Code, use: ir.Node, start: int, end: int) -> set[str]:
    scope = code.function(use) or code.module
    nodes = (node for node in ir.walk(scope) if start <= node.start < end)
    return {path for node in nodes if (path := dotted(node)) is not None}


def _assignment(code: Code, call: ir.Call) -> ir.Assign:
    """The statement of ``call``, if it does nothing but name what comes out of it."""
    statement = code.statement(call)
    plain = isinstance(statement, ir.Assign) and statement.value is call
    if not plain or not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        raise NoFixError(f"`{code.short(statement)}` does more than call `prepare`")
    if not call.args or any(a.star or a.keyword is not None for a in call.args):
        raise NoFixError(f"the arguments of `{code.short(call)}` are not plain names")
    if not code.alone(statement) or code.comments(call.start, call.end):
        raise NoFixError(f"`{code.short(statement)}` shares its lines with other code or comments")
    return statement
