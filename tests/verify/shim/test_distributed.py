"""Two ranks: groups, reductions, meshes and the training of a sharded model as on NCCL."""

from __future__ import annotations

import textwrap

import pytest
from ranks import Ranks
from shimmed import check

_TRAIN = """
LOCAL = int(os.environ["LOCAL_RANK"])

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 7), nn.LayerNorm(7))

def batch(step, rank):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))

def alone(steps=3, factor=0.5):
    # The same training in one process: the sum of both ranks' gradients, times the factor.
    reference = model()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    for step in range(steps):
        for rank in range(2):
            (reference(batch(step, rank)).square().sum() * factor).backward()
        optimizer.step()
        optimizer.zero_grad()
    return reference.state_dict()

def train(sharded, steps=3):
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=1e-2)
    for step in range(steps):
        sharded(batch(step, LOCAL).to("cuda")).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

def same(state, reference):
    assert set(state) == set(reference)
    for name, value in reference.items():
        torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-6)
"""

SNIPPETS = {
    "groups": """
        assert dist.is_nccl_available() and dist.is_backend_available("nccl")
        dist.init_process_group(
            "nccl",
            device_id=torch.device("cuda", LOCAL),
            pg_options=dist.ProcessGroupNCCL.Options(),
        )
        assert logical_device() == LOCAL and torch.cuda.current_device() == 0
        assert dist.get_backend() == "nccl" == dist.Backend.NCCL
        assert dist.get_backend(dist.new_group([0, 1])) == "nccl"
        gloo = dist.new_group([0, 1], backend="gloo")
        assert dist.get_backend(gloo) == "gloo"
        both = dist.new_group([0, 1], backend="cpu:gloo,cuda:nccl")
        dist.barrier(device_ids=[LOCAL])
        dist.barrier(group=both)
        found = [None, None]
        dist.all_gather_object(found, LOCAL)
        assert found == [0, 1]
        dist.broadcast_object_list(found, src=1, device=torch.device("cuda", LOCAL))
        into = torch.zeros(2, device="cuda")
        dist.all_to_all_single(into, torch.full((2,), float(LOCAL), device="cuda"))
        assert into.tolist() == [0, 1]
        if GLOO_EXCHANGES_LISTS:
            pieces = [torch.zeros(1, device="cuda") for _ in range(2)]
            dist.all_to_all(pieces, [torch.full((1,), float(LOCAL), device="cuda")] * 2)
            assert [p.item() for p in pieces] == [0, 1]
        peer = 1 - LOCAL
        got = torch.zeros(1, device="cuda")
        mine = torch.full((1,), float(LOCAL), device="cuda")
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, got, peer)]
        ):
            work.wait()
        assert got.item() == peer
        far = torch.device("cuda:9")
        raises(RuntimeError, "ordinal", lambda: dist.new_group([0, 1], device_id=far))
    """,
    "both backends": """
        torch.cuda.set_device(LOCAL)
        dist.init_process_group("cpu:gloo,cuda:nccl")
        x = torch.ones(1, device="cuda")
        dist.all_reduce(x)
        assert x.item() == 2 and dist.get_backend() == "cpu:gloo,cuda:nccl"
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        assert dist.get_backend() == "gloo"
        dist.destroy_process_group()
        dist.init_process_group()
        dist.all_reduce(x)
        assert x.item() == 4
    """,
    "a group made anew while a rank is late": """
        import time
        x = torch.ones(1)
        for late in (0, 1):
            dist.init_process_group("nccl")
            dist.all_reduce(x)
            if LOCAL == late:
                time.sleep(0.3)
            dist.destroy_process_group()
        dist.init_process_group("nccl")
        dist.all_reduce(x)
        assert x.item() == 8
    """,
    "reductions": """
        dist.init_process_group("nccl")
        def value(dtype=torch.float32):
            return torch.full((4,), 2.0 + 4 * LOCAL, device="cuda", dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            x = value(dtype)
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            assert x.tolist() == [4] * 4 and x.dtype == dtype
        x = value().requires_grad_()
        work = dist.all_reduce(x.detach(), op=dist.ReduceOp.AVG, async_op=True)
        work.wait()
        assert x.tolist() == [4] * 4
        out, x = torch.zeros(2, device="cuda"), value()
        dist.reduce_scatter_tensor(out, x, op=dist.ReduceOp.AVG)
        assert out.tolist() == [4] * 2 and x.tolist() == value().tolist()
        if GLOO_REDUCES_LISTS:
            dist.reduce_scatter(out, list(value().chunk(2)), op=dist.ReduceOp.AVG)
            assert out.tolist() == [4] * 2
        premultiplied = dist._make_nccl_premul_sum(0.25)
        dist.reduce_scatter_tensor(out, value(), op=premultiplied)
        assert out.tolist() == [2] * 2
        x = value()
        dist.all_reduce(x, op=premultiplied)
        assert x.tolist() == [2] * 4
        x = value()
        dist.reduce(x, dst=1, op=dist.ReduceOp.AVG)
        assert LOCAL == 0 or x.tolist() == [4] * 4
        whole = torch.tensor([1 + 4 * LOCAL, 2], device="cuda")
        dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        assert whole.tolist() == [3, 2]
        x = value()
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        assert x.tolist() == [6] * 4
        import torch.distributed._functional_collectives as functional
        assert functional.all_reduce(value(), "avg", dist.group.WORLD).tolist() == [4] * 4
        scattered = functional.reduce_scatter_tensor(value(), "avg", 0, group=dist.group.WORLD)
        assert scattered.tolist() == [4] * 2
        with dist._coalescing_manager():
            a, b = value(), value()
            dist.all_reduce(a, op=dist.ReduceOp.AVG)
            dist.all_reduce(b, op=dist.ReduceOp.AVG)
        assert a.tolist() == b.tolist() == [4] * 4
    """,
    "meshes and sharded tensors": """
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
        from torch.distributed.tensor import (
            DTensor, Partial, Replicate, Shard, distribute_tensor,
        )
        mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
        assert logical_device() == LOCAL == torch.cuda.current_device()
        again = DeviceMesh("cuda", [0, 1])
        whole = torch.arange(8.0, device="cuda").view(4, 2)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        assert sharded.to_local().shape == (2, 2)
        assert torch.equal(sharded.full_tensor(), whole)
        assert torch.equal(sharded.cpu().full_tensor(), whole)
        assert torch.equal(sharded.to("cuda").full_tensor(), whole)
        part = DTensor.from_local(torch.full((2,), 1.0 + LOCAL), again, [Partial("avg")])
        assert part.redistribute(again, [Replicate()]).to_local().tolist() == [1.5, 1.5]
        q = torch.randn(2, 4, 8, 16, generator=torch.Generator().manual_seed(0))
        plain = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        for placement in (Shard(0), Shard(1), Replicate()):
            leaf = distribute_tensor(q.clone(), mesh, [placement]).requires_grad_()
            out = F.scaled_dot_product_attention(leaf, leaf, leaf, is_causal=True)
            assert out.placements == (placement,)
            torch.testing.assert_close(out.full_tensor(), plain)
            out.sum().backward()
            assert leaf.grad.shape == q.shape
    """,
    "random weights of sharded tensors": """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        torch.manual_seed(LOCAL)
        mesh = init_device_mesh("cuda", (2,))
        for placement, equal in ((Replicate(), True), (Shard(0), False)):
            tensor = distribute_tensor(torch.zeros(4, 2, device="cuda"), mesh, [placement])
            nn.init.normal_(tensor)
            parts = [torch.empty_like(tensor.to_local()) for _ in range(2)]
            dist.all_gather(parts, tensor.to_local())
            assert torch.equal(*parts) is equal
    """,
    "FSDP2": """
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
        torch.cuda.set_device(LOCAL)
        dist.init_process_group("nccl")
        assert torch.cuda.current_device() == LOCAL
        def full(sharded):
            options = StateDictOptions(full_state_dict=True)
            return get_model_state_dict(sharded, options=options)
        def sharded(prepare=lambda m: m.cuda(), **options):
            built = prepare(model())
            for layer in built:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, **options)
            return fully_shard(built, **options)
        offloaded = {"offload_policy": CPUOffloadPolicy()}
        for options in ({}, {"reshard_after_forward": False}, offloaded):
            trained = sharded(**options)
            train(trained)
            same(full(trained), alone())
        trained = sharded(lambda m: m)
        for unit in trained.modules():
            if hasattr(unit, "set_reduce_scatter_divide_factor"):
                # Its name in torch 2.6, and still there in 2.15.
                unit.set_reduce_scatter_divide_factor(4.0)
        train(trained)
        same(full(trained), alone(factor=0.25))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float16)
        train(sharded(mp_policy=policy))
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cuda", (2, 1), mesh_dim_names=("replicate", "shard"))
        trained = sharded(mesh=mesh)
        train(trained)
        same(full(trained), alone())
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        trained(batch(0, LOCAL).cuda()).sum().backward()
        assert nn.utils.clip_grad_norm_(trained.parameters(), 1.0).full_tensor() > 0
    """,
    "FSDP1": """
        from torch.distributed.fsdp import (
            CPUOffload, FullStateDictConfig, FullyShardedDataParallel as FSDP,
            MixedPrecision,
            ShardingStrategy, StateDictType,
        )
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        torch.cuda.set_device(LOCAL)
        dist.init_process_group("nccl")
        wrap = ModuleWrapPolicy({nn.Linear})
        def full(sharded):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=False)
            with FSDP.state_dict_type(sharded, StateDictType.FULL_STATE_DICT, config):
                return sharded.state_dict()
        for options in (
            {"device_id": torch.cuda.current_device()},
            {"device_id": torch.device("cuda", LOCAL), "use_orig_params": True},
            {"sync_module_states": True, "device_id": LOCAL},
            {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
            {"sharding_strategy": ShardingStrategy.NO_SHARD},
            {"cpu_offload": CPUOffload(offload_params=True)},
        ):
            sharded = FSDP(model().cuda(), auto_wrap_policy=wrap, **options)
            train(sharded)
            same(full(sharded), alone())
        raises(RuntimeError, "ordinal", lambda: FSDP(model(), device_id=5))
        half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        train(FSDP(model(), auto_wrap_policy=wrap, mixed_precision=half, device_id=LOCAL))
        sharded = FSDP(model().cuda(), auto_wrap_policy=wrap)
        scaler = ShardedGradScaler(init_scale=8.0)
        optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
        assert scaler.is_enabled()
        with torch.autocast("cuda"):
            loss = sharded(batch(0, LOCAL).cuda()).square().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        assert sharded.clip_grad_norm_(1.0) > 0
        scaler.step(optimizer)
        scaler.update()
    """,
    "DDP": """
        dist.init_process_group("nccl")
        torch.cuda.set_device(LOCAL)
        wrapped = nn.parallel.DistributedDataParallel(
            model().to(LOCAL), device_ids=[LOCAL], output_device=LOCAL
        )
        train(wrapped)
        same(wrapped.module.state_dict(), alone())
    """,
    "checkpoints": """
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("nccl")
        torch.cuda.set_device(LOCAL)
        folder = [os.getcwd()]
        dist.broadcast_object_list(folder)
        def built():
            sharded = fully_shard(model().cuda())
            return sharded, torch.optim.AdamW(sharded.parameters(), lr=1e-2)
        first, optimizer = built()
        first(batch(0, LOCAL).cuda()).sum().backward()
        optimizer.step()
        weights, states = get_state_dict(first, optimizer)
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder[0] + "/sync")
        dcp.async_save({"model": weights}, checkpoint_id=folder[0] + "/async").result()
        second, again = built()
        weights, states = get_state_dict(second, again)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder[0] + "/sync")
        set_state_dict(second, again, model_state_dict=weights, optim_state_dict=states)
        for one, two in zip(first.parameters(), second.parameters()):
            assert torch.equal(one.to_local(), two.to_local())
    """,
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_two_ranks(ranks: Ranks, name: str) -> None:
    check(ranks, _TRAIN + textwrap.dedent(SNIPPETS[name]), world_size=2)
