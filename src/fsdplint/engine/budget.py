"""How much of a program the engine follows.

Each limit is for one kind of cost. Code beyond it is recorded as an `EarlyStop`, except where the
description says that no code is left out. A budget can hide a finding but not produce one: what a
path did before it was cut, it did. That something is absent cannot be read off a trace that was
cut; `engine.must` decides that from the text. Limits on the size of a value (a long list, say) are
beside the code that builds it: there the value becomes unknown, and the path goes on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one analysis; about 60,000 steps take a second.

    Attributes:
        depth: calls inside one another; a deeper call has an unknown result. A function that calls
            itself runs twice, which covers all its calls, as one pass covers a loop.
        path_steps: the statements and expressions of one path.
        long_path_steps: the same once every entry had its turn.
        path_cost: what one path leaves for rules to look at, mostly events; rules compare the
            sharding calls of a path with each other.
        paths: the paths through one entry.
        entry_steps: the steps of all paths through one entry.
        unsharded_entry_steps: the same where none of the paths shards.
        stale_steps: steps of paths in a row without a new event.
        repeated_steps: the same where the next path only combines branches already followed. No
            code is left out.
        many_path_steps: the steps of a path, on average, beyond which an entry whose path shards
            waits until others had their turn: each of its paths takes many new outcomes then.
        search_steps: the steps in which entries look for a path that shards one after the other,
            once all had their first turn.
        rest_steps: the steps of one turn of an entry that has paths left, when all had their first.
        entry_cost: the cost of all paths through one entry.
        cut_paths: paths of one entry that are cut before they shard.
        repeats: paths of one entry that only combine followed branches. No code is left out.
        cut_path_steps: the steps that a path has before it shards, at least, where the paths before
            it were cut; the more were cut, the fewer it has.
        cuts_per_function: paths that are cut in one function before later ones stop on entering it.
        unsharded_file_steps: the steps of entries in one file, none of which shards.
        unsharded_steps: the steps of entries one after the other, none of which shards.
        steps: the steps of all entries outside tests, about two minutes.
        steps_behind: those of them that may be taken once every entry had its turn: one half for
            what is left of entries, the other for those that were put off, and what is left then.
        steps_with_tests: the steps of all entries after which no further test is followed.
        test_steps: the steps that tests may take even so.
        shard_pairs: pairs of sharding calls, over all paths of all entries.
        users: in a large project, files taken for using code that shards.
    """

    depth: int = 60
    path_steps: int = 150_000
    long_path_steps: int = 400_000
    path_cost: float = 4_000
    paths: int = 200
    entry_steps: int = 1_000_000
    unsharded_entry_steps: int = 200_000
    stale_steps: int = 100_000
    repeated_steps: int = 15_000
    many_path_steps: int = 25_000
    search_steps: int = 1_500_000
    rest_steps: int = 100_000
    entry_cost: float = 160_000
    cut_paths: int = 1
    repeats: int = 6
    cut_path_steps: int = 5_000
    cuts_per_function: int = 3
    unsharded_file_steps: int = 600_000
    unsharded_steps: int = 1_200_000
    steps: int = 9_000_000
    steps_behind: int = 4_500_000
    steps_with_tests: int = 6_000_000
    test_steps: int = 1_000_000
    shard_pairs: int = 1_000_000
    users: int = 1_000


BUDGET = Budget()
