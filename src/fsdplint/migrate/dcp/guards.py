"""Tests by which only some ranks write a file, and the code to move out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import blocks
from fsdplint.engine.interpreter.events import PlainWrite
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import clash, names_in
from fsdplint.knowledge.ranks import CLOCKS
from fsdplint.knowledge.suspicious_words import means_rank, means_rank_count
from fsdplint.migrate.step import Context

# Calls that every rank can make as well as rank 0: they only compute paths and values.
_QUIET = frozenset(
    {
        *("join", "Path", "str", "int", "float", "dict", "list", "len", "format", "item", "get"),
        *("state_dict", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict"),
        *("StateDictOptions", "with_suffix", "with_name", "abspath", "expanduser", "vars", "zfill"),
        *("get_rng_state", "get_rng_state_all", "getstate", "get_state", "asdict", "cpu"),
        *("strftime", "isoformat"),
        # A path that depends on the time is broadcast.
        *(name.rpartition(".")[2] for name in CLOCKS),
    }
)
_LEAVES = (ir.Return, ir.Continue)


@dataclass(frozen=True, slots=True)
class Guard:
    """An ``if`` statement by which only some ranks reach a call.

    Attributes:
        test: the part of it that distinguishes ranks, as text; "" if it is true for the others.
        conditions: further tests around the call that all ranks make alike.
        moved: the statement of the call with those that prepare it, in order.
        emptied: statements that have nothing else in them, the outermost last.
    """

    place: ir.If
    test: str
    conditions: tuple[str, ...]
    moved: tuple[ir.Stmt, ...]
    emptied: tuple[ir.Stmt, ...]


def rank_tests(context: Context) -> frozenset[ir.Node]:
    """Return the tests of writes that the analysis knows to distinguish ranks."""
    return frozenset(
        guard.test
        for trace in context.program.traces
        for write in trace.of(PlainWrite)
        for guard in write.site.guards
        if guard.divergent
    )


def is_rank_test(code: Code, test: ir.Node, known: frozenset[ir.Node]) -> bool:
    """Return whether a test distinguishes ranks, as the analysis or its words say."""
    return test in known or means_rank(code.slice(test))


def guard_of(code: Code, statement: ir.Stmt, known: frozenset[ir.Node]) -> Guard | None:
    """Return what keeps some ranks from a statement in its function, None if nothing does.

    Raises:
        NoFixError: the statement cannot move out of it.
    """
    inner: ir.Node = statement
    found: ir.If | None = None
    early: ir.If | None = None
    for above in code.ancestors(statement):
        for before in _before(code, inner):
            if _leaves(before) and is_rank_test(code, before.test, known):
                early = before
        if isinstance(above, ir.Function):
            break
        if isinstance(above, ir.If) and is_rank_test(code, above.test, known):
            found = above
        inner = above
    if early is not None:
        return _early(code, statement, early, found)
    return None if found is None else _around(code, statement, found, known)


def _before(code: Code, node: ir.Node) -> list[ir.If]:
    """Return the ``if`` statements above a statement in its block."""
    block = next((b.statements for b in blocks(code.parent(node)) if node in b.statements), ())
    return [each for each in block if isinstance(each, ir.If) and each.start < node.start]


def _leaves(branch: ir.If) -> bool:
    return not branch.orelse and isinstance(branch.body[-1], _LEAVES)


def _early(code: Code, statement: ir.Stmt, place: ir.If, other: ir.If | None) -> Guard:
    """Return the guard of code that the other ranks have left before."""
    block = code.block(place).statements
    if other is not None or statement not in block:
        raise NoFixError(f"`{code.short(place)}` lets some ranks leave before; save above it")
    arm = block[block.index(place) + 1 :]
    return Guard(place, "", (), _moved(code, arm, statement), ())


def _around(code: Code, statement: ir.Stmt, place: ir.If, known: frozenset[ir.Node]) -> Guard:
    if code.is_elif(place):
        raise NoFixError(f"`{code.short(place)}` is one of several branches; save above it")
    parts = list(ir.operands(place.test, "and"))
    telling = [part for part in parts if is_rank_test(code, part, known)]
    tests = [part for part in parts if part not in telling]
    if any(isinstance(part, ir.BoolOp) and not _is_of_ranks(code, part) for part in parts):
        raise NoFixError(f"`{code.short(place.test)}` tests more than the rank; split the test")
    levels, inner = [], statement
    while code.parent(inner) is not place:
        above = code.parent(inner)
        if not isinstance(above, ir.If) or inner not in above.body or above.orelse:
            raise NoFixError(f"`{code.short(above)}` is around the save; move the save out of it")
        levels.append(above)
        tests.append(above.test)
        inner = above
    inside = inner in place.body
    if not inside and tests:
        raise NoFixError(f"`{code.short(place)}` has the save in its other branch; save above it")
    arm = place.body if inside else place.orelse
    moved = [*_moved(code, arm, inner)] if levels else [*_moved(code, arm, statement)]
    if levels:
        nested = _moved(code, levels[0].body, statement)
        moved = [*moved[:-1], *nested]
    for test in tests:
        _check_alike(code, test, place)
    emptied = _emptied(moved, [*levels, place])
    named = " and ".join(
        f"({code.slice(part)})" if isinstance(part, ir.BoolOp) else code.slice(part)
        for part in telling
    )
    texts = tuple(code.slice(test) for test in tests)
    return Guard(place, named if inside else "", texts, tuple(moved), emptied)


def _is_of_ranks(code: Code, test: ir.Node) -> bool:
    """Return whether all parts of a test ask for the rank, or whether there are any others."""
    return all(
        means_rank(code.slice(part))
        or means_rank_count(code.slice(part))
        or "initialized" in code.slice(part)
        for part in ir.operands(test)
    )


def _emptied(moved: Sequence[ir.Stmt], levels: Sequence[ir.If]) -> tuple[ir.Stmt, ...]:
    """Return the ``if`` statements that hold only what moves, the innermost first."""
    gone: list[ir.Stmt] = list(moved)
    found: list[ir.Stmt] = []
    for level in levels:
        if level.orelse or any(each not in gone for each in level.body):
            break
        gone.append(level)
        found.append(level)
    return tuple(found)


def _check_alike(code: Code, test: ir.Node, place: ir.If) -> None:
    """Raise `NoFixError` if a test may come out differently on the ranks."""
    computed = {name for each in place.body for name in names_in(each).writes}
    ordered = any(
        isinstance(node, ir.Compare) and node.op in ("LessThan", "GreaterThan")
        for node in ir.walk(test)
    )
    if ordered or clash(names_in(test).reads, computed) is not None:
        raise NoFixError(
            f"`{code.short(test)}` decides on some ranks only whether this is saved; let every "
            "rank decide alike and test it outside the rank test"
        )


def _moved(code: Code, arm: Sequence[ir.Stmt], statement: ir.Stmt) -> tuple[ir.Stmt, ...]:
    """Return a statement of an arm with those that prepare it there."""
    moved, reads = [statement], set(names_in(statement).reads)
    before = arm[: arm.index(statement)]
    for earlier in reversed(before):
        if clash(reads, names_in(earlier).writes) is None:
            continue
        _check_quiet(code, earlier)
        moved.insert(0, earlier)
        reads |= names_in(earlier).reads
    written = {name for each in moved for name in names_in(each).writes}
    for each in before:
        if each not in moved and clash(names_in(each).writes, reads):
            raise NoFixError(f"`{code.short(each)}` changes what is saved; move it out by hand")
        first = next((m for m in moved if clash(names_in(m).writes, names_in(each).reads)), None)
        if each not in moved and first is not None and first.start > each.start and written:
            raise NoFixError(f"`{code.short(each)}` uses a name that is assigned below it")
    return tuple(moved)


def _check_quiet(code: Code, statement: ir.Stmt) -> None:
    calls = [node for node in ir.walk(statement) if isinstance(node, ir.Call)]
    loud = any(ir.last_name(call.func) not in _QUIET for call in calls)
    inner = (statement.body + statement.orelse) if isinstance(statement, ir.If) else (statement,)
    if loud or not all(isinstance(each, ir.Assign) for each in inner):
        raise NoFixError(
            f"`{code.short(statement)}` prepares the save on some ranks only; give every rank the "
            "same value above the rank test"
        )


def deletions(code: Code, guard: Guard) -> list[Edit]:
    """Return the edits that remove what moves, with the statements that it leaves empty."""
    outer = guard.emptied[-1:]
    inside = {node for each in outer for node in ir.walk(each)}
    gone = [*(each for each in guard.moved if each not in inside), *outer]
    edits = [code.delete_lines(*code.extent(each)) for each in gone]
    for index, each in enumerate(gone):
        block = code.block(each).statements
        if each is block[0] and all(other in gone for other in block):
            text = f"{code.indentation(each)}pass{code.newline}"
            edits[index] = code.edit(*code.extent(each), text)
    return edits
