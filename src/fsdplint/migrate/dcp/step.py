"""The step that finds the checkpoints of a program, and the loads that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fsdplint.engine import ir
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.knowledge.names import FSDP1, FULLY_SHARD
from fsdplint.migrate.dcp.background import waits
from fsdplint.migrate.dcp.files import existence, last_part, removals
from fsdplint.migrate.dcp.guards import rank_tests
from fsdplint.migrate.dcp.reads import Load, loads
from fsdplint.migrate.dcp.resumes import resumed
from fsdplint.migrate.dcp.saves import saved
from fsdplint.migrate.dcp.writes import Write, write_calls, write_of
from fsdplint.migrate.step import Change, Context, Found, Kept, Question, attempt, kept


def checkpoints(context: Context) -> Iterator[Found]:
    """Yield what becomes of each write of a state and each load of one."""
    old = list(_calls(context, FSDP1, "FullyShardedDataParallel", "FSDP"))
    reason = "FSDP1 shards this model; run `fsdplint migrate fsdp2` first"
    yield from (kept(code, call, reason) for code, call in old)
    if old or not any(_calls(context, FULLY_SHARD, "fully_shard")):
        return
    known = rank_tests(context)
    writes: list[Write] = []
    unknown: list[Kept] = []
    for code, call, done in write_calls(context):
        try:
            write = write_of(context, code, call, done)
        except NoFixError as reason:
            if not done:
                unknown.append(kept(code, call, reason))
            continue
        if write is not None:
            writes.append(write)
    pairs = [(load, _written(load, writes)) for load in loads(context, known)]
    # Without a load of any state, what is saved is an export.
    if any(taken.kind in ("model", "optimizer") for load, _ in pairs for taken in load.taken):
        yield from unknown
    loaded = [write for _, found in pairs for write in found]
    # What nothing loads is an export, too.
    chosen = [write for write in writes if write.done or write in loaded]
    yield from _changes(context, chosen, pairs, known)


def _changes(
    context: Context,
    writes: Sequence[Write],
    pairs: Sequence[tuple[Load, Sequence[Write]]],
    known: frozenset[ir.Node],
) -> Iterator[Found]:
    for load, found in pairs:
        if found and not load.done:
            change = partial(resumed, context, load, found[0])
            yield from attempt(load.code, load.call, change)
    yield from waits(context, writes)
    for write in writes:
        if not write.done:
            change = partial(_saved, context, write, writes, known)
            yield from attempt(write.code, write.call, change)
    for code in dict.fromkeys(write.code for write in writes):
        yield from removals(context, code)
    if writes:
        uses = [(each.code, each.path) for each in writes]
        uses += [(load.code, load.path) for load, found in pairs if found]
        names = {last_part(code, path) for code, path in uses}
        yield from existence(context, names, {code for code, _ in uses})


def _saved(
    context: Context, write: Write, writes: Sequence[Write], known: frozenset[ir.Node]
) -> Change:
    done = [context.name(each.code, each.call.func) for each in writes if each.done]
    if done:
        return saved(write, known, done[0].rpartition(".")[2])
    question = Question(
        writes[0].code.span(writes[0].call),
        "async-save",
        "Write checkpoints in the background while training goes on, with `async_save`?",
        ("no", "yes"),
    )
    in_background = context.decided(question) == "yes"
    return saved(write, known, "async_save" if in_background else "save")


def leftovers(context: Context) -> Iterator[Kept]:
    """Yield the loads of files that became folders whose contents other code takes."""
    done = ((code, call) for code, call, done in write_calls(context) if done)
    writes = [write_of(context, code, call, True) for code, call in done]
    names = {last_part(write.code, write.path) for write in writes if write is not None}
    for load in loads(context, rank_tests(context)):
        if load.whole is not None and not load.done and last_part(load.code, load.path) in names:
            reason = "other code takes the checkpoint as a whole; load it where its keys are read"
            yield kept(load.code, load.call, reason)


def _calls(context: Context, name: str, *words: str) -> Iterator[tuple[Code, ir.Call]]:
    """Yield the calls of what has a name in PyTorch, in files with one of the words."""
    for code in context.codes(*words):
        for node in code.walk(*words):
            if isinstance(node, ir.Call) and context.name(code, node.func) == name:
                yield code, node


def _written(load: Load, writes: Sequence[Write]) -> list[Write]:
    """Return the writes whose files a load may read: those of the same keys, or of one name."""
    keys = {each.key for each in load.taken if each.kind in ("model", "optimizer", "object")}
    if not keys:
        return []
    found = []
    for write in writes:
        states = {entry.key for entry in write.entries if entry.state is not None}
        if states & keys and (keys != {""} or _same_file(load, write)):
            found.append(write)
    return found


def _same_file(load: Load, write: Write) -> bool:
    """Return whether a file that is one state is the one that a load reads, by its last part."""
    state = write.entries[0].state
    assert state is not None
    optimizer = any(each.kind == "optimizer" for each in load.taken)
    kinds = {each.kind for each in load.taken}
    if "object" not in kinds and bool(state.optimizer) is not optimizer:
        return False
    return last_part(load.code, load.path) == last_part(write.code, write.path)
