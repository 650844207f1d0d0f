"""Device memory, measured as the resident memory of the process, in bytes."""

from __future__ import annotations

import resource
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

from fsdplint.verify.rank.shim.devices import cuda_index

TOTAL = 80 * 2**30

_STATM = Path("/proc/self/statm")
_peak = 0


def _resident() -> int:
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def memory_allocated(device: Any = None) -> int:
    """Return the resident memory of the process, in bytes."""
    global _peak
    cuda_index(device)
    now = _resident()
    _peak = max(_peak, now)
    return now


def max_memory_allocated(device: Any = None) -> int:
    """Return the most that the functions of this module saw since the last reset."""
    memory_allocated(device)
    return _peak


def reset_peak_memory_stats(device: Any = None) -> None:
    global _peak
    _peak = 0
    memory_allocated(device)


memory_reserved = memory_cached = device_memory_used = memory_allocated
max_memory_reserved = max_memory_cached = max_memory_allocated
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def mem_get_info(device: Any = None) -> tuple[int, int]:
    return TOTAL - memory_allocated(device), TOTAL


get_memory_info = mem_get_info


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Return the resident memory as the sizes; what only CUDA's allocator knows is 0."""
    now, peak = memory_allocated(device), max_memory_allocated(device)
    stats = OrderedDict[str, int]()
    measured = {"current": now, "peak": peak, "allocated": peak, "freed": 0}
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for pool, factor in (("all", 1), ("large_pool", 1), ("small_pool", 0)):
            stats |= {f"{name}.{pool}.{each}": n * factor for each, n in measured.items()}
    for name in ("inactive_split_bytes", "allocation", "segment", "active", "inactive_split"):
        stats |= {f"{name}.all.{figure}": 0 for figure in measured}
    for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc"):
        stats[name] = 0
    return stats


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return `memory_stats` with a dictionary per part of the names."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    now, peak = memory_allocated(device), max_memory_allocated(device)
    return f"resident memory of the process: {now:,} bytes, at most {peak:,}"


def memory_snapshot(*_: Any, **__: Any) -> list[dict[str, Any]]:
    return []


def host_memory_stats() -> dict[str, Any]:
    return {}


host_memory_stats_as_nested_dict = host_memory_stats


def list_gpu_processes(device: Any = None) -> str:
    return f"GPU:{cuda_index(device)}\nno processes are running"


def get_per_process_memory_fraction(device: Any = None) -> float:
    return 1.0


def get_allocator_backend() -> str:
    return "native"


def _nothing(*_: Any, **__: Any) -> None: ...


empty_cache = empty_host_cache = ipc_collect = set_per_process_memory_fraction = _nothing
reset_accumulated_memory_stats = reset_accumulated_host_memory_stats = _nothing
reset_peak_host_memory_stats = _nothing
