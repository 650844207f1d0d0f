"""Tensors that a script puts on a CUDA device: the places where PyTorch takes a device.

Only those places are wrapped; every other operation runs as it always does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _device as default_device

from fsdplint.verify.rank.patch import replace, wrap
from fsdplint.verify.rank.shim import random
from fsdplint.verify.rank.shim.devices import (
    CPU,
    DEVICE,
    GENERATOR,
    HOST,
    MACHINE,
    Unmappable,
    cpu_device,
    on_cuda,
)

_LIKE = (
    *("empty_like", "full_like", "ones_like", "zeros_like"),
    *("rand_like", "randn_like", "randint_like"),
)
_OTHERS = ("normal", "frombuffer", "range", "_efficientzerotensor")
_NEW = ("new_tensor", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")

# Before it is wrapped.
_MOVE = torch.Tensor.to

# The storages that are taken to be pinned, by address, which a weak reference keeps from being
# used again.
_pinned: dict[int, Any] = {}


def install() -> None:
    """Wrap what takes a device: factories, methods of tensors and storages, `torch.device`."""
    factories = _factories()
    for owner, name in factories:
        replace(owner, name, _factory(getattr(owner, name)))
    for name in _NEW:
        setattr(torch.Tensor, name, _factory(getattr(torch.Tensor, name)))
    wrap(torch._C._nn, "_parse_to", _parse_to)
    wrap(default_device.DeviceContext, "__torch_function__", _in_device_context)
    wrap(torch, "get_default_device", _get_default_device)
    wrap(torch, "set_default_tensor_type", _set_default_tensor_type)
    wrap(torch, "load", _load)
    _install_methods()
    _install_types()
    replace(torch, "device", _Device)
    replace(torch, "Generator", _Generator)


def _factories() -> list[tuple[Any, str]]:
    # PyTorch caches this set when it is first asked; it must hold what it dispatches on, which is
    # what was there before.
    constructors = default_device._device_constructors()
    owners = (torch, torch.fft, torch.nested)
    named = [(o, n) for o in owners for n, value in vars(o).items() if _among(value, constructors)]
    return [*named, *((torch, name) for name in (*_LIKE, *_OTHERS) if hasattr(torch, name))]


def _among(value: Any, constructors: set[Any]) -> bool:
    return callable(value) and any(value is constructor for constructor in constructors)


def _factory(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that makes a tensor on a device."""
    draws = original.__name__ in random.FACTORIES

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None:
            kwargs["device"] = real = cpu_device(device)
            if draws and real is CPU and device is not CPU:
                random.draw_on_cuda(kwargs)
        if kwargs.pop("pin_memory", False):
            return _pin(original(*args, **kwargs))
        return original(*args, **kwargs)

    return factory


def _in_device_context(
    original: Callable[..., Any],
    context: Any,
    func: Callable[..., Any],
    types: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Map `with torch.device("cuda")` and `torch.set_default_device`."""
    kwargs = kwargs or {}
    if (
        on_cuda(context.device)
        and kwargs.get("device") is None
        and func in default_device._device_constructors()
    ):
        kwargs["device"] = CPU
        if func.__name__ in random.FACTORIES:
            random.draw_on_cuda(kwargs)
    return original(context, func, types, args, kwargs)


def _get_default_device(original: Callable[[], torch.device]) -> torch.device:
    context = default_device.CURRENT_DEVICE
    return context if context is not None and on_cuda(context) else original()


def _set_default_tensor_type(original: Callable[[Any], None], kind: Any) -> None:
    original(kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind)


def _parse_to(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Read `Module.to`'s arguments: a number is a CUDA device."""
    if args and type(args[0]) is int:
        args = (DEVICE("cuda", args[0]), *args[1:])
    elif type(kwargs.get("device")) is int:
        kwargs["device"] = DEVICE("cuda", kwargs["device"])
    return original(*args, **kwargs)


def _install_methods() -> None:
    """Wrap the methods of tensors and storages that move or pin them."""
    tensor = torch.Tensor
    for name, method in (("to", _to), ("cpu", _cpu), ("cuda", _cuda), ("type", _type)):
        wrap(tensor, name, method)
    for name, method in (("pin_memory", _pin_memory), ("is_pinned", _is_pinned)):
        wrap(tensor, name, method)
    wrap(tensor, "record_stream", lambda original, self, stream: None)
    for storage in (torch.storage._StorageBase, torch.storage.TypedStorage):
        wrap(storage, "cuda", lambda original, self, *args, **kwargs: self)
        wrap(storage, "to", lambda original, self, *, device, non_blocking=False: self)
        wrap(storage, "pin_memory", lambda original, self, device=None: self)
        wrap(storage, "is_pinned", lambda original, self, device=None: False)
    interface = property(lambda tensor: _no_raw_pointer())
    setattr(torch.Tensor, "__cuda_array_interface__", interface)  # noqa: B010  -- a property


def _no_raw_pointer() -> None:
    raise Unmappable("__cuda_array_interface__ is a pointer into GPU memory")


def _to(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Move a tensor; naming the CPU copies it, as it would from a GPU."""
    device = args[0] if args else kwargs.get("device")
    kind = type(device)
    if kind is str or kind is int or kind is DEVICE:
        if args:
            args = (cpu_device(device), *args[1:])
        else:
            kwargs["device"] = cpu_device(device)
        if (device is HOST or (device == "cpu" and kind is str)) and not isinstance(
            self, FakeTensor
        ):
            args, kwargs = args[:3], {**kwargs, "copy": True}
    return original(self, *args, **kwargs)


def _cpu(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(self, FakeTensor):
        return original(self, *args, **kwargs)
    if args:
        kwargs["memory_format"] = args[0]
    return _MOVE(self, HOST, copy=True, **kwargs)


def _cuda(
    original: Callable[..., Any],
    self: Any,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: Any = torch.preserve_format,
) -> Any:
    cpu_device(MACHINE.current if device is None else device)
    if memory_format is torch.preserve_format:
        return _MOVE(self, CPU)
    return _MOVE(self, CPU, memory_format=memory_format)


def _type(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], str):
        args = (args[0].replace("torch.cuda.", "torch."), *args[1:])
    return original(self, *args, **kwargs)


def _pin_memory(original: Callable[..., Any], self: Any, device: Any = None) -> Any:
    return self if self.is_pinned() else _pin(self.clone())


def _is_pinned(original: Callable[..., bool], self: Any, device: Any = None) -> bool:
    return bool(_pinned) and _storage(self)._cdata in _pinned


def _pin(tensor: Any) -> Any:
    weak: Any = StorageWeakRef  # untyped in PyTorch
    for address in [address for address, storage in _pinned.items() if storage.expired()]:
        del _pinned[address]
    storage = _storage(tensor)
    _pinned[storage._cdata] = weak(storage)
    return tensor


def _storage(tensor: Any) -> Any:
    # A sharded tensor has no storage.
    return getattr(tensor, "_local_tensor", tensor).untyped_storage()


def _install_types() -> None:
    for name in list(vars(torch.cuda)):
        counterpart = getattr(torch, name, None)
        if name.endswith(("Tensor", "Storage")) and counterpart is not None:
            replace(torch.cuda, name, counterpart)


def _load(
    original: Callable[..., Any], f: Any, map_location: Any = None, *rest: Any, **kw: Any
) -> Any:
    return original(f, _location(map_location), *rest, **kw)


def _location(wanted: Any) -> Any:
    """Return a map location for `torch.load` that puts on the CPU what is for CUDA."""
    if callable(wanted):
        return lambda storage, tag: _or_host(wanted(storage, tag), storage, tag)
    if isinstance(wanted, dict):
        mapped = {tag: str(cpu_device(device)) for tag, device in wanted.items()}
        return lambda storage, tag: _host(storage, mapped.get(tag) or tag)
    return _host if wanted is None else cpu_device(wanted)


def _or_host(found: Any, storage: Any, tag: str) -> Any:
    return _host(storage, tag) if found is None else found


def _host(storage: Any, tag: str) -> Any:
    # The tag names a device of the machine that wrote the file, which may have had more of them.
    return storage if tag.startswith(("cuda", "cpu")) else None


class _DeviceType(type):
    """Let `isinstance`, comparison and dictionaries take the stand-in for the class itself."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, DEVICE)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, DEVICE)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is DEVICE

    def __hash__(cls) -> int:
        return hash(DEVICE)


class _Device(metaclass=_DeviceType):
    """`torch.device`, which a number makes a CUDA device of."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and type(args[0]) is int:
            return DEVICE("cuda", args[0])
        made = DEVICE(*args, **kwargs)
        return HOST if made == HOST else made


# A device is pickled as a call of the class under this name.
_Device.__module__, _Device.__name__, _Device.__qualname__ = "torch", "device", "device"


class _GeneratorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, GENERATOR)


class _Generator(metaclass=_GeneratorType):
    """`torch.Generator`, always the CPU's."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return GENERATOR(cpu_device(device))


_Generator.__module__, _Generator.__name__, _Generator.__qualname__ = (
    "torch",
    "Generator",
    "Generator",
)
