"""Makes PyTorch raise one error by each function, in this process."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DistributedSampler

CPU = torch.device("cpu")
SECOND = datetime.timedelta(seconds=1)


def group(size: int) -> None:
    """Start the process group of one rank of ``size``, whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)


def scaled() -> nn.Module:
    model = nn.Linear(2, 2)
    model.scale = nn.Parameter(torch.tensor(1.0))
    return model


def fsdp1(model: nn.Module, **options: object) -> nn.Module:
    return FullyShardedDataParallel(model, device_id=CPU, **options)  # type: ignore[arg-type]  # any


def no_launcher() -> None:
    dist.init_process_group("gloo")


def port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        dist.TCPStore("localhost", taken.getsockname()[1], 1, True)


def too_few_clients() -> None:
    dist.TCPStore("localhost", 0, 2, True, timeout=SECOND)


def no_host() -> None:
    dist.TCPStore("localhost", 1, 2, False, timeout=SECOND)


def no_nccl() -> None:
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)


def mesh_too_large() -> None:
    group(2)
    init_device_mesh("cpu", (4,))


def too_few_replicas() -> None:
    DistributedSampler([0], num_replicas=8, rank=8)  # type: ignore[arg-type]  # has a length


def trainable_integers() -> None:
    nn.Parameter(torch.ones(2, dtype=torch.uint8))


def other_shapes(folder: Path) -> None:
    dcp.save({"weight": torch.ones(4, 2)}, checkpoint_id=folder, no_dist=True)
    dcp.load({"weight": torch.ones(8)}, checkpoint_id=folder, no_dist=True)


def integers() -> None:
    group(2)
    model = nn.Linear(2, 2)
    model.codes = nn.Parameter(torch.ones(2, dtype=torch.uint8), requires_grad=False)
    fsdp1(model)


def several_dtypes() -> None:
    group(2)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.bfloat16))
    fully_shard(model)
    model(torch.ones(1, 2))


def scalar() -> None:
    group(2)
    fully_shard(scaled())


def scalar_in_fsdp1() -> None:
    group(2)
    fsdp1(scaled())


def uneven() -> None:
    group(2)
    fully_shard(nn.Linear(3, 3), shard_placement_fn=lambda parameter: Shard(parameter.ndim - 1))


def wrapped_twice() -> None:
    group(2)
    fsdp1(nn.Sequential(fsdp1(nn.Linear(2, 2))), auto_wrap_policy=lambda **_: True)


def hybrid_without_groups() -> None:
    group(2)
    fsdp1(nn.Linear(2, 2), sharding_strategy=ShardingStrategy.HYBRID_SHARD)


def moved_from_meta() -> None:
    nn.Linear(2, 2, device="meta").to("cpu")


def never_materialized() -> None:
    group(2)
    model = nn.Linear(2, 2, device="meta")
    fully_shard(model)
    model(torch.ones(1, 2))


def mixed_in_a_convolution() -> None:
    nn.functional.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2, dtype=torch.bfloat16))


def mixed_in_a_layer() -> None:
    nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bfloat16))


def no_such_gpu(folder: Path) -> None:
    torch.save(torch.ones(1), folder / "model.pt")
    torch.load(folder / "model.pt", map_location="cuda:3")


def on_two_meshes() -> tuple[DTensor, DTensor]:
    group(2)
    one, two = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (2, 1))
    first = distribute_tensor(torch.ones(4), one, [Shard(0)])
    return first, distribute_tensor(torch.ones(4), two, [Shard(0), Replicate()])


def added_across_meshes() -> None:
    first, second = on_two_meshes()
    first + second


def clipped_across_meshes() -> None:
    torch.nn.utils.get_total_norm(on_two_meshes())


def parallelized_last() -> None:
    group(4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = fully_shard(nn.Linear(8, 8), mesh=mesh["dp"])
    parallelize_module(model, mesh["tp"], ColwiseParallel())


def no_such_dimension() -> None:
    group(2)
    init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))["tp"]


def hybrid_on_one_dimension() -> None:
    group(2)
    mesh = init_device_mesh("cpu", (2,))
    fsdp1(nn.Linear(2, 2), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD)


def policy_of_fsdp2() -> None:
    group(2)
    fsdp1(nn.Sequential(nn.Linear(2, 2)), mixed_precision=MixedPrecisionPolicy())


def scaled_halves() -> None:
    parameter = nn.Parameter(torch.ones(1, dtype=torch.float16))
    optimizer = torch.optim.SGD([parameter])
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)


def scaled_without_gradients() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1, requires_grad=True)).backward()
    scaler.step(optimizer)


def recomputed_differently() -> None:
    sizes = iter((3, 4))

    def block(x: torch.Tensor) -> torch.Tensor:
        return (x * torch.ones(next(sizes), 1)).exp().sum()

    loss = checkpoint(block, torch.ones(1, requires_grad=True), use_reentrant=False)
    loss.backward()


def missing_key(folder: Path) -> None:
    dcp.save({"old": torch.ones(1)}, checkpoint_id=folder, no_dist=True)
    dcp.load({"new": torch.ones(1)}, checkpoint_id=folder, no_dist=True)


def not_only_weights(folder: Path) -> None:
    torch.save({"time": datetime.datetime.now(datetime.timezone.utc)}, folder / "model.pt")
    torch.load(folder / "model.pt")
