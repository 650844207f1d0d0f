"""What the files hold that `torch.save` writes of a sharded program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.checkpoints import (
    ASYNC_SAVE,
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
    SAVE,
    TORCH_SAVE,
)
from fsdplint.knowledge.ranks import UNEQUAL
from fsdplint.migrate.dcp.states import State, state_of
from fsdplint.migrate.step import Context

_GETTERS = frozenset({GET_MODEL_STATE, GET_OPTIMIZER_STATE, GET_STATE})


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file holds under a key, "" for the whole of it.

    Attributes:
        state: the state that it is, None for another value.
        sometimes: a condition decides whether it is in the file.
    """

    key: str
    value: ir.Expr
    state: State | None
    sometimes: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A call that writes a checkpoint.

    Attributes:
        done: DCP writes it already.
        is_unequal: each rank computes a path of its own, such as one with the time.
    """

    code: Code
    call: ir.Call
    value: ir.Expr
    path: ir.Expr
    entries: tuple[Entry, ...]
    done: bool
    is_unequal: bool = False

    @property
    def kind(self) -> str:
        """What the file is of, for the name of a variable."""
        return self.kinds.get("", "checkpoint")

    @property
    def kinds(self) -> dict[str, str]:
        """What the states of the file are of, by their keys."""
        return {each.key: each.state.kind for each in self.entries if each.state is not None}

    @property
    def is_raw(self) -> bool:
        """Whether the file holds the shards of one rank only."""
        return any(each.state is not None and each.state.raw for each in self.entries)


def write_calls(context: Context) -> Iterator[tuple[Code, ir.Call, bool]]:
    """Yield the calls that write a file by `torch.save` or a checkpoint, and whether it is one."""
    for code in context.codes("save"):
        for node in code.walk("save"):
            name = context.name(code, node.func) if isinstance(node, ir.Call) else ""
            if isinstance(node, ir.Call) and name in (TORCH_SAVE, SAVE, ASYNC_SAVE):
                yield code, node, name != TORCH_SAVE


def write_of(context: Context, code: Code, call: ir.Call, done: bool) -> Write | None:
    """Return what a call writes, None if there is no state in it.

    Raises:
        NoFixError: there may be, but not all of it is known.
    """
    value = argument_of(call, 0, "state_dict" if done else "obj")
    path = argument_of(call, -1, "checkpoint_id") if done else argument_of(call, 1, "f")
    if value is None or path is None:
        return None
    whole = state_of(context, code, value.value)
    if whole is not None:
        entry = Entry("", value.value, whole)
        unequal = _is_unequal(context, code, path.value)
        return Write(code, call, value.value, path.value, (entry,), done, unequal)
    items = items_of(code, value.value)
    if items is None:
        _check_stateless(context, code, value.value)
        _check_callers(context, code, value.value)
        return None
    entries = tuple(
        Entry(key, each, state_of(context, code, each), _is_sometimes(code, each, value.value))
        for key, each in items
    )
    for each in entries:
        if each.state is None:
            _check_stateless(context, code, each.value)
    if not any(each.state for each in entries):
        return None
    unequal = _is_unequal(context, code, path.value)
    return Write(code, call, value.value, path.value, entries, done, unequal)


def _is_unequal(context: Context, code: Code, path: ir.Expr) -> bool:
    """Return whether a path is made of what no two ranks have alike, such as the time."""
    nodes = (node for source in code.sources(path) for node in ir.walk(source))
    return any(isinstance(n, ir.Call) and context.name(code, n.func) in UNEQUAL for n in nodes)


def _is_sometimes(code: Code, value: ir.Expr, of: ir.Expr) -> bool:
    """Return whether ``name["key"] = value`` may not run where the dict is written."""
    statement = code.statement(value)
    stored = isinstance(statement, ir.Assign) and isinstance(statement.targets[0], ir.Subscript)
    around = [each for each in code.ancestors(statement) if isinstance(each, ir.If)]
    return stored and any(each not in code.ancestors(of) for each in around)


def items_of(code: Code, value: ir.Expr) -> list[tuple[str, ir.Expr]] | None:
    """Return the keys and values of a dict that the text shows, with those stored later."""
    meant = code.meaning(value)
    if isinstance(meant, ir.Name):
        return _built(code, meant)
    if isinstance(meant, ir.DictDisplay):
        keys = [key.value if isinstance(key, ir.Constant) else None for key, _ in meant.items]
        values = [each for _, each in meant.items]
    elif isinstance(meant, ir.Call) and dotted(meant.func) == "dict":
        keys = [each.keyword for each in meant.args]
        values = [each.value for each in meant.args]
    else:
        return None
    texts = [key for key in keys if isinstance(key, str)]
    return list(zip(texts, values, strict=True)) if len(texts) == len(keys) else None


def _built(code: Code, name: ir.Name) -> list[tuple[str, ir.Expr]] | None:
    """Return the items of a variable that one statement makes and others add to."""
    found: list[tuple[str, ir.Expr]] | None = None
    for node in code.nodes_of(code.scope(name)):
        if not isinstance(node, ir.Assign) or len(node.targets) != 1 or node.start > name.start:
            continue
        target = node.targets[0]
        if isinstance(target, ir.Name) and target.id == name.id:
            made = items_of(code, node.value) if not isinstance(node.value, ir.Name) else None
            if found is not None or made is None:
                return None
            found = made
        elif isinstance(target, ir.Subscript) and dotted(target.value) == name.id:
            index = target.index
            if found is None or not isinstance(index, ir.Constant):
                return None
            found.append((str(index.value), node.value))
    return found


def _check_stateless(context: Context, code: Code, value: ir.Expr) -> None:
    """Raise `NoFixError` if a value that is not known is made with the state of a model."""
    for source in code.sources(value):
        for node in ir.walk(source):
            if isinstance(node, ir.Call) and context.name(code, node.func) in _GETTERS:
                raise NoFixError(
                    f"it is not known how `{code.short(value)}` holds `{code.short(node)}`; save a "
                    "dict with constant keys, then migrate again"
                )


def _check_callers(context: Context, code: Code, value: ir.Expr) -> None:
    """Raise `NoFixError` if a value is a parameter that a caller gives the state of a model."""
    function = code.function(value)
    if function is None or not isinstance(value, ir.Name) or not code.is_parameter(value):
        return
    names = [each.name for each in function.parameters]
    for other in context.codes(function.name):
        for call in other.walk(function.name):
            if not isinstance(call, ir.Call) or ir.last_name(call.func) != function.name:
                continue
            position = names.index(value.id) - isinstance(call.func, ir.Attribute)
            given = argument_of(call, max(position, 0), value.id)
            items = None if given is None else items_of(other, given.value)
            states = [state_of(context, other, each) for _, each in items or ()]
            if given is not None and (any(states) or state_of(context, other, given.value)):
                raise NoFixError(
                    f"`{other.short(call)}` puts the checkpoint together; save it there, where its "
                    "parts are known"
                )
