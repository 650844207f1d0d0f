"""Loads of FSDP1's optimizer states, as calls of `set_optimizer_state_dict`."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import clash, dotted, fresh, written_between
from fsdplint.fixes.policies import meaning
from fsdplint.fixes.state_calls import Rewrite, options, replaced
from fsdplint.fixes.state_options import Config, StateType
from fsdplint.knowledge.checkpoints import CHECKPOINT, HELPERS, LOAD_SHARDED_OPTIMIZER
from fsdplint.knowledge.fsdp import (
    OPTIM_STATE_DICT_TO_LOAD,
    SCATTER_FULL_OPTIM_STATE_DICT,
    SHARD_FULL_OPTIM_STATE_DICT,
)

# The positions of the model, the optimizer and the state. Source: torch 2.1 to 2.13.
_PARAMETERS = {
    OPTIM_STATE_DICT_TO_LOAD: {"model": 0, "optim": 1, "optim_state_dict": 2},
    SCATTER_FULL_OPTIM_STATE_DICT: {"full_optim_state_dict": 0, "model": 1, "optim": 3},
    SHARD_FULL_OPTIM_STATE_DICT: {"full_optim_state_dict": 0, "model": 1, "optim": 3},
}
CONVERTS = frozenset(_PARAMETERS)
# Of no importance for the helper: FSDP1 has deprecated the first, and the second is done anyway.
_DROPPED = ("optim_input", "load_directly")
_BY_HAND = "load with `set_optimizer_state_dict` by hand"


@dataclass(frozen=True, slots=True)
class _Load:
    """The parts of ``optimizer.load_state_dict(FSDP.optim_state_dict_to_load(…))``.

    Attributes:
        convert: the call of FSDP1's method.
        call: the one that loads, which is ``convert`` itself if it loads directly.
        assigned: the statement that gives ``convert``'s result to a variable, if one does.
    """

    convert: ir.Call
    call: ir.Call
    assigned: ir.Assign | None
    model: ir.Expr
    state: ir.Expr
    optimizer: ir.Expr


def optimizer_load(
    code: Code, convert: ir.Call, kind: StateType, imports: Imports, *, shares_steps: bool
) -> Rewrite:
    """Replace the load of a state that ``convert`` converts for FSDP1.

    Args:
        shares_steps: files may have one step for all parameters of a unit, as FSDP1 saves without
            ``use_orig_params=True``. FSDP2's optimizer would count it once for each parameter.

    Raises:
        NoFixError: the load is not found, or is no statement of its own.
    """
    name = meaning(code, convert.func)
    if name not in CONVERTS:
        raise NoFixError(
            f"`{code.short(convert.func)}` is of another library if an import succeeds; {_BY_HAND}"
        )
    if name == SCATTER_FULL_OPTIM_STATE_DICT:
        kind = StateType(optimizer=Config(rank0_only=True))
    elif name == SHARD_FULL_OPTIM_STATE_DICT:
        kind = StateType()
    unread = _never_read(code, convert)
    if unread is not None:
        return unread
    load = _load(code, convert)
    statement = code.statement(load.call)
    if not isinstance(statement, ir.Expression) or statement.value is not load.call:
        raise NoFixError(f"`{code.short(statement)}` does more than load the state; {_BY_HAND}")
    if not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` shares its line with other code; {_BY_HAND}")
    model, optimizer = code.slice(load.model), code.slice(load.optimizer)
    state, edits = _given(code, load)
    put = imports.name(HELPERS, "set_optimizer_state_dict")
    read = _read(code, load, imports)
    kind = StateType(full=False) if read else kind  # FSDP1 takes shards whatever the type
    form = options(imports, kind.loading(optimizer=True))
    edits.append(replaced(code, load.call, put, [model, optimizer, state, *form]))
    edits += read
    if kind.full and shares_steps:
        edits.append(_own_steps(code, statement, optimizer, imports))
    return Rewrite(load.call, tuple(edits))


def _load(code: Code, convert: ir.Call) -> _Load:
    name = meaning(code, convert.func)
    positions = _PARAMETERS[name]
    given = {each: argument_of(convert, at, each) for each, at in positions.items()}
    known = {id(argument) for argument in given.values()}
    for index, argument in enumerate(convert.args):
        dropped = argument.keyword in _DROPPED or (argument.keyword is None and index in (2, 4))
        if id(argument) not in known and (argument.star or not dropped):
            raise NoFixError(
                f"`{code.short(convert)}` has arguments that `set_optimizer_state_dict` lacks; "
                f"{_BY_HAND}"
            )
    model, state = given["model"], given[_state_of(name)[1]]
    if model is None or state is None:
        raise NoFixError(f"`{code.short(convert)}` does not show its arguments; {_BY_HAND}")
    call, assigned = _consumer(code, convert, name)
    named = given["optim"]
    if call is convert:
        if named is None:
            raise NoFixError(f"`{code.short(convert)}` names no optimizer; {_BY_HAND}")
        return _Load(convert, call, assigned, model.value, state.value, named.value)
    assert isinstance(call.func, ir.Attribute)
    optimizer = call.func.value
    if name == OPTIM_STATE_DICT_TO_LOAD and _is_in_old_order(code, convert, optimizer):
        state, model, named = convert.args
    if named is not None and code.slice(named.value) not in ("None", code.slice(optimizer)):
        raise NoFixError(
            f"`{code.short(convert)}` is for another optimizer than `{code.short(optimizer)}`; "
            f"{_BY_HAND}"
        )
    return _Load(convert, call, assigned, model.value, state.value, optimizer)


def _is_in_old_order(code: Code, convert: ir.Call, optimizer: ir.Expr) -> bool:
    """True if the state comes first and the optimizer last, as in torch 2.0."""
    plain = all(argument.keyword is None and not argument.star for argument in convert.args)
    same = plain and len(convert.args) == 3
    return same and code.slice(convert.args[2].value) == code.slice(optimizer)


def _consumer(code: Code, convert: ir.Call, name: str) -> tuple[ir.Call, ir.Assign | None]:
    """Return the call that loads, and the assignment that it gets the state from."""
    given = argument_of(convert, 4, "load_directly")
    directly = None if given is None or name != OPTIM_STATE_DICT_TO_LOAD else given.value
    if isinstance(directly, ir.Constant) and directly.value is True:
        return convert, None
    around = code.parent(code.parent(convert))
    if isinstance(around, ir.Call) and _loads(around):
        return around, None
    statement = code.statement(convert)
    if isinstance(statement, ir.Assign) and statement.value is convert:
        target = statement.targets[0]
        if len(statement.targets) == 1 and isinstance(target, ir.Name):
            return _reader(code, statement, target.id), statement
    raise NoFixError(f"the `load_state_dict` that gets this state is not known; {_BY_HAND}")


def _never_read(code: Code, convert: ir.Call) -> Rewrite | None:
    """Return the edit of a conversion whose result nothing reads: it has the state as it is."""
    statement = code.statement(convert)
    if not isinstance(statement, ir.Assign) or statement.value is not convert:
        return None
    (target, *others), scope = statement.targets, code.function(convert)
    if others or not isinstance(target, ir.Name) or scope is None or target.id in code.shared:
        return None
    named = [n for n in ir.walk(scope) if isinstance(n, ir.Name) and n.id == target.id]
    state = argument_of(convert, *_state_of(meaning(code, convert.func)))
    if len(named) > 1 or state is None:
        return None
    differs = f"nothing loads `{target.id}`, as before; call `set_optimizer_state_dict` to load it"
    edit = code.edit(convert.start, convert.end, code.slice(state.value))
    return Rewrite(convert, (edit,), differs, by_helper=False)


def _state_of(name: str) -> tuple[int, str]:
    """Return the position and the name of the parameter for the state."""
    return next((at, each) for each, at in _PARAMETERS[name].items() if each.endswith("state_dict"))


def _loads(call: ir.Call) -> bool:
    method = call.func
    return isinstance(method, ir.Attribute) and method.attr == "load_state_dict"


def _reader(code: Code, statement: ir.Assign, name: str) -> ir.Call:
    """Return the only call that reads a variable after its assignment, below in the same block."""
    named = [
        node
        for node in code.nodes_of(code.scope(statement))
        if isinstance(node, ir.Name) and node.id == name and node.start > statement.end
    ]
    read = named[0] if named else None
    call = None if read is None else code.parent(code.parent(read))
    if call is None:
        raise NoFixError(f"`{name}` is not loaded in this function; {_BY_HAND}")
    later = named[1:2]
    rebound = later and isinstance(code.parent(later[0]), ir.Assign)
    same_block = code.block(statement).statements
    if not isinstance(call, ir.Call) or not _loads(call) or (later and not rebound):
        raise NoFixError(f"`{name}` is used for more than one load; {_BY_HAND}")
    if code.statement(call) not in same_block:
        raise NoFixError(f"`{name}` is loaded under a condition of its own; {_BY_HAND}")
    return call


def _given(code: Code, load: _Load) -> tuple[str, list[Edit]]:
    """Return the text of the state, and the edits of the assignment that is not needed any more."""
    state = code.slice(load.state)
    if load.assigned is None:
        return state, []
    statement = load.assigned
    target = code.slice(statement.targets[0])
    start, end = code.line_start(statement.start), code.line_end(statement.end)
    needed = [path for node in ir.walk(load.state) if (path := dotted(node)) is not None]
    changed = written_between(code, statement, statement.end, load.call.start)
    alone = code.alone(statement) and not code.comments(start, end)
    above = start > 0 and code.line(start - 1).lstrip().startswith("#")
    if alone and not above and clash(needed, changed) is None:
        return state, [code.delete_lines(start, end)]
    return target, [code.edit(load.convert.start, load.convert.end, state)]


def _read(code: Code, load: _Load, imports: Imports) -> list[Edit]:
    """Return edits that read the state of `load_sharded_optimizer_state_dict` into FSDP2's shards.

    That function makes tensors of its own from the metadata, which are not those of FSDP2.
    """
    root = load.state
    while isinstance(root, (ir.Subscript, ir.Attribute)):
        root = root.value
    read = code.meaning(root)
    if not isinstance(read, ir.Call) or meaning(code, read.func) != LOAD_SHARDED_OPTIMIZER:
        return []
    key, reader = argument_of(read, 1, "optimizer_key"), argument_of(read, 2, "storage_reader")
    planner, statement = argument_of(read, 3, "planner"), code.statement(read)
    if key is None or reader is None or not code.alone(statement):
        raise NoFixError(f"`{code.short(read)}` does not show its arguments; {_BY_HAND}")
    get = imports.name(HELPERS, "get_optimizer_state_dict")
    model, optimizer = code.slice(load.model), code.slice(load.optimizer)
    state = f"{{{code.slice(key.value)}: {get}({model}, {optimizer})}}"
    arguments = f"storage_reader={code.slice(reader.value)}"
    if planner is not None:
        arguments += f", planner={code.slice(planner.value)}"
    module = imports.module(CHECKPOINT, "dcp")
    line = f"{module}.load({code.slice(root)}, {arguments})"
    indent = code.indentation(statement)
    return [
        code.edit(read.start, read.end, state),
        code.insert_lines(code.after(statement), f"{indent}{line}{code.newline}"),
    ]


def _own_steps(code: Code, statement: ir.Stmt, optimizer: str, imports: Imports) -> Edit:
    """Give each parameter a step of its own after a load."""
    indent, unit = code.indentation(statement), code.unit
    name, torch = fresh(code, statement, "state"), imports.module("torch", "torch")
    lines = (
        "# FSDP1 saves one step for all parameters of a unit; each gets its own here.",
        f"for {name} in {optimizer}.state.values():",
        f'{unit}if {torch}.is_tensor({name}.get("step")):',
        f'{unit}{unit}{name}["step"] = {name}["step"].clone()',
    )
    text = "".join(f"{indent}{line}{code.newline}" for line in lines)
    return code.insert_lines(code.after(statement), text)
