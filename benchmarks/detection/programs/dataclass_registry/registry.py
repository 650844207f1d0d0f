"""Builders by name: what a config's strings stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MODELS: dict[str, Callable[..., Any]] = {}
OPTIMIZERS: dict[str, Callable[..., Any]] = {}


def register(table: dict[str, Callable[..., Any]], name: str) -> Callable[..., Any]:
    def add(builder: Callable[..., Any]) -> Callable[..., Any]:
        table[name] = builder
        return builder

    return add


def build(table: dict[str, Callable[..., Any]], name: str, *args: Any, **kwargs: Any) -> Any:
    if name not in table:
        raise KeyError(f"{name!r} is not one of {sorted(table)}")
    return table[name](*args, **kwargs)
