"""FSDP1 wrappings and FSDP2 shardings with arguments that one of them does not take."""

from benchmarks.differential.families.family import Family

_FSDP1 = """
import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x


torch.manual_seed(0)
model = Model()
«frozen»
«wrap»
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
for index in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
print(sum(p.numel() for p in model.parameters()), len(list(model.named_parameters())))
"""

_DEVICE = 'device_id=torch.device("cpu")'
_INIT = 'dist.init_process_group("gloo")\n'

_FROZEN = {
    "none": "",
    "embed": "model.embed.requires_grad_(False)",
    "option": """
        if os.environ.get("FREEZE", "1") == "1":
            for parameter in model.embed.parameters():
                parameter.requires_grad = False
    """,
    "block": "model.blocks[0].requires_grad_(False)",
}

_WRAP = {
    "root": f"{_INIT}model = FSDP(model, {_DEVICE})",
    "launched": f"""
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
            model = FSDP(model, {_DEVICE})
    """,
    "explicit": f"{_INIT}model = FSDP(model, use_orig_params=False, {_DEVICE})",
    "switch": f"""
        dist.init_process_group("gloo")
        if os.environ.get("FSDP", "1") == "1":
            model = FSDP(model, {_DEVICE})
    """,
    "called": f"""
        dist.init_process_group("gloo")
        policy = size_based_auto_wrap_policy(min_num_params=100)
        model = FSDP(model, auto_wrap_policy=policy, {_DEVICE})
    """,
    "called_transformer": f"""
        dist.init_process_group("gloo")
        policy = transformer_auto_wrap_policy(transformer_layer_cls={{Block}})
        model = FSDP(model, auto_wrap_policy=policy, {_DEVICE})
    """,
    "called_chosen": f"""
        dist.init_process_group("gloo")
        policy = None
        if os.environ.get("POLICY", "1") == "1":
            policy = size_based_auto_wrap_policy(min_num_params=100)
        model = FSDP(model, auto_wrap_policy=policy, {_DEVICE})
    """,
    "called_caught": f"""
        dist.init_process_group("gloo")
        try:
            policy = size_based_auto_wrap_policy(100)
        except TypeError:
            policy = functools.partial(size_based_auto_wrap_policy, min_num_params=60)
        model = FSDP(model, auto_wrap_policy=policy, {_DEVICE})
    """,
    "classes": f"{_INIT}model = FSDP(model, auto_wrap_policy={{Block}}, {_DEVICE})",
    "class_list": f"{_INIT}model = FSDP(model, auto_wrap_policy=[Block], {_DEVICE})",
    "class_name": f"""
        dist.init_process_group("gloo")
        kinds = {{Block}}
        model = FSDP(model, auto_wrap_policy=kinds, {_DEVICE})
        print(len(kinds))
    """,
}

_FSDP2 = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
«call.imports»


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 2), "b": nn.Linear(8, 3)})

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.cat([self.heads["a"](x), self.heads["b"](x)], -1)


torch.manual_seed(0)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = Model()
block = 3
«call.shard»
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for index in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    «call.step»
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
print(block)
«call.after»
"""

_CALL = {
    "list": {"shard": "fully_shard(model.blocks, mesh=mesh)\nfully_shard(model, mesh=mesh)"},
    "dict": {"shard": "fully_shard(model.heads, mesh=mesh)\nfully_shard(model, mesh=mesh)"},
    "list_caught": {
        "shard": """
            try:
                fully_shard(model.blocks, mesh=mesh)
            except ValueError:
                print("not a unit")
            fully_shard(model, mesh=mesh)
        """
    },
    "list_if_callable": {
        "shard": """
            for part in (model.blocks, model):
                if not isinstance(part, nn.ModuleList):
                    fully_shard(part, mesh=mesh)
        """
    },
    "list_sometimes": {
        "shard": """
            if os.environ.get("BLOCKS", "1") == "1":
                fully_shard(model.blocks, mesh=mesh)
            fully_shard(model, mesh=mesh)
        """
    },
    "list_of_shared": {
        "shard": """
            model.blocks.append(model.blocks[0])
            fully_shard(model.blocks, mesh=mesh)
            fully_shard(model, mesh=mesh)
        """
    },
    "device_mesh": {"shard": "fully_shard(model, device_mesh=mesh)"},
    "by_position": {"shard": "fully_shard(model, mesh)"},
    "policy_none": {"shard": "fully_shard(model, mesh=mesh, mp_policy=None)"},
    "policy_none_later": {
        "shard": """
            options = {"mesh": mesh}
            fully_shard(model, mp_policy=None, **options)
        """
    },
    "offload_none": {"shard": "fully_shard(model, mesh=mesh, offload_policy=None)"},
    "old_fsdp1": {
        "shard": "fully_shard(model, mesh=mesh, sharding_strategy=None)",
    },
    "ignored_modules": {"shard": "fully_shard(model, mesh=mesh, ignored_modules=[model.heads])"},
    "sync_states": {"shard": "fully_shard(model, mesh=mesh, sync_module_states=False)"},
    "orig_params": {"shard": "fully_shard(model, mesh=mesh, use_orig_params=True)"},
    "module": {
        "shard": "fully_shard(model, mesh=mesh)",
        "after": "print(len(list(model.module.parameters())))",
    },
    "module_if_there": {
        "shard": "fully_shard(model, mesh=mesh)",
        "after": """
            inner = model.module if hasattr(model, "module") else model
            print(inner is model)
        """,
    },
    "module_caught": {
        "shard": "fully_shard(model, mesh=mesh)",
        "after": """
            try:
                inner = model.module
            except AttributeError:
                print("no wrapper")
        """,
    },
    "clip": {
        "shard": "fully_shard(model, mesh=mesh)",
        "step": "model.clip_grad_norm_(0.1)",
    },
    "clip_used": {
        "shard": "fully_shard(model, mesh=mesh)",
        "step": "norm = model.clip_grad_norm_(0.1)\nprint(f'{norm.item():.5f}')",
    },
    "clip_plain_too": {
        "shard": """
            if os.environ.get("FSDP", "1") == "1":
                fully_shard(model, mesh=mesh)
        """,
        "step": "if isinstance(model, FSDPModule):\n    model.clip_grad_norm_(0.1)",
    },
    "old_path": {
        "imports": "from torch.distributed._tensor.debug import CommDebugMode",
        "shard": "fully_shard(model, mesh=mesh)",
        "after": "with CommDebugMode():\n    model(torch.randn(1, 8))",
    },
    "old_path_module": {
        "imports": "import torch.distributed._tensor.debug as debug",
        "shard": "fully_shard(model, mesh=mesh)",
        "after": "print(debug.CommDebugMode.__name__)",
    },
    "old_path_caught": {
        "imports": """
            try:
                from torch.distributed._tensor.debug import CommDebugMode
            except ImportError:
                CommDebugMode = None
        """,
        "shard": "fully_shard(model, mesh=mesh)",
        "after": "print(CommDebugMode)",
    },
    "old_name": {
        "imports": "from torch.distributed._tensor import Replicate, _Partial",
        "shard": "fully_shard(model, mesh=mesh)",
        "after": "print(Replicate(), _Partial.__name__)",
    },
    "old_lazily": {
        "shard": "fully_shard(model, mesh=mesh)",
        "after": """
            def debug():
                from torch.distributed._tensor.debug import CommDebugMode

                return CommDebugMode


            print("never asked")
        """,
    },
}

_FOREACH = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.router = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) + self.router(x)


torch.manual_seed(0)
model = Model()
«wrap»
optimizer = torch.optim.«kind»(«params», lr=0.1, «flag»)
for index in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
print(optimizer.defaults.get("fused"))
"""

FAMILIES = (
    Family("policies", {"train.py": _FSDP1}, {"frozen": _FROZEN, "wrap": _WRAP}),
    Family("sharding", {"train.py": _FSDP2}, {"call": _CALL}),
    Family(
        "foreach",
        {"train.py": _FOREACH},
        {
            "wrap": {
                "always": 'dist.init_process_group("gloo")\n'
                "fully_shard(model, ignored_params=set(model.router.parameters()))",
                "launched": """
                    if "RANK" in os.environ:
                        dist.init_process_group("gloo")
                        fully_shard(model, ignored_params=set(model.router.parameters()))
                """,
            },
            "kind": {"adam": "AdamW", "sgd": "SGD"},
            "params": {
                "all": "model.parameters()",
                "listed": "list(model.parameters())",
                "groups": '[{"params": model.linear.parameters()}, '
                '{"params": model.router.parameters()}]',
            },
            "flag": {
                "foreach": "foreach=True",
                "fused": "fused=True",
                "option": 'foreach=os.environ.get("FOREACH", "1") == "1"',
            },
        },
    ),
)
