"""Gathered states that rank 0 alone gets."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.values import Const, Object, Value, class_names
from fsdplint.engine.program import Program
from fsdplint.knowledge.checkpoints import (
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
)
from fsdplint.knowledge.fsdp import FULL_CONFIGS, FULL_OPTIM_STATE_DICT, STATE_DICT_TYPE
from fsdplint.knowledge.names import FSDP1, KEYWORD_ONLY

_GATHERS = (GET_MODEL_STATE, GET_OPTIMIZER_STATE, GET_STATE, FULL_OPTIM_STATE_DICT)


def states_of_rank_0(program: Program, trace: Trace) -> Iterator[Call]:
    """Calls that surely give the other ranks an empty dict."""
    for call in trace.calls(*_GATHERS, "state_dict", f"{FSDP1}.optim_state_dict"):
        if _is_for_rank_0(program, trace, call):
            yield call


def _is_for_rank_0(program: Program, trace: Trace, call: Call) -> bool:
    if any(guard.divergent for guard in call.site.guards):
        return False
    if call.name == FULL_OPTIM_STATE_DICT:
        given = call.arguments.get(3, "rank0_only")
        return not call.arguments.open and (given is None or _is_true(given))
    if call.name.startswith(FSDP1) or call.name == "state_dict":
        return _is_gathered_for_rank_0(program, trace, call)
    options = call.argument(KEYWORD_ONLY, "options")
    if not isinstance(options, Object) or options.open:
        return False
    return all(_is_true(options.keywords.get(k)) for k in ("full_state_dict", "cpu_offload"))


def _is_gathered_for_rank_0(program: Program, trace: Trace, call: Call) -> bool:
    """Whether FSDP1 gives a state under ``with FSDP.state_dict_type(…)`` to rank 0 only."""
    tree = program.tree(call.site.path)
    around = {
        item.value
        for node in tree.ancestors(call.site.node)
        if isinstance(node, ir.With)
        for item in node.items
    }
    position, keyword = 2, "state_dict_config"
    if call.name != "state_dict":
        position, keyword = 3, f"optim_{keyword}"
    for chosen in trace.calls(STATE_DICT_TYPE):
        if chosen.site.node in around and chosen.time < call.time:
            config = chosen.arguments.get(position, keyword)
            known = isinstance(config, Object) and FULL_CONFIGS & class_names(config.cls)
            return bool(known) and _is_true(config.keywords.get("rank0_only"))  # type: ignore[union-attr]  # an Object
    return False


def _is_true(value: Value | None) -> bool:
    return isinstance(value, Const) and value.value is True
