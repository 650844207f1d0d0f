"""A `pynvml` without devices to measure."""

from types import SimpleNamespace


def nvmlInit():
    pass


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetUtilizationRates(_):
    return SimpleNamespace(gpu=0, memory=0)


def nvmlDeviceGetMemoryInfo(_):
    return SimpleNamespace(total=0, used=0, free=0)
