"""Writes down every collective before it starts: whoever calls it, it ends in one of these.

Python's way to a collective is a method of `ProcessGroup`, which all of ``torch.distributed``,
FSDP2 among it, goes through, or an operator of ``_c10d_functional``, which functional collectives
and DTensor use and which goes on in C++. Making a group is one as well: it waits for all ranks.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # the operators are declared there
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed import ProcessGroup

from fsdplint.verify.collective_log import Ring, State
from fsdplint.verify.events import ErrorHandled, Place
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen

_METHODS = {
    "allreduce": ("all_reduce", 0),
    "allreduce_coalesced": ("all_reduce_coalesced", 0),
    "reduce": ("reduce", 0),
    "broadcast": ("broadcast", 0),
    "allgather": ("all_gather", 1),
    "allgather_coalesced": ("all_gather_coalesced", 1),
    "_allgather_base": ("all_gather_into_tensor", 1),
    "all_gather_single": ("all_gather_into_tensor", 1),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", 1),
    "all_gather_single_coalesced": ("all_gather_into_tensor_coalesced", 1),
    "reduce_scatter": ("reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 1),
    "reduce_scatter_single": ("reduce_scatter_tensor", 1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", 1),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor_coalesced", 1),
    "alltoall": ("all_to_all", 1),
    "alltoall_base": ("all_to_all_single", 1),
    "all_to_all_single": ("all_to_all_single", 1),
    "gather": ("gather", 1),
    "scatter": ("scatter", 0),
    "barrier": ("barrier", None),
    "monitored_barrier": ("monitored_barrier", None),
    "send": ("send", 0),
    "recv": ("recv", 0),
    "recv_anysource": ("recv", 0),
}
"""Methods of `ProcessGroup` in torch 2.6-2.15: what ``torch.distributed`` calls the operation, and
which argument holds the tensors; a scatter's input lies on one rank only, so its output counts."""

_OPERATORS = (
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "all_gather_into_tensor_out",
    "all_reduce",
    "all_reduce_",
    "all_reduce_coalesced",
    "all_reduce_coalesced_",
    "all_to_all_single",
    "broadcast",
    "broadcast_",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_tensor_out",
)
"""Operators of ``_c10d_functional`` and, as far as they are there, ``_c10d_functional_autograd``:
the tensors come first, the group's name last."""
_SHARD_SWAP = ("_dtensor", "shard_dim_alltoall")
_EVERYONE = "/"
"""The group of what waits for all ranks of the job before or beside any group."""


def install(seen: Seen) -> None:
    """Wrap the methods, the operators, waiting, and the making of groups."""
    log = _Log(seen)
    for name, (operation, argument) in _METHODS.items():
        wrap(ProcessGroup, name, functools.partial(_method, log, operation, argument))
    wrap(dist.Work, "wait", functools.partial(_wait, log, id))
    for space, name in _operators():
        _replace(space, name, functools.partial(_Operator, log, name.removesuffix("_")))
    _replace("_c10d_functional", "wait_tensor", functools.partial(_WaitTensor, log))
    for name in ("init_process_group", "new_group"):
        wrap(dist, name, functools.partial(_make, log))
    wrap(dist, "destroy_process_group", functools.partial(_destroy, seen))


def _operators() -> Iterator[tuple[str, str]]:
    for space in ("_c10d_functional", "_c10d_functional_autograd"):
        yield from ((space, name) for name in _OPERATORS)
    yield _SHARD_SWAP


class _Log:
    """The ring, and which of its collectives nobody has waited for yet."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._ring = Ring(seen.recorder.folder / f"{seen.recorder.rank}.ring")
        self._groups: dict[tuple[str, int], str] = {}
        self._waited_for: dict[int, int] = {}
        guard = seen.recorder.probe("collectives")
        self.begin = guard(self._begin)
        self.queued = guard(self._queued)
        self.waiting, self.note = guard(self._waiting), guard(self._ring.note)

    def _begin(self, group: Any, operation: str, tensors: Any) -> int | None:
        """Write a collective down; `group` is a `ProcessGroup`, the name of one, or a label."""
        if not self._seen.recorder.is_rank():
            return None
        label = group if group == _EVERYONE else self._label(group)
        shape, size = _measure(tensors)
        return self._ring.issue(label, operation, shape, size, self._seen.steps, self._place())

    def _queued(self, index: int, results: Iterable[Any], key: Callable[[Any], int]) -> None:
        """Note that the call has returned what will be waited for; keys of what is no longer
        there are reused, and then refer to what came last."""
        self._waited_for.update(dict.fromkeys(map(key, results), index))
        self._ring.note(index, State.QUEUED)

    def _waiting(self, result: Any, key: Callable[[Any], int]) -> int | None:
        index = self._waited_for.pop(key(result), None)
        if index is not None:
            self._ring.note(index, State.WAITING)
        return index

    def _label(self, group: Any) -> str:
        if isinstance(group, str):
            group = _resolve_process_group(group)  # type: ignore[arg-type]
        key = group.group_name, id(group)
        if key not in self._groups:
            ranks = ",".join(map(str, dist.get_process_group_ranks(group)))
            self._groups[key] = f"{ranks}/{group.group_name}"
        return self._groups[key]

    def _place(self) -> Place | None:
        """Return the place of the call; on CUDA, a backward's thread has no code of the user's."""
        recorder = self._seen.recorder
        place = recorder.place()
        if place is None and threading.current_thread() is not threading.main_thread():
            place = recorder.place(sys._current_frames()[threading.main_thread().ident or 0])
        return place


def _measure(tensors: Any) -> tuple[tuple[int, ...], int]:
    """Return the shape and the bytes of a tensor, or of any nest of lists of them."""
    if isinstance(tensors, Tensor):
        return tuple(tensors.shape), tensors.numel() * tensors.element_size()
    if not isinstance(tensors, list | tuple):
        return (), 0
    if len(tensors) == 1:
        return _measure(tensors[0])
    flat = list(_flat(tensors))
    return (sum(t.numel() for t in flat),), sum(t.numel() * t.element_size() for t in flat)


def _flat(tensors: Any) -> Iterator[Tensor]:
    for tensor in tensors:
        yield from [tensor] if isinstance(tensor, Tensor) else _flat(tensor)


def _method(
    log: _Log, operation: str, argument: int | None, original: Any, *args: Any, **kwargs: Any
) -> Any:
    """Call a method of a process group, the first of `args`; `argument` counts from behind it."""
    group, *given = (*args, *kwargs.values())
    tensors = given[argument] if argument is not None and len(given) > argument else None
    index = log.begin(group, operation, tensors)
    work = _noted(log, index, lambda: original(*args, **kwargs))
    if index is not None:
        if work is None:  # it blocks until it is done
            log.note(index, State.DONE)
        else:
            log.queued(index, (work,), id)
    return work


def _noted(log: _Log, index: int | None, body: Callable[[], Any]) -> Any:
    """Run a body of torch's; note in the log if it raises."""
    try:
        return body()
    except BaseException:  # noted and passed on
        if index is not None:
            log.note(index, State.RAISED)
        raise


def _wait(
    log: _Log, key: Callable[[Any], int], original: Any, what: Any, *args: Any, **kwargs: Any
) -> Any:
    index = log.waiting(what, key)
    result = _noted(log, index, lambda: original(what, *args, **kwargs))
    if index is not None:
        log.note(index, State.DONE)
    return result


def _make(log: _Log, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a process group, for which all ranks of the job wait."""
    if kwargs.get("use_local_synchronization"):  # waits for the group's own ranks only
        return original(*args, **kwargs)
    index = log.begin(_EVERYONE, original.__name__, None)
    group = _noted(log, index, lambda: original(*args, **kwargs))
    if index is not None:
        log.note(index, State.DONE)
    return group


# DDP may be the last to hold the group: freeing both waits for a thread of gloo's, which may wait
# for the GIL (torch 2.13).
_destroyed: list[Any] = []


def _destroy(seen: Seen, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Destroy a process group; record the exception that is being handled, if any."""
    seen.recorder.probe("errors")(_note_handled)(seen)
    _destroyed.append(dist.group.WORLD)
    return original(*args, **kwargs)


def _note_handled(seen: Seen) -> None:
    error = sys.exc_info()[1]
    trace = error.__traceback__ if error is not None else None
    if error is None or trace is None:
        return
    while trace.tb_next is not None:
        trace = trace.tb_next
    place = seen.recorder.place(trace.tb_frame)
    seen.write(ErrorHandled(type(error).__name__, str(error), place))


def _replace(space: str, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace what an operator and its overloads call; the operators stay the objects they are,
    since tables are keyed by them."""
    packet = getattr(getattr(torch.ops, space), name, None)
    if packet is None:
        return
    for operator in (packet, *(getattr(packet, overload) for overload in packet.overloads())):
        operator._op = wrap(operator._op)


class _Wrapped:
    """The replacement of the function that an operator calls; operators take their hash from it."""

    def __init__(self, log: _Log, original: Any) -> None:
        self._log, self._original = log, original

    def __hash__(self) -> int:
        return hash(self._original)

    def __eq__(self, other: object) -> bool:
        return self is other or other == self._original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Operator(_Wrapped):
    """A functional collective; one that calls another on its way is one collective."""

    _inside = threading.local()

    def __init__(self, log: _Log, operation: str, original: Any) -> None:
        super().__init__(log, original)
        self._operation = operation.removesuffix("_out")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "on", False):
            return self._original(*args, **kwargs)
        self._inside.on = True
        try:
            return self._run(args, kwargs)
        finally:
            self._inside.on = False

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        group = kwargs.get("group_name", args[-1] if args else None)
        index = self._log.begin(group, self._operation, args[0] if args else None)
        result = _noted(self._log, index, lambda: self._original(*args, **kwargs))
        if index is not None:
            results = [result] if isinstance(result, Tensor) else result
            self._log.queued(index, results, _storage)
        return result


class _WaitTensor(_Wrapped):
    """The wait for a functional collective's result."""

    def __call__(self, tensor: Any) -> Any:
        return _wait(self._log, _storage, self._original, tensor)


def _storage(tensor: Any) -> int:
    """Return what every view of a result has in common, as torch's own register of them does."""
    return int(tensor.untyped_storage()._cdata) if isinstance(tensor, Tensor) else id(tensor)
