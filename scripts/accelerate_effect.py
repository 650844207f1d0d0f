"""What settings for accelerate do, by accelerate itself: from a config file to the calls of FSDP.

`accelerate launch` reads the file, and the plugin in each rank what the launcher hands on; models
are sharded by accelerate's own code, in which only the calls that shard are recorded. Nothing is
launched, and no GPU is needed.
"""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import patch

Effect = dict[str, object]
"""How models are sharded and saved, or under "error" why nothing runs."""


_PLAIN = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 2
machine_rank: 0
"""


class _Sharded(Exception):
    """Ends the preparation of a model once FSDP1 is called."""


def effect(
    text: str,
    suffix: str = ".yaml",
    options: tuple[str, ...] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Effect:
    """Return the effect of a config file that holds ``text``.

    Args:
        options: those of the command line.
        variables: those of the environment in which `accelerate launch` runs.
    """
    with environment():
        os.environ.update(variables)
        try:
            if not launched(text, suffix, options).use_fsdp:
                return {"sharding": "none"}
            from accelerate import FullyShardedDataParallelPlugin

            return prepared(FullyShardedDataParallelPlugin)
        except SystemExit as error:
            return {"error": f"SystemExit: {error.code}"}
        except Exception as error:  # whatever stops it is the result
            return {"error": f"{type(error).__name__}: {error}"}


def launched(text: str, suffix: str = ".yaml", options: tuple[str, ...] = ()) -> Any:
    """Return the launcher's arguments for a config file, and set the environment of its ranks."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_multi_gpu_env

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"config{suffix}"
        file.write_text(text, "utf-8")
        given = ["--config_file", str(file), *options, "train.py"]
        arguments = launch.launch_command_parser().parse_args(given)
        try:
            arguments, _, _ = launch._validate_launch_command(arguments)
        except Exception as error:
            raise type(error)(str(error).replace(str(file), file.name)) from error
        if arguments.use_fsdp:
            os.environ.update(prepare_multi_gpu_env(arguments))
        return arguments


def started(text: str) -> Effect:
    """Return how many processes start on each machine, and what they see, for a config file."""
    with environment():
        try:
            made = launched(text)
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") if made.gpu_ids != "all" else None
            machines = int(getattr(made, "nnodes", None) or 1)
            rank = getattr(made, "node_rank", 0) if machines > 1 else 0
            count = int(made.nproc_per_node)
            return {"each": count, "machines": machines, "rank": rank, "gpus": seen}
        except Exception as error:  # whatever stops it is the result
            return {"error": f"{type(error).__name__}: {error}"}


def mesh(text: str) -> Effect:
    """Return over which ranks a config file with `parallelism_config` shards.

    The process group is PyTorch's fake one, of as many ranks as are launched. "sizes" has none if
    accelerate makes no mesh, so that FSDP shards over all ranks.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with environment():
        try:
            processes = launched(text).num_processes
            dist.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
            return {"sizes": _sizes(processes, int(os.environ.get("FSDP_VERSION", "1")))}
        except Exception as error:  # whatever stops it is the result
            return {"error": f"{type(error).__name__}: {error}"}
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _sizes(processes: int, version: int) -> dict[str, int]:
    """Return the mesh that `Accelerator()` makes, and FSDP gets, by the environment."""
    if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") != "true":
        return {}
    from accelerate import DistributedType
    from accelerate.parallelism_config import ParallelismConfig

    config = ParallelismConfig()
    made = config.get_device_mesh("cpu")
    accelerator = SimpleNamespace(
        multi_device=False,  # as `Accelerator` has it with FSDP
        num_processes=processes,
        is_fsdp2=version == 2,
        distributed_type=DistributedType.FSDP,
        is_main_process=True,
    )
    config._validate_accelerator(accelerator)
    if made is None:
        return {}
    part = made[tuple(config.fsdp_dim_names)]
    return dict(zip(part.mesh_dim_names, part.shape, strict=True))


def handed_on(options: tuple[str, ...]) -> dict[str, str]:
    """Return the variables that `accelerate launch` sets for the ranks, without a config file."""
    from accelerate.utils.launch import prepare_multi_gpu_env

    with environment():
        return dict(prepare_multi_gpu_env(launched(_PLAIN, options=options)))


def effect_of_variables(variables: Mapping[str, str]) -> Effect:
    """Return the effect of variables in the environment of a rank that torchrun starts."""
    with environment():
        os.environ.update(variables)
        try:
            from accelerate import FullyShardedDataParallelPlugin

            return prepared(lambda: FullyShardedDataParallelPlugin() if _is_turned_on() else None)
        except Exception as error:  # whatever stops it is the result
            return {"error": f"{type(error).__name__}: {error}"}


def _is_turned_on() -> bool:
    """Return whether `Accelerator()` makes a plugin by itself."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    class Plugin(FullyShardedDataParallelPlugin):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            raise _Sharded

    try:
        with patch("accelerate.accelerator.FullyShardedDataParallelPlugin", Plugin):
            Accelerator(cpu=True)
    except _Sharded:
        return True
    return False


@contextmanager
def environment() -> Iterator[None]:
    """Hide the settings in the environment, and take back what accelerate puts there."""
    with patch.dict(os.environ), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in list(os.environ):
            if name.startswith(("FSDP_", "ACCELERATE_", "PARALLELISM_")):
                del os.environ[name]
        # A message of rank 0 otherwise.
        os.environ["ACCELERATE_LOG_LEVEL"] = "CRITICAL"
        yield


def prepared(made: Callable[[], Any]) -> Effect:
    """Return what accelerate makes, in a rank, of the plugin that ``made`` returns, if it does."""
    import torch

    # It copies `fully_shard` where it is imported, and would keep the double that stands in here.
    import torch.distributed._composable.fsdp.fully_shard
    from accelerate import Accelerator, DistributedType
    from accelerate.state import AcceleratorState
    from accelerate.utils import dataclasses, fsdp_utils
    from torch import nn
    from torch.distributed import fsdp
    from torch.distributed.fsdp import fully_sharded_data_parallel
    from transformer import Model

    calls: list[object] = []
    model = Model()
    names = {id(module): name for name, module in model.named_modules()}

    def fully_shard(module: Any, **settings: Any) -> Any:
        modules = module if isinstance(module, (list, tuple)) else [module]
        calls.append(([names[id(each)] for each in modules], _shown(settings)))
        return module

    class FullyShardedDataParallel(nn.Module):
        def __init__(self, _: nn.Module, **settings: Any) -> None:
            calls.append(_shown(settings))
            raise _Sharded

    with (
        patch.object(fsdp, "fully_shard", fully_shard),
        patch.object(
            fully_sharded_data_parallel, "FullyShardedDataParallel", FullyShardedDataParallel
        ),
        patch.object(fsdp_utils, "fsdp2_load_full_state_dict", create=True),
        patch.object(dataclasses, "is_cuda_available", lambda: True),
        patch.object(torch.cuda, "current_device", lambda: "cuda:0"),
        patch.object(Accelerator, "distributed_type", DistributedType.FSDP),
    ):
        AcceleratorState._reset_state(True)
        plugin = made()
        if plugin is None:
            return {"sharding": "none"}
        accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
        accelerator.state.fsdp_plugin = plugin
        version = getattr(plugin, "fsdp_version", 1)
        try:
            if version == 2:
                fsdp_utils.fsdp2_prepare_model(accelerator, model)
            else:
                accelerator.prepare_model(model)
        except _Sharded:
            pass
        AcceleratorState._reset_state(True)
    others = ("state_dict_type", "activation_checkpointing", "activation_checkpointing_offload")
    others += ("cpu_ram_efficient_loading", "ignored_modules")
    return {
        "version": version,
        "calls": calls,
        # What transformers reads by itself.
        "environment": os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING"),
        **{name: str(getattr(plugin, name, None)) for name in others},
    }


def _shown(settings: dict[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in sorted(settings.items())}


def _text(value: object) -> str:
    """Return a value as a text that is the same in each run."""
    if isinstance(value, functools.partial):
        return f"{_text(value.func)}({_shown(value.keywords)})"
    if isinstance(value, (set, frozenset, list, tuple)):
        return str(sorted(map(_text, value)))
    return getattr(value, "__name__", None) or str(value)
