"""Calls of `Trainer.save_model` that write nothing, since states are sharded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.configs.accelerate import Setting
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.engine import ir
from fsdplint.engine.facts.training_arguments import arguments_of
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.knowledge.frameworks import STATE_TYPE, WHOLE_STATE, framework
from fsdplint.knowledge.transformers_settings import (
    SAVES_FULL,
    SETS_STATES,
    SHARDED,
    TRAINER_ARGUMENTS,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD929",
    summary="`Trainer.save_model` writes nothing, since states are sharded",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Few findings in public code were read.",
)


@dataclass(frozen=True, slots=True)
class EmptySave:
    """A save of a trainer whose arguments have states sharded."""

    tree: Tree
    call: ir.Call
    settings: TrainerSettings
    states: Setting


def reports(program: Program) -> Iterator[Report]:
    """Yield a report for each call that writes nothing."""
    # A program that sets the kind of states itself may do so before this call.
    if any(SETS_STATES in unit.text for unit in program.units):
        return
    for save in empty_saves(program):
        tree, call = save.tree, save.call
        yield Report(
            Span(tree.path, call.start, call.end),
            f"`{Code.of(tree).short(call)}` writes nothing: `{SHARDED}` makes `Trainer` save the "
            "model in checkpoints only",
            "writes nothing",
            (Evidence(save.settings.span(save.states.entry), "states are sharded"),),
            partial(_fix, Code.of(tree), call),
        )


def empty_saves(program: Program) -> Iterator[EmptySave]:
    """Yield saves of trainers whose arguments are in the same scope."""
    for tree in program.trees_with(SAVES_FULL):
        for call in tree.walk(SAVES_FULL):
            if isinstance(call, ir.Call) and (arguments := _arguments(program, tree, call)):
                settings = arguments_of(program, tree, arguments)
                states = settings.get(STATE_TYPE) if settings else None
                if settings and states and _are_sharded(settings, states):
                    yield EmptySave(tree, call, settings, states)


def _arguments(program: Program, tree: Tree, save: ir.Call) -> ir.Call | None:
    """Return the call that makes the arguments of the trainer that saves, None if unknown."""
    if not isinstance(save.func, ir.Attribute) or save.func.attr != SAVES_FULL:
        return None
    trainer = tree.meaning(save.func.value)
    if not isinstance(trainer, ir.Call):
        return None
    of = framework(program.project.library_name(tree.path, trainer.func))
    if of is None or of.setting != TRAINER_ARGUMENTS or SAVES_FULL not in of.roles:
        return None
    given = [each.value for each in trainer.args if each.keyword == TRAINER_ARGUMENTS]
    arguments = tree.meaning(given[0]) if given else None
    return arguments if isinstance(arguments, ir.Call) else None


def _are_sharded(settings: TrainerSettings, states: Setting) -> bool:
    has_effect = settings.all(lambda release, version: release.has_effect(STATE_TYPE, version))
    return bool(settings.shards and has_effect) and states.word == SHARDED


@builder
def _fix(code: Code, call: ir.Call) -> Fix:
    statement = code.statement(call)
    if not code.starts_line(statement) or code.is_elif(statement):
        raise NoFixError("the save shares its line with other code; put it on its own line")
    assert isinstance(call.func, ir.Attribute)
    trainer = code.slice(call.func.value)
    line = f'{trainer}.accelerator.state.fsdp_plugin.{SETS_STATES}("{WHOLE_STATE}")'
    start = code.line_start(statement.start)
    edit = code.edit(start, start, f"{code.indentation(statement)}{line}{code.newline}")
    return Fix("gather the model for this save", Safety.UNSAFE, (edit,))
