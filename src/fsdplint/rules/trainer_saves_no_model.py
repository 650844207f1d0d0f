"""Calls of `Trainer.save_model` that write nothing, since states are saved in shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.frameworks import framework_of, settings_of, state_type
from fsdplint.engine.interpreter.values import Object, Value, class_names
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.knowledge.frameworks import (
    CHANGES_STATE_TYPE,
    SHARDED_STATE,
    STATE_TYPE,
    WHOLE_STATE,
    is_trainer,
    is_training_arguments,
)
from fsdplint.knowledge.transformers_settings import admitted
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD929",
    summary="`Trainer.save_model` writes no model, since states are saved in shards",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="It is judged on few public repositories so far.",
)


def reports(program: Program) -> Iterator[Report]:
    if any(CHANGES_STATE_TYPE.search(unit.text) for unit in program.units):
        return
    for trace in program.traces:
        for call in trace.calls("save_model"):
            settings = settings_of(call)
            if settings is not None and _is_in_shards(program, call, settings):
                yield _report(program, call, settings)


def _is_in_shards(program: Program, call: Call, settings: Value) -> bool:
    """Return whether a trainer surely saves states in shards only."""
    assert isinstance(settings, Object)
    if framework_of(call.receiver) is None or not isinstance(call.receiver, Object):
        return False
    if not any(map(is_trainer, class_names(call.receiver.cls))):
        return False
    if any(map(is_training_arguments, class_names(settings.cls))):
        # Older releases do not read the type from the arguments.
        releases = admitted(program.admits("transformers"))
        reads = (each.has_effect(STATE_TYPE, version) for each in releases for version in (1, 2))
        if not releases or not all(reads):
            return False
    return state_type(settings) == SHARDED_STATE


def _report(program: Program, call: Call, settings: Value) -> Report:
    site, made = call.site, settings.site if isinstance(settings, Object) else None
    assert isinstance(site.node, ir.Call)
    at = (program.evidence(made, f"states are saved as {SHARDED_STATE} here"),) if made else ()
    evidence: tuple[Evidence, ...] = (*at, *program.conditions(site))
    return Report(
        program.span(site),
        f"`{program.text(site.path, site.node.func)}()` writes no model and reports no error: "
        f"with `{STATE_TYPE}` {SHARDED_STATE}, it saves nothing",
        "saves nothing",
        evidence,
        partial(_fix, program, call),
    )


def _fix(program: Program, call: Call) -> Fix | Declined:
    code = Code.of(program.tree(call.site.path))
    assert isinstance(call.site.node, ir.Call)
    function = call.site.node.func
    statement = code.statement(call.site.node)
    own = isinstance(function, ir.Attribute) and isinstance(function.value, ir.Name)
    if not own or not code.alone(statement):
        return Declined("the call is part of a longer line; choose FULL_STATE_DICT by hand")
    assert isinstance(function, ir.Attribute)
    name, indentation = code.slice(function.value), code.indentation(statement)
    lines = (
        f"{indentation}if {name}.is_fsdp_enabled:",
        f"{indentation}{code.unit}{name}.accelerator.state.fsdp_plugin"
        f'.set_state_dict_type("{WHOLE_STATE}")',
    )
    text = "".join(line + code.newline for line in lines)
    edit = code.insert_lines(code.line_start(statement.start), text)
    return Fix("gather the whole state for this save", Safety.UNSAFE, (edit,))
