"""``with FSDP.summon_full_params(…)`` around code that reads parameters, saves or generates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.fixes.state_calls import without_contexts
from fsdplint.knowledge.calls import WRAPPED
from fsdplint.knowledge.checkpoints import HELPERS
from fsdplint.knowledge.collectives import CLIP_GRAD_NORM
from fsdplint.knowledge.fsdp import SUMMON_FULL_PARAMS
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.migrate.step import Change, Context, Found, attempt

_BY_HAND = (
    "FSDP2 has no equivalent; by hand, gather a parameter with `full_tensor()`, or change the "
    "state that `get_model_state_dict` gathers and load it with `set_model_state_dict`"
)
_LISTS = ("parameters", "named_parameters")
# The parameters of PyTorch's layers.
_PARAMETERS = ("weight", "bias")
# What a DTensor says of the whole parameter without a gather.
_WHOLE = frozenset({"dim", "dtype", "device", "ndim", "numel", "requires_grad", "shape", "size"})
# Methods that gather by themselves, or that need no parameters.
_RUNS = frozenset({"eval", "forward", "generate", "train"})
# Another step replaces them first, and breaks lines as they are indented then.
_STATES = frozenset({"load_state_dict", "state_dict"})
# Functions that surely leave a parameter as it is, beside those of PyTorch without a final "_".
_READERS = frozenset({"append", "float", "id", "isinstance", "len", "print", "repr", "str", "type"})
_GENERATES = (
    "each forward gathers on all ranks, so ranks that generate different numbers of tokens need "
    "`synced_gpus=True`"
)


class _LaterError(Exception):
    """Something in the block has to be changed first."""


def full_params(context: Context) -> Iterator[Found]:
    """Yield a change for each block that only reads the model, and what cannot be changed."""
    for code in context.codes("summon_full_params"):
        for node in code.walk("summon_full_params"):
            if not isinstance(node, ir.Call) or context.name(code, node.func) != SUMMON_FULL_PARAMS:
                continue
            with suppress(_LaterError):
                yield from attempt(code, node, partial(_unwrapped, context, code, node))


def _unwrapped(context: Context, code: Code, call: ir.Call) -> Change:
    item = code.parent(call)
    block = code.parent(item)
    given = argument_of(call, 0, "module")
    model = None if given is None else dotted(given.value)
    if not isinstance(item, ir.WithItem) or not isinstance(block, ir.With) or model is None:
        raise NoFixError(_BY_HAND)
    with_grads = argument_of(call, 5, "with_grads")
    if item.target is not None or not (with_grads is None or _is_plain(call, with_grads)):
        raise NoFixError(_BY_HAND)
    edits: list[Edit] = []
    generates = False
    for node in (n for each in block.body for n in ir.walk(each)):
        if isinstance(node, (ir.Name, ir.Attribute)) and dotted(node) == model:
            edits += _use(context, code, block, node)
            generates |= "generate" in ir.last_name(code.parent(node))
    if edits and any(means_rank(code.slice(test)) for test in _tests(code, block)):
        raise NoFixError(
            "only some ranks reach it, and a gather needs all of them: it would hang; gather by "
            "hand where every rank runs"
        )
    if edits and _some_are_plain(context):
        raise NoFixError(
            "parameters that are not sharded have no `full_tensor()`; gather the others by hand"
        )
    recurse = argument_of(call, 1, "recurse")
    alone = recurse is not None and code.slice(recurse.value) == "False"
    what = f"gather what the block reads of `{model}`" if edits else f"remove `{code.short(call)}`"
    return Change(
        code.span(call),
        what,
        tuple(without_contexts(code, block, {call}, edits)),
        differs=_GENERATES if generates and not alone else "",
    )


def _is_plain(call: ir.Call, with_grads: ir.Argument) -> bool:
    """True if every rank gets the gradients, and keeps what the block changes."""
    value = with_grads.value
    return isinstance(value, ir.Constant) and value.value is True and len(call.args) == 2


def _some_are_plain(context: Context) -> bool:
    """True if a sharding call, migrated or not, may leave parameters as they are."""
    shards = (shard for trace in context.program.traces for shard in trace.of(Shard))
    return any(shard.may_leave_out for shard in shards)


def _tests(code: Code, node: ir.Node) -> Iterator[ir.Expr]:
    for each in code.ancestors(node):
        if isinstance(each, ir.Function):
            return
        if isinstance(each, (ir.If, ir.Conditional)):
            yield each.test


def _use(context: Context, code: Code, block: ir.With, node: ir.Expr) -> Iterator[Edit]:
    """Yield the edits of one use of the model."""
    owner, parent = node, code.parent(node)
    if isinstance(parent, ir.Attribute) and parent.attr in WRAPPED:
        yield code.edit(node.end, parent.end, "")
        owner, parent = parent, code.parent(parent)
    around = code.parent(parent)
    if isinstance(parent, ir.Call) and parent.func is owner:
        return
    if isinstance(parent, ir.Argument) and isinstance(around, ir.Call):
        name = context.name(code, around.func)
        if name.startswith(f"{HELPERS}.") or name == "isinstance":
            return
    if not isinstance(parent, ir.Attribute):
        yield from _read(context, code, block, owner)
        return
    called = isinstance(around, ir.Call) and around.func is parent
    clip = code.parent(code.parent(around))
    if called and isinstance(clip, ir.Call) and context.name(code, clip.func) == CLIP_GRAD_NORM:
        yield from _clipped(code, block, clip)
    elif called and parent.attr in _LISTS and isinstance(around, ir.Call):
        yield from _listed(context, code, block, around)
    elif called and parent.attr in _STATES:
        raise _LaterError
    elif called and parent.attr in _RUNS:
        return
    elif not called:
        yield from _read(context, code, block, owner)
    else:
        raise NoFixError(_BY_HAND)


def _clipped(code: Code, block: ir.With, clip: ir.Call) -> Iterator[Edit]:
    """Yield what makes a plain tensor of the norm, which is that of all shards with DTensors."""
    gathers = [each.value for each in block.items if isinstance(each.value, ir.Call)]
    if not any(argument_of(call, 5, "with_grads") for call in gathers):
        raise NoFixError(_BY_HAND)
    _check_reached(code, block, clip)
    if not isinstance(code.parent(clip), ir.Expression):
        yield code.edit(clip.end, clip.end, ".full_tensor()")


def _read(context: Context, code: Code, block: ir.With, owner: ir.Node) -> Iterator[Edit]:
    """Yield the gather of a parameter that is read by its path, such as ``model[0].weight``."""
    path = owner
    while not (isinstance(path, ir.Attribute) and path.attr in _PARAMETERS):
        above = code.parent(path)
        if not isinstance(above, (ir.Attribute, ir.Subscript)) or above.value is not path:
            raise NoFixError(_BY_HAND)
        path = above
    yield from _gather(context, code, block, path)


def _gather(context: Context, code: Code, block: ir.With, parameter: ir.Node) -> Iterator[Edit]:
    """Yield the gather of one parameter, unless what is read of it needs none."""
    _check_reads(context, code, block, parameter)
    if _is_whole(code, parameter):
        return
    _check_reached(code, block, parameter)
    yield code.edit(parameter.end, parameter.end, ".full_tensor()")


def _is_whole(code: Code, parameter: ir.Node) -> bool:
    parent = code.parent(parameter)
    return isinstance(parent, ir.Attribute) and parent.attr in _WHOLE


def _targets(statement: ir.Assign | ir.AugAssign | ir.Delete) -> tuple[ir.Expr, ...]:
    return (statement.target,) if isinstance(statement, ir.AugAssign) else statement.targets


def _check_reads(context: Context, code: Code, block: ir.With, parameter: ir.Node) -> None:
    """Raise `NoFixError` for what may change a parameter, or reads its gradient."""
    node, parent = parameter, code.parent(parameter)
    while isinstance(parent, (ir.Attribute, ir.Subscript)) and parent.value is node:
        attr = parent.attr if isinstance(parent, ir.Attribute) else ""
        if attr == "grad" or (attr.endswith("_") and not attr.endswith("__")):
            raise NoFixError(_BY_HAND)
        node, parent = parent, code.parent(parent)
    if isinstance(parent, (ir.Assign, ir.AugAssign, ir.Delete)) and node in _targets(parent):
        raise NoFixError(_BY_HAND)
    call = code.parent(parent)
    if (
        not isinstance(parent, ir.Argument)
        or not isinstance(call, ir.Call)
        or node is not parameter
    ):
        return
    name = context.name(code, call.func) or ir.last_name(call.func)
    pure = name.startswith("torch.") and not name.endswith("_") and "distributed" not in name
    if _writes_back(block) and not pure and name not in _READERS:
        raise NoFixError(_BY_HAND)


def _writes_back(block: ir.With) -> bool:
    """True if FSDP1 keeps what a block changes."""
    calls = (item.value for item in block.items if isinstance(item.value, ir.Call))
    given = (argument_of(call, 2, "writeback") for call in calls)
    values = (argument.value for argument in given if argument is not None)
    return not any(isinstance(value, ir.Constant) and value.value is False for value in values)


def _check_reached(code: Code, block: ir.With, node: ir.Node) -> None:
    """Raise `NoFixError` if only some ranks may reach a gather in the block."""
    for each in code.ancestors(node):
        if each is block:
            return
        if isinstance(each, (ir.If, ir.Conditional, ir.Lambda, ir.FunctionDef, ir.Try)):
            test = each.test if isinstance(each, (ir.If, ir.Conditional)) else None
            if test is None or means_rank(code.slice(test)):
                raise NoFixError(
                    "only some ranks may reach what reads a parameter in it, and a gather needs "
                    "all of them; gather by hand where every rank runs"
                )


def _listed(context: Context, code: Code, block: ir.With, call: ir.Call) -> Iterator[Edit]:
    """Yield the gathers of a loop or a comprehension over the model's parameters."""
    loop = code.parent(call)
    if not isinstance(loop, (ir.For, ir.Clause)) or loop.iterable is not call:
        raise NoFixError(_BY_HAND)
    target = loop.target
    if isinstance(target, ir.Collection) and target.elements:
        target = target.elements[-1]
    if not isinstance(target, ir.Name):
        raise NoFixError(_BY_HAND)
    within = loop.body if isinstance(loop, ir.For) else (code.parent(loop),)
    uses = [
        node
        for each in within
        for node in ir.walk(each)
        if isinstance(node, ir.Name) and node.id == target.id and node is not target
    ]
    if isinstance(loop, ir.Clause):
        for use in uses:
            yield from _gather(context, code, block, use)
        return
    yield from _first(context, code, block, loop, target.id, uses)


def _first(
    context: Context, code: Code, block: ir.With, loop: ir.For, name: str, uses: list[ir.Name]
) -> Iterator[Edit]:
    """Gather a loop's parameter before its body, which some ranks may skip parts of."""
    for use in uses:
        _check_reads(context, code, block, use)
    needed = not all(_is_whole(code, use) for use in uses)
    if not needed:
        return
    ends = any(isinstance(n, (ir.Break, ir.Return)) for each in loop.body for n in ir.walk(each))
    first = loop.body[0]
    if ends or not code.starts_line(first):
        raise NoFixError(_BY_HAND)
    _check_reached(code, block, loop)
    line = f"{code.indentation(first)}{name} = {name}.full_tensor()"
    header = code.line_end(code.text.index(":", loop.iterable.end))
    yield code.insert_lines(header, f"{line}{code.newline}")
