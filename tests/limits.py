"""A smaller budget, so that a small program reaches its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsdplint.engine import budget


def limit(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    """Lower limits of the `Budget` of every analysis from now on, that of a path for good."""
    if "path_steps" in limits:
        limits.setdefault("long_path_steps", limits["path_steps"])
    lower = replace(budget.BUDGET, **limits)  # type: ignore[arg-type]  # of an int or a float each
    monkeypatch.setattr(budget, "BUDGET", lower)
