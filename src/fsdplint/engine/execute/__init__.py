"""Abstract execution: entries of a program, path by path, into traces of events."""

from fsdplint.engine.execute.explore import explore

__all__ = ["explore"]
