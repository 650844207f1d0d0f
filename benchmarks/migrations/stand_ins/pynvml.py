"""A `pynvml` without devices to measure."""

from types import SimpleNamespace


def __getattr__(name):
    return lambda *_: SimpleNamespace(gpu=0, memory=0, total=0, used=0, free=0)
