"""Parameters that DDP found frozen, whose gradients it never averaged (run on torch 2.13)."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.migrate.step import Context

_SWITCH = "requires_grad"
_THAWED = (
    "gradients of parameters that are frozen here and trained later are averaged over ranks, which "
    "DDP did not do"
)


def trained_later(context: Context) -> str:
    """Return what differs in a program that freezes parameters and trains them again."""
    return _THAWED if {True, False} <= set(_frozen(context)) else ""


def _frozen(context: Context) -> Iterator[bool]:
    """Yield whether the program freezes parameters, or trains them again, wherever it does."""
    for code in context.codes(_SWITCH):
        for node in ir.walk(code.module):
            match node:
                case ir.Assign(targets=(ir.Attribute(attr="requires_grad"),), value=value):
                    yield from _possible(value)
                case ir.Call(func=ir.Attribute(attr="requires_grad_"), args=args):
                    yield from _possible(args[0].value) if args else (False,)


def _possible(trains: ir.Expr) -> tuple[bool, ...]:
    """Return what ``requires_grad`` may be turned to, as whether that freezes."""
    return (not trains.value,) if isinstance(trains, ir.Constant) else (True, False)
