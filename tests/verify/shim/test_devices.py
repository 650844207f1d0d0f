"""One process: what a script sees of devices, tensors, random numbers and `torch.cuda`."""

from __future__ import annotations

import pytest
from ranks import Ranks
from shimmed import check

SNIPPETS = {
    "devices": """
        assert logical_device() is None
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert not torch.cuda.is_initialized() and logical_device() is None
        assert torch.cuda.current_device() == 0 and logical_device() is None
        torch.cuda.set_device(torch.cuda.device(1))
        torch.cuda.set_device(-1)
        assert torch.cuda.current_device() == 1 == logical_device()
        assert torch.accelerator.current_device_index() == 1
        with torch.cuda.device(0):
            assert torch.cuda.current_device() == 0
            with torch.cuda.device("cuda:1"):
                assert torch.cuda.current_device() == 1
        # torch 2.6 has no `device_index`.
        with getattr(torch.accelerator, "device_index", torch.cuda.device)(0):
            assert torch.cuda.current_device() == 0
        assert torch.cuda.current_device() == 1
        torch.cuda.set_device(torch.zeros(1, device="cuda").device)
        assert torch.cuda.current_device() == 1
        for action in (
            lambda: torch.cuda.set_device(2),
            lambda: torch.zeros(1, device="cuda:2"),
            lambda: torch.zeros(1).to(2),
            lambda: torch.zeros(1).cuda(2),
            lambda: nn.Linear(1, 1).to(torch.device("cuda", 2)),
            lambda: torch.cuda.get_device_name(2),
            lambda: torch.cuda.synchronize("cuda:2"),
        ):
            raises(RuntimeError, "invalid device ordinal", action)
    """,
    "a torch.device": """
        import copy, io, pickle
        device = torch.device(1)
        assert device == torch.device("cuda", 1) == torch.device("cuda:1")
        assert (device.type, device.index) == ("cuda", 1)
        assert isinstance(device, torch.device) and type(device) == torch.device
        assert not isinstance("cuda", torch.device)
        assert {torch.device: 1}[type(device)] == 1
        assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device
        file = io.BytesIO()
        torch.save({"device": device}, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == {"device": device}
        assert torch.accelerator.current_accelerator().type == "cuda"
        def annotated(device: torch.device | None) -> None: ...
    """,
    "tensors are the CPU's": """
        device = torch.device("cuda", 1)
        made = [
            torch.zeros(2, device=device), torch.empty(2, device="cuda"), torch.ones(2, device=1),
            torch.tensor([1.0], device=device), torch.as_tensor([1.0], device=device),
            torch.full((2,), 1.0, device=device), torch.arange(2, device=device),
            torch.eye(2, device=device), torch.linspace(0, 1, 2, device=device),
            torch.randn(2, device=device), torch.randperm(4, device=device),
            torch.zeros_like(torch.zeros(2), device=device),
            torch.zeros(2).new_ones(2, device=device),
            torch.empty_strided((2,), (1,), device=device), torch.fft.fftfreq(4, device=device),
            torch.zeros(2).to(device), torch.zeros(2).to(0), torch.zeros(2).to("cuda", torch.int32),
            torch.zeros(2).to(device=device, dtype=torch.float64), torch.zeros(2).cuda(),
            torch.zeros(2).cuda(1, non_blocking=True),
            torch.zeros(2).type("torch.cuda.FloatTensor"),
            torch.zeros(2).type(torch.cuda.HalfTensor), torch.cuda.FloatTensor([1.0]),
            torch.empty(2, pin_memory=True),
            torch.zeros(2, device=torch.zeros(1, device=1).get_device()),
        ]
        assert all(t.device.type == "cpu" and not t.is_cuda for t in made)
        assert torch.zeros(2).to("cuda", torch.int32).dtype == torch.int32
        assert torch.zeros(2).type("torch.cuda.DoubleTensor").dtype == torch.float64
        assert isinstance(torch.zeros(2), torch.cuda.FloatTensor)
        assert torch.zeros(1).to("meta").is_meta and torch.zeros(1, device="meta").is_meta
        model = nn.Linear(2, 2, device="cuda")
        weight = model.weight
        assert model.cuda() is model and model.to(1).weight is weight
        assert model.to("cuda", torch.bfloat16).weight.dtype == torch.bfloat16
        assert nn.Linear(2, 2, device="meta").to_empty(device="cuda:1").weight.device.type == "cpu"
        skipped = torch.nn.utils.skip_init(nn.Linear, 2, 2, device="cuda")
        assert skipped.weight.device.type == "cpu"
        packed = nn.utils.rnn.pack_sequence([torch.zeros(2, 1)]).to("cuda")
        assert packed.data.device.type == "cpu"
        torch.zeros(1).record_stream(torch.cuda.current_stream())
        raises(Unmappable, "pointer", lambda: torch.zeros(1).__cuda_array_interface__)
    """,
    "default devices": """
        with torch.device("cuda"):
            assert torch.zeros(1).device.type == "cpu" and torch.randn(1).device.type == "cpu"
            assert nn.Linear(1, 1).weight.device.type == "cpu"
        with torch.device("meta"):
            assert torch.zeros(1).is_meta and nn.Linear(1, 1).weight.is_meta
            assert not torch.zeros(1, device="cuda").is_meta
        torch.set_default_device("cuda:1")
        assert torch.get_default_device() == torch.device("cuda:1")
        assert torch.zeros(1).device.type == "cpu"
        torch.set_default_device("cpu")
        assert torch.get_default_device() == torch.device("cpu")
        torch.set_default_device(None)
        assert torch.zeros(1).device.type == "cpu"
        assert logical_device() == 1  # the one that was named, which is not the current one
        assert torch.cuda.current_device() == 0
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        assert torch.zeros(1).dtype == torch.float64
    """,
    "copies follow the words": """
        x = torch.zeros(2, device="cuda")
        cpu = torch.device("cpu")
        kept = [x.cpu(), x.to("cpu"), x.to(cpu), x.detach().to(device=cpu), x.pin_memory()]
        same = [x.cuda(), x.to("cuda"), x.to(torch.zeros(1).device), x.to(0)]
        x.fill_(1)
        assert all(k.sum() == 0 for k in kept) and all(s.sum() == 2 for s in same)
        weight = nn.Parameter(torch.ones(2))
        assert not weight.cpu().is_leaf and weight.cuda() is weight
        assert x.pin_memory().is_pinned() and not x.is_pinned()
        pinned = x.pin_memory()
        assert pinned.pin_memory() is pinned and pinned[1:].is_pinned()
        assert torch.empty(1, pin_memory=True).is_pinned()
        raises(NotImplementedError, "meta", lambda: torch.zeros(1, device="meta").cpu())
        model = nn.Linear(1, 1)
        assert model.cpu().weight is model.weight
    """,
    "random numbers": """
        torch.manual_seed(0)
        one, two = torch.randn(4, device="cuda"), torch.randn(4)
        torch.manual_seed(0)
        assert torch.equal(torch.randn(4), two)   # what CUDA drew took nothing from the CPU
        assert torch.equal(torch.randn(4, device="cuda"), one)
        torch.manual_seed(0)
        torch.cuda.manual_seed(7)
        assert torch.equal(torch.randn(4), two)
        state = torch.cuda.get_rng_state()
        first = torch.rand(4, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.equal(torch.rand(4, device=0), first)
        assert not torch.equal(torch.rand(4, device=1), first)
        with torch.device("cuda"):
            torch.cuda.set_rng_state(state)
            assert torch.equal(torch.rand(4), first)
        torch.cuda.manual_seed_all(7)
        assert torch.cuda.initial_seed() == 7 and len(torch.cuda.get_rng_state_all()) == 2
        torch.cuda.set_rng_state_all([state, state])
        with torch.random.fork_rng(devices=[0, 1]):
            torch.rand(4, device="cuda")
        assert torch.equal(torch.rand(4, device="cuda"), first)
        generator = torch.Generator(device="cuda").manual_seed(3)
        assert isinstance(generator, torch.Generator)
        drawn = torch.randint(0, 9, (4,), device="cuda", generator=generator)
        same = torch.Generator().manual_seed(3)
        assert torch.equal(drawn, torch.randint(0, 9, (4,), generator=same))
        assert len(torch.cuda.default_generators) == 2
    """,
    "streams and events": """
        stream = torch.cuda.Stream()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            assert torch.cuda.current_stream() is stream
            start.record()
            with torch.cuda.stream(None):
                assert torch.cuda.current_stream() is stream
        assert torch.cuda.current_stream() is torch.cuda.default_stream() is not stream
        torch.cuda.current_stream().wait_stream(stream)
        stream.wait_event(stream.record_event())
        end.record(stream)
        torch.cuda.synchronize()
        assert 0 <= start.elapsed_time(end) < 1000 and end.query()
        assert isinstance(stream, torch.cuda.Stream) and isinstance(stream, torch.Stream)
        with torch.Stream(device="cuda") as general:
            assert torch.accelerator.current_stream() is general
        assert stream.device == torch.device("cuda", 0)
        with torch.cuda.nvtx.range("step"):
            torch.cuda.nvtx.range_push("inner")
            torch.cuda.nvtx.range_pop()
    """,
    "memory and properties": """
        before = torch.cuda.memory_allocated()
        held = torch.ones(2**24, device="cuda")
        assert torch.cuda.memory_allocated() - before >= 2**25
        assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() - 2**20
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] > 0
        assert torch.cuda.memory.memory_reserved(0) > 0
        free, total = torch.cuda.mem_get_info()
        assert 0 < free < total == torch.cuda.get_device_properties(0).total_memory
        assert "resident" in torch.cuda.memory_summary()
        assert torch.cuda.get_device_capability() >= (8, 0)
        assert "A100" in torch.cuda.get_device_name(1)
        assert torch.cuda.is_bf16_supported() and torch.cuda.nccl.version() >= (2, 10)
        assert torch.backends.cuda.is_built() and torch.backends.cudnn.is_available()
        assert int(torch.version.cuda.split(".")[0]) >= 12
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        torch.cuda.memory._record_memory_history(max_entries=10)
        torch.cuda.memory._dump_snapshot("snapshot.pickle")
        assert os.path.getsize("snapshot.pickle") > 0
        assert torch.get_device_module() is torch.get_device_module("cuda") is torch.cuda
    """,
    "what is refused": """
        raises(Unmappable, "CUDAGraph", torch.cuda.CUDAGraph)
        raises(Unmappable, "graph", lambda: torch.cuda.graph(None))
        raises(Unmappable, "GPU", lambda: torch.cuda.nccl.all_reduce([torch.zeros(1)]))
        raises(Unmappable, "DataParallel", lambda: nn.DataParallel(nn.Linear(1, 1)))
        raises(Unmappable, "cudart", torch.cuda.cudart)
        from torch.utils.cpp_extension import load_inline
        raises(Unmappable, "kernels", lambda: load_inline("x", "", cuda_sources="__global__"))
        one = nn.DataParallel(nn.Linear(1, 1), device_ids=[0])
        assert one(torch.zeros(3, 1)).shape == (3, 1)
    """,
    "mixed precision": """
        x = torch.ones(2, 2, device="cuda")
        with torch.autocast("cuda"):
            assert (x @ x).dtype == torch.float16 and torch.is_autocast_enabled("cuda")
            assert torch.is_autocast_enabled() and torch.get_autocast_gpu_dtype() == torch.float16
            with torch.autocast("cuda", enabled=False):
                assert (x @ x).dtype == torch.float32
        with torch.cuda.amp.autocast(dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        assert not torch.is_autocast_enabled()
        for scaler in (torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler()):
            assert scaler.is_enabled()
            weight = nn.Parameter(torch.ones(2))
            optimizer = torch.optim.SGD([weight], lr=1.0)
            scaler.scale(weight.sum()).backward()
            scaler.unscale_(optimizer)
            assert weight.grad.tolist() == [1, 1]
            scaler.step(optimizer)
            scaler.update()
            assert weight.tolist() == [0, 0]
        class Cast(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                assert x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")
                return x
            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                return grad
        with torch.autocast("cuda", dtype=torch.bfloat16):
            Cast.apply((x @ x).requires_grad_()).sum().backward()
        from torch.utils.checkpoint import checkpoint
        seen = []
        def block(x):
            seen.append((x @ x).dtype)
            return F.dropout(x, 0.5)
        leaf = torch.ones(64, 64, requires_grad=True)
        for reentrant in (True, False):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = checkpoint(block, leaf.to("cuda"), use_reentrant=reentrant)
            leaf.grad = None
            out.sum().backward()
            assert torch.equal(leaf.grad, out.detach())
        assert seen == [torch.bfloat16] * 4
    """,
    "attention": """
        from torch.nn.attention import SDPBackend, sdpa_kernel
        q = torch.randn(1, 2, 4, 8, device="cuda")
        plain = F.scaled_dot_product_attention(q, q, q)
        for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
            with sdpa_kernel(getattr(SDPBackend, name)):
                torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), plain)
        with torch.backends.cuda.sdp_kernel(enable_math=False, enable_mem_efficient=False):
            torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), plain)
        torch.backends.cuda.enable_math_sdp(False)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), plain)
    """,
    "files": """
        torch.save({"w": torch.ones(2, device="cuda")}, "w.pt")
        for where in (None, "cuda", "cuda:1", torch.device("cuda"), {"cuda:0": "cuda:1"},
                      {"cpu": "cuda:0"}, lambda storage, tag: storage,
                      lambda storage, tag: storage.cuda(1)):
            loaded = torch.load("w.pt", map_location=where)["w"]
            assert loaded.tolist() == [1, 1] and loaded.device.type == "cpu"
        assert torch.load("w.pt", map_location="meta")["w"].is_meta
        raises(RuntimeError, "ordinal", lambda: torch.load("w.pt", map_location="cuda:2"))
        # A file that was saved on a GPU says so in its storages' tags.
        import torch.serialization as files
        files.location_tag, tag = lambda storage: "cuda:7", files.location_tag
        torch.save({"w": torch.ones(2)}, "gpu.pt")
        files.location_tag = tag
        for where in (None, "cuda", "cpu", {"cuda:7": "cuda:0"}, {"cuda:7": "cpu"}):
            assert torch.load("gpu.pt", map_location=where)["w"].tolist() == [1, 1]
        assert torch.ones(2).untyped_storage().cuda().nbytes() == 8
    """,
    "loading data": """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(8.0), torch.arange(8))
        for workers in (0, 1):
            loader = DataLoader(
                data, batch_size=4, pin_memory=True, num_workers=workers, pin_memory_device="cuda"
            )
            batches = [(x.to(0, non_blocking=True), y) for x, y in loader]
            assert [x.tolist() for x, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert all(y.is_pinned() for _, y in batches)
        import threading
        found = []
        torch.cuda.set_device(1)
        def work():
            found.append(torch.zeros(1, device="cuda").cuda().device.type)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == ["cpu"]
    """,
    "compilation": """
        model = nn.Linear(2, 2).cuda()
        compiled = torch.compile(model, mode="max-autotune")
        assert compiled._orig_mod is model
        assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        x = torch.ones(2, device="cuda")
        assert torch.equal(compiled(x), model(x))
        @torch.compile
        def double(x):
            return 2 * x
        assert double(x).tolist() == [2, 2]
        assert torch.compile(fullgraph=True)(lambda x: x)(1) == 1
        model.compile()
        assert torch.equal(model(x), compiled(x))
        @torch.jit.script
        def scripted(x: torch.Tensor) -> torch.Tensor:
            return x + torch.zeros(1, device=x.device)
        assert scripted(x).tolist() == [1, 1]
    """,
    "profiling": """
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(8, 8, device="cuda")
        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=both, profile_memory=True) as p:
            x @ x
        assert "aten::mm" in p.key_averages().table(sort_by="cuda_time_total")
        with torch.autograd.profiler.profile(use_cuda=True) as p:
            x @ x
        with torch.cuda.profiler.profile():
            pass
    """,
    "fake tensors": """
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            x = torch.zeros(2, device="cuda")
            assert x.cpu() is x and x.to("cpu") is x and x.cuda() is x
    """,
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_one_process(ranks: Ranks, name: str) -> None:
    check(ranks, SNIPPETS[name])
