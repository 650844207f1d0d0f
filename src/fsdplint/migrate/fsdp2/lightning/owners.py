"""The trainers and `Fabric`s that take a strategy: how many ranks they have, and how precise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import binders
from fsdplint.fixes.wrapping import on_one_line
from fsdplint.knowledge.lightning_settings import (
    ACCUMULATES,
    ACCUMULATOR,
    DTYPES,
    OWNER_NAMES,
    PRECISIONS_BY_NAME,
    UNSUPPORTED,
    is_owner,
    is_trainer,
)
from fsdplint.migrate.calls import definition
from fsdplint.migrate.fsdp2.lightning.moved import Moved
from fsdplint.migrate.step import Context, Question

_ALL = (None, "auto", -1, "-1")


@dataclass(frozen=True, slots=True)
class Owner:
    """A call of `Trainer` or `Fabric`."""

    code: Code
    call: ir.Call
    cls: str

    def get(self, name: str) -> ir.Expr | None:
        """Return the value of an argument, None if it is not given by its name."""
        given = argument_of(self.call, -1, name)
        return None if given is None else given.value

    @property
    def accumulates(self) -> bool:
        """Whether it may accumulate the gradients of several batches."""
        value = self.get(ACCUMULATES)
        is_one = isinstance(value, ir.Constant) and value.value in (None, 1)
        return ACCUMULATOR in self.code.text or (value is not None and not is_one)

    def check(self) -> None:
        """Raise `NoFixError` if it is given what does not go with the new strategy."""
        for name, reason in UNSUPPORTED.items():
            value = self.get(name)
            given = not isinstance(value, ir.Constant) or value.value
            if value is not None and given and re.search(reason.words, self.code.slice(value)):
                raise NoFixError(f"`{name}`: {reason.text}")

    @property
    def hides(self) -> bool:
        """Whether arguments are not written out."""
        return any(each.star for each in self.call.args)


def owners(context: Context, *, of_trainer: bool) -> Iterator[Owner]:
    """Yield the calls that make a trainer, or a `Fabric`, with a strategy."""
    for code in context.codes(*OWNER_NAMES):
        for node in code.walk(*OWNER_NAMES):
            cls = context.name(code, node.func) if isinstance(node, ir.Call) else ""
            if isinstance(node, ir.Call) and is_owner(cls) and is_trainer(cls) is of_trainer:
                owner = Owner(code, node, cls)
                if owner.get("strategy") is not None or owner.hides:
                    yield owner


def world_size(context: Context, owner: Owner, place: ir.Node, imports: Imports) -> str:
    """Return the number of all ranks, as the source of an expression at a place.

    Args:
        imports: those of the place.

    Raises:
        NoFixError: it is not known where the strategy is made.
        UndecidedError: the user has not said whether an expression is a number of devices.
    """
    devices, nodes = owner.get("devices"), owner.get("num_nodes")
    if owner.hides and (devices is None or nodes is None):
        raise NoFixError(
            f"`{owner.code.short(owner.call)}` hides its `devices` and `num_nodes`; write them out"
        )
    text = partial(_text, context, owner, place, imports)
    each = _devices(context, owner, devices, text, imports)
    count = text(nodes) if nodes is not None else "1"
    if each.isdecimal() and count.isdecimal():
        return str(int(each) * int(count))
    return each if count == "1" else f"{each} * {count}"


def _text(context: Context, owner: Owner, place: ir.Node, imports: Imports, value: ir.Expr) -> str:
    """Return the source of an owner's argument at a place."""
    code, target = owner.code, imports.code
    function = code.function(owner.call)
    if code is not target or function is not target.function(place):
        return Moved(context, code, imports).text(value)
    bound = binders(code, function or code.module)
    for node in ir.walk(value):
        before = (each.start < place.start for each in bound.get(getattr(node, "id", ""), ()))
        if isinstance(node, ir.Name) and node.id in bound and not any(before):
            raise NoFixError(f"`{node.id}` is not known yet where the strategy is made; move it up")
    return on_one_line(code, value)


def _devices(
    context: Context,
    owner: Owner,
    given: ir.Expr | None,
    text: Callable[[ir.Expr], str],
    imports: Imports,
) -> str:
    code = owner.code
    value = given if given is None else definition(code, given)
    if isinstance(value, ir.Collection):
        return str(len(value.elements))
    if value is None or (isinstance(value, ir.Constant) and value.value in _ALL):
        return f"{imports.module('torch', 'torch')}.cuda.device_count()"
    assert given is not None
    if isinstance(value, ir.Constant):
        word = str(value.value)
        return str(len(word.strip(",").split(","))) if "," in word else word
    if isinstance(value, ir.Call):
        return text(given)
    question = Question(
        code.span(owner.call),
        "devices",
        f"Is `{code.short(value)}` the number of GPUs of a node, as an integer?",
        ("yes", "no"),
    )
    if context.decided(question) == "no":
        raise NoFixError("pass the number of all ranks as `data_parallel_size` by hand")
    return text(given)


def precision(context: Context, owner: Owner) -> str:
    """Return the precision of a trainer, by its full name.

    Raises:
        NoFixError: `ModelParallelStrategy` does not support it.
        UndecidedError: the user has not said which one an expression selects.
    """
    given, code = owner.get("precision"), owner.code
    value = None if given is None else definition(code, given)
    if value is None or (isinstance(value, ir.Constant) and value.value is None):
        word = "32"
    elif isinstance(value, ir.Constant):
        word = str(value.value)
    else:
        asked = f"Which precision does `{code.short(value)}` select?"
        question = Question(code.span(owner.call), "precision", asked, tuple(DTYPES))
        word = context.decided(question)
    word = PRECISIONS_BY_NAME.get(word, word)
    if word not in DTYPES:
        raise NoFixError(
            f'`ModelParallelStrategy` has no `precision="{word}"`; choose `bf16-mixed` by hand'
        )
    return word
