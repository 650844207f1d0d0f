"""TOML by the standard library or, before Python 3.11, by the package that became part of it."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from tomllib import loads
else:
    from tomli import loads

__all__ = ["loads"]
