"""Streams and events: everything runs in order already, so nothing ever waits."""

from __future__ import annotations

import time
from typing import Any

import torch

from fsdplint.verify.rank.patch import replace
from fsdplint.verify.rank.shim.devices import DEVICE, MACHINE, STREAM, cuda_index


class _Kind(type):
    """Let `torch.Stream` and `torch.cuda.Stream` be one class, instances of PyTorch's included."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or isinstance(instance, STREAM)


class Stream(metaclass=_Kind):
    """`torch.cuda.Stream` and `torch.Stream`."""

    device_type = 1
    cuda_stream = native_handle = 0

    def __init__(self, device: Any = None, priority: int = 0, **identity: int) -> None:
        self.device_index = cuda_index(device)
        self.priority = priority
        self.stream_id = identity.get("stream_id", id(self))
        self._before: list[Stream] = []

    @property
    def device(self) -> torch.device:
        return DEVICE("cuda", self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -5)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._before.pop())


class ExternalStream(Stream):
    """A stream made elsewhere."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        super().__init__(device, stream_id=stream_ptr)


class Event:
    """`torch.cuda.Event` and `torch.Event`: a point in time."""

    cuda_event = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at: float | None = None

    def record(self, stream: object = None) -> None:
        self._at = time.perf_counter()

    def wait(self, stream: object = None) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds between two recorded events."""
        if self._at is None or end_event._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000

    @property
    def event_id(self) -> int:
        return id(self)

    @property
    def device(self) -> torch.device:
        return DEVICE("cuda", MACHINE.current)


class StreamContext:
    """`with torch.cuda.stream(stream)`; nothing for None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


_default: list[Stream] = []
_current: list[Stream] = []


def install() -> None:
    """Make each device's default stream."""
    replace(torch, "Stream", Stream)
    replace(torch, "Event", Event)
    used = MACHINE.used
    _default[:] = [Stream(index, stream_id=0) for index in range(MACHINE.count)]
    _current[:] = _default
    MACHINE.used = used


def stream(stream: Stream | None) -> StreamContext:
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    return _current[cuda_index(device)]


def default_stream(device: Any = None) -> Stream:
    return _default[cuda_index(device)]


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _current[stream.device_index] = stream


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    return ExternalStream(data_ptr, device)
