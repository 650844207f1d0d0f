"""`--shrink`: models that are built from a configuration get fewer layers and a smaller width.

A configuration is any object with a number of layers that is given to a module's constructor, as
transformers' configurations and most scripts' own are. It is changed in place, before the module
reads it. ``from_pretrained`` of transformers builds the smaller model instead of loading weights,
which would not fit.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from torch import nn

from fsdplint.verify.events import Shrunk
from fsdplint.verify.rank.registry import Seen

_LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth", "num_blocks", "n_blocks"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"),
)
_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "embed_dim", "model_dim", "hidden_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "nhead")
_GROUPS = ("num_key_value_heads", "n_kv_heads", "n_kv_head", "num_kv_heads", "n_query_groups")
_INNER = (
    "intermediate_size",
    "ffn_dim",
    "d_ff",
    "n_inner",
    "ffn_hidden_size",
    "moe_intermediate_size",
)
_FEW = 2
"""Layers that are left, and heads at least."""
_TRANSFORMERS = "transformers.modeling_utils"


def install(seen: Seen) -> None:
    """Shrink every configuration that is passed to a module's constructor from now on."""
    known: list[Any] = []
    shrink = seen.recorder.probe("shrink")(_shrink)

    def new(cls: type[nn.Module], *args: Any, **kwargs: Any) -> nn.Module:
        for config in _configurations([*args, *kwargs.values()]):
            if all(config is not other for other in known):
                known.append(config)
                shrink(seen, config)
        made: nn.Module = super(nn.Module, cls).__new__(cls)
        return made

    nn.Module.__new__ = new  # type: ignore[method-assign, assignment]  # object's
    sys.meta_path.insert(0, _After(_TRANSFORMERS, _build_instead))


def _configurations(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if not isinstance(value, nn.Module | type) and any(_number(value, n) for n in _LAYERS):
            yield value


def _shrink(seen: Seen, config: Any) -> None:
    """Shrink a configuration and record the changes."""
    changes: dict[str, tuple[int, int]] = {}
    for name in _LAYERS:
        layers = _number(config, name)
        if layers > _FEW:
            _cut_lists(config, layers)
            _change(config, changes, name, _FEW)
    factor = _factor(config)
    if factor > 1:
        for name in (*_WIDTHS, *_HEADS, *_GROUPS, *_INNER):
            number = _number(config, name)
            if number and number % factor == 0:
                _change(config, changes, name, number // factor)
    if changes:
        before, after = zip(*changes.values(), strict=True)
        seen.write(Shrunk(type(config).__name__, tuple(changes), before, after))


def _cut_lists(config: Any, layers: int) -> None:
    """Truncate lists with one entry per layer, such as transformers' ``layer_types``."""
    for name, value in list(vars(config).items()):
        if not isinstance(value, list | tuple) or len(value) != layers:
            continue
        if "layer" in name or all(isinstance(entry, str | bool) for entry in value):
            object.__setattr__(config, name, value[:_FEW])


def _factor(config: Any) -> int:
    """Return by what all widths can be divided: heads keep their size, and `_FEW` are left."""
    heads = max((_number(config, name) for name in _HEADS), default=0)
    counts = [number for name in (*_WIDTHS, *_HEADS, *_GROUPS) if (number := _number(config, name))]
    factor = 1
    while heads // factor > _FEW and all(count % (2 * factor) == 0 for count in counts):
        factor *= 2
    return factor


def _change(config: Any, changes: dict[str, tuple[int, int]], name: str, number: int) -> None:
    changes[name] = (_number(config, name), number)
    object.__setattr__(config, name, number)  # also of a frozen dataclass


def _number(config: Any, name: str) -> int:
    """Return an integer that is a configuration's own field, or 0."""
    value = getattr(config, "__dict__", {}).get(name)
    return value if type(value) is int else 0


class _After(importlib.abc.MetaPathFinder):
    """Call `then` with a module right after it is loaded."""

    def __init__(self, name: str, then: Any) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, name: str, _: Sequence[str] | None, __: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own spec, whose loader has another end."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _build_instead(transformers: Any) -> None:
    """Let ``from_pretrained`` build the model from its configuration alone."""

    def from_pretrained(cls: Any, name: Any = None, *_: Any, **kwargs: Any) -> Any:
        config = kwargs.pop("config", None)
        if config is None:
            read = cls.config_class.from_pretrained
            config, kwargs = read(name, return_unused_kwargs=True, **kwargs)
        dtype = kwargs.get("dtype", kwargs.get("torch_dtype"))
        chosen = {} if dtype in (None, "auto") else {"dtype": dtype}
        if kwargs.get("attn_implementation"):
            chosen["attn_implementation"] = kwargs["attn_implementation"]
        return cls._from_config(config, **chosen)

    transformers.PreTrainedModel.from_pretrained = classmethod(from_pretrained)
