"""A place in a program as one path reaches it: through which calls, under which branches."""

from __future__ import annotations

from typing import NamedTuple

from fsdplint.engine import ir

# How many ranks represent a distributed run, however many it has.
RANKS = 8
EVERY_RANK = frozenset(range(RANKS))


class Guard(NamedTuple):
    """A branch that had to be taken; a tuple, since very many are made.

    Attributes:
        key: what the condition is remembered by; equal keys decide alike on one path.
        taken: the truth of the condition on this path.
        divergent: the condition differs between ranks.
        progress: the condition depends on the element of a loop (a step count, a batch).
        early: the other outcome left the function or loop before.
        ranks: the ranks of a distributed run that may take it.
        rank_tests: the parts of the test that distinguish ranks.
        rank_sources: the functions and variables that the rank in these parts comes from, "" where
            that is not known.
    """

    key: object
    path: str
    test: ir.Node
    taken: bool
    divergent: bool = False
    progress: bool = False
    early: bool = False
    ranks: frozenset[int] = EVERY_RANK
    rank_tests: tuple[ir.Node, ...] = ()
    rank_sources: frozenset[str] = frozenset()

    @property
    def is_case(self) -> bool:
        """True if it is a case of a ``match``."""
        first = self.test.left if isinstance(self.test, ir.BoolOp) else self.test
        return isinstance(first, ir.Matches)


class Site(NamedTuple):
    """A node as it is reached: through which calls, under which branches.

    Attributes:
        calls: the call nodes that lead here from the entry, outermost first, each with its file.
    """

    path: str
    node: ir.Node
    calls: tuple[tuple[str, ir.Node], ...] = ()
    guards: tuple[Guard, ...] = ()

    def ranks(self) -> frozenset[int]:
        """Return the ranks of a distributed run that may get here."""
        return EVERY_RANK.intersection(*(guard.ranks for guard in self.guards))

    def frames(self) -> tuple[tuple[str, ir.Node], ...]:
        """Return the calls that lead here and the node itself: one node per active function."""
        return (*self.calls, (self.path, self.node))
