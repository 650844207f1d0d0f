"""Write what Lightning's strategies do with their arguments, as Lightning itself shows.

python scripts/lightning_settings.py WHEELS

WHEELS is a folder with a wheel of `lightning` of each minor release; torch and what Lightning
needs are those of the interpreter. In the table `src/fsdplint/knowledge/lightning_settings.csv` a
row says since which release a strategy takes an argument, and which words the argument takes. What
another table calls the version of FSDP is the strategy here, see `STRATEGIES`. Names in brackets
are no arguments of a strategy: "(clip)" has the values of `gradient_clip_algorithm` that clip,
"(word)" the words for `strategy`, and "(precision)" the values of `precision`. A test compares the
rows for the installed release.

Each strategy is made, and sharded is a model, by Lightning's own code, in one process over gloo.
FSDP is told to use the CPU where Lightning gives it the index of a GPU.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from accelerate_settings import ROOT, Row, measure

TABLE = ROOT / "src/fsdplint/knowledge/lightning_settings.csv"

STRATEGIES = {
    1: ("pytorch", "FSDPStrategy"),
    2: ("pytorch", "ModelParallelStrategy"),
    3: ("fabric", "FSDPStrategy"),
    4: ("fabric", "ModelParallelStrategy"),
}
_OTHERS = ("device_id", "module", "reshard_after_forward", "mesh", "mp_policy", "offload_policy")
_PARALLELIZE = "parallelize_fn"
_STATES = ("full", "sharded", "FULL", "SHARDED", "FULL_STATE_DICT", "SHARDED_STATE_DICT", "local")
_SHARDING = (
    *("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"),
    *("HYBRID_SHARD_ZERO2", "FULL", "HYBRID", "full_shard"),
)
_PRECISIONS = (
    *("32-true", "32", "16-true", "bf16-true", "16-mixed", "16", "bf16-mixed", "bf16"),
    *("64-true", "64", "transformer-engine", "transformer-engine-float16"),
)
_WORDS = ("fsdp", "fsdp_cpu_offload", "fsdp_native", "fsdp_native_full_shard_offload")


def measured() -> Iterator[Row]:
    """Yield what the installed release of Lightning does with each argument."""
    warnings.simplefilter("ignore")
    with _process_group():
        for number, (package, name) in STRATEGIES.items():
            cls = _strategy(package, name)
            if cls is not None:
                yield from _of_strategy(number, package, cls)


def _of_strategy(number: int, package: str, cls: type) -> Iterator[Row]:
    for argument in sorted(_candidates(cls)):
        if _takes(cls, argument):
            words = {"state_dict_type": _states, "sharding_strategy": _sharding}.get(argument)
            yield argument, number, True, " ".join(words(cls)) if words else ""
    yield "(precision)", number, True, " ".join(_precisions(package, cls))
    yield "(word)", number, True, " ".join(_words(package, cls))
    if package == "pytorch":
        yield "(clip)", number, True, " ".join(_clipping(cls))


@contextlib.contextmanager
def _process_group() -> Iterator[None]:
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/x", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


def _strategy(package: str, name: str) -> Any:
    import lightning.fabric.strategies
    import lightning.pytorch.strategies

    return getattr(getattr(lightning, package).strategies, name, None)


def _candidates(cls: type) -> set[str]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    of_fsdp = inspect.signature(FullyShardedDataParallel.__init__).parameters
    own = inspect.signature(cls.__init__).parameters
    return {*own, *of_fsdp, *_OTHERS} - {"self", "kwargs"}


def _takes(cls: type, argument: str) -> bool:
    """Return whether a strategy can be made and shard a model with an argument."""
    try:
        _shard(cls, **{argument: None})
    except TypeError as error:
        text = str(error)
        return "unexpected keyword" not in text and "multiple values" not in text
    except Exception:  # whatever else stops it is not the name
        return True
    return True


def _shard(cls: Any, **arguments: Any) -> Any:
    """Return a strategy that sharded a model, with `model` and an optimizer."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    strategy = _bare(cls, **arguments)
    if not _is_fsdp(cls):
        return strategy
    strategy._parallel_devices = [torch.device("cpu")]
    real = FullyShardedDataParallel.__init__

    def on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **{**kwargs, "device_id": torch.device("cpu")})

    setup = getattr(strategy, "_setup_model", None) or strategy.setup_module
    with (
        patch.object(FullyShardedDataParallel, "__init__", on_cpu),
        patch.object(type(strategy), "local_rank", 0),
    ):
        strategy.model = setup(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    return strategy


def _bare(cls: Any, **arguments: Any) -> Any:
    """Return a strategy with these arguments and those that it needs."""
    needs = _PARALLELIZE in inspect.signature(cls.__init__).parameters
    return cls(**{**({_PARALLELIZE: _nothing} if needs else {}), **arguments})


def _nothing(model: Any, _: object) -> Any:
    return model


def _is_fsdp(cls: type) -> bool:
    return cls.__name__.startswith("FSDP")


def _states(cls: type) -> Iterator[str]:
    """Yield the types of states that are not refused as unknown."""
    for word in _STATES:
        strategy = _shard(cls, state_dict_type=word)
        try:
            if hasattr(strategy, "lightning_module_state_dict"):
                strategy.lightning_module_state_dict()
            else:
                with tempfile.TemporaryDirectory() as folder, patch.object(cls, "global_rank", 0):
                    strategy.save_checkpoint(Path(folder) / "x", {"model": strategy.model})
        except ValueError as error:
            if "Unknown state_dict_type" in str(error):
                continue
        yield word


def _sharding(cls: type) -> Iterator[str]:
    for word in _SHARDING:
        with contextlib.suppress(KeyError):
            cls(sharding_strategy=word, auto_wrap_policy={int})
            yield word


def _made(package: str, strategy: Any, **arguments: Any) -> None:
    """Make a trainer, or a `Fabric`, with a strategy on the CPU."""
    import lightning

    owner = lightning.pytorch.Trainer if package == "pytorch" else lightning.Fabric
    quiet = {"logger": False, "enable_checkpointing": False} if package == "pytorch" else {}
    owner(accelerator="cpu", devices=2, strategy=strategy, **quiet, **arguments)


def _precisions(package: str, cls: Any) -> Iterator[str]:
    from lightning.fabric.connector import _convert_precision_to_unified_args as unified

    plugins = import_module(f"lightning.{package}.plugins.precision")
    for word in _PRECISIONS:
        with contextlib.suppress(ValueError):
            if _is_fsdp(cls):
                plugins.FSDPPrecision(unified(word))
            else:
                _made(package, _bare(cls), precision=word)
            yield word


def _words(package: str, cls: type) -> Iterator[str]:
    """Yield the words that choose a strategy."""
    from lightning.fabric.strategies import STRATEGY_REGISTRY
    from lightning.pytorch.strategies import StrategyRegistry

    registry = StrategyRegistry if package == "pytorch" else STRATEGY_REGISTRY
    for word in _WORDS:
        if word in registry and isinstance(registry.get(word), cls):
            yield word


def _clipping(cls: Any) -> Iterator[str]:
    """Yield the algorithms that the plugin for the precision clips by."""
    import torch
    from lightning.pytorch.plugins.precision import FSDPPrecision, Precision
    from lightning.pytorch.utilities.enums import GradClipAlgorithmType

    plugin = FSDPPrecision("32-true") if _is_fsdp(cls) else Precision()
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter], 0.1)
    for algorithm in GradClipAlgorithmType:
        with contextlib.suppress(Exception):
            plugin.clip_gradients(optimizer, 1.0, algorithm)
            yield algorithm.value


def main(arguments: list[str] | None = None) -> int:
    """Measure every wheel and write the table."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    return measure(Path(folder), "lightning", "lightning_settings", TABLE)


if __name__ == "__main__":
    sys.exit(main())
