"""Which collectives some ranks do not reach."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from engine.helpers import program

from fsdplint.rules.collective_under_rank_guard import missed_collectives

HEADER = """\
import os
import sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from contextlib import contextmanager
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
"""
BUILD = """
rank = dist.get_rank()
local_rank = int(os.environ["LOCAL_RANK"])
world_size = dist.get_world_size()
full = StateDictOptions(full_state_dict=True, cpu_offload=True)
x = torch.ones(2, 8)
"""
FSDP2 = "model = nn.Sequential(nn.Linear(8, 8))\nfully_shard(model)\n"
FSDP1 = "model = FSDP(nn.Sequential(nn.Linear(8, 8)))\n"


def missed(folder: Path, body: str, build: str = FSDP2) -> list[str]:
    """The texts of the collectives that some ranks miss, in order of place."""
    text = HEADER + BUILD + build + textwrap.dedent(body)
    made = program(folder, {"train.py": text})
    found = {fact.collective.call.site.node for fact in missed_collectives(made)}
    return [text[node.start : node.end] for node in sorted(found, key=lambda node: node.start)]


GUARDS = {
    "rank == 0": "if rank == 0:\n    model(x)",
    "0 == rank": "if 0 == rank:\n    model(x)",
    "not rank": "if not rank:\n    model(x)",
    "rank": "if rank:\n    model(x)",
    "rank < 1": "if rank < 1:\n    model(x)",
    "rank in (0,)": "if rank in (0,):\n    model(x)",
    "rank not in (1, 2)": "if rank not in (1, 2):\n    model(x)",
    "get_rank": "if dist.get_rank() == 0:\n    model(x)",
    "environment": 'if int(os.environ["RANK"]) == 0:\n    model(x)',
    "environment text": 'if os.environ.get("RANK", "0") == "0":\n    model(x)',
    "local rank": "if local_rank == 0:\n    model(x)",
    "and": "if x is None and rank == 0:\n    model(x)",
    "and after": "if rank == 0 and x is not None:\n    model(x)",
    "or of ranks": "if rank == 0 or rank == 1:\n    model(x)",
    "flag": "is_main = rank == 0\nif is_main:\n    model(x)",
    "default of one process": (
        "main = rank == 0 if dist.is_initialized() else True\nif main:\n    model(x)"
    ),
    "else": "if rank != 0:\n    pass\nelse:\n    model(x)",
    "elif": "if x is None:\n    pass\nelif rank == 0:\n    model(x)",
    "helper": "def is_main():\n    return rank == 0\nif is_main():\n    model(x)",
    "helper that asks first": """
        def is_dist():
            if not dist.is_available():
                return False
            if not dist.is_initialized():
                return False
            return True
        def get_rank():
            if not is_dist():
                return 0
            return dist.get_rank()
        if get_rank() == 0:
            model(x)
        """,
    "attribute": """
        class Trainer:
            def __init__(self):
                self.is_main = dist.get_rank() == 0
            def run(self):
                if self.is_main:
                    model(x)
        Trainer().run()
        """,
    "property": """
        class Trainer:
            @property
            def is_main(self):
                return dist.get_rank() == 0
            def run(self):
                if self.is_main:
                    model(x)
        Trainer().run()
        """,
    "early return": """
        def run():
            if rank != 0:
                return
            model(x)
        run()
        """,
    "early return in a branch": """
        def run():
            if dist.is_initialized():
                if rank != 0:
                    return
            model(x)
        run()
        """,
    "continue": "for i in range(9):\n    if rank != 0:\n        continue\n    model(x)",
    "break": "for i in range(9):\n    if rank != 0:\n        break\n    model(x)",
    "sys.exit": "if rank != 0:\n    sys.exit(0)\nmodel(x)",
    "caller": "def run():\n    model(x)\nif rank == 0:\n    run()",
    "decorator": """
        def rank_zero_only(function):
            def run(*args):
                if rank == 0:
                    return function(*args)
            return run
        @rank_zero_only
        def evaluate():
            model(x)
        evaluate()
        """,
    "decorated method": """
        import functools
        def rank_zero_only(function):
            @functools.wraps(function)
            def run(*args, **kwargs):
                return function(*args, **kwargs) if dist.get_rank() == 0 else None
            return run
        class Trainer:
            def __init__(self, model):
                self.model = model
            @rank_zero_only
            def evaluate(self):
                model(x)
        Trainer(model).evaluate()
        """,
    "decorator of a library": """
        from lightning.pytorch.utilities import rank_zero_only
        @rank_zero_only
        def evaluate():
            model(x)
        evaluate()
        """,
    "decorator of an object": """
        from accelerate import Accelerator
        accelerator = Accelerator()
        @accelerator.on_main_process
        def evaluate():
            model(x)
        evaluate()
        """,
    "attribute of a library": """
        from accelerate import Accelerator
        accelerator = Accelerator()
        if accelerator.is_main_process:
            model(x)
        """,
    "conditional": "y = model(x) if rank == 0 else None",
    "short circuit": "rank == 0 and model(x)",
    "short circuit or": "rank != 0 or model(x)",
    "while": "while rank == 0:\n    model(x)",
    "match": "match rank:\n    case 0:\n        model(x)\n    case _:\n        pass",
    "comprehension": "[model(b) for b in x if rank == 0]",
    "with": "if rank == 0:\n    with torch.no_grad():\n        model(x)",
    "loop": "if rank == 0:\n    for b in x:\n        model(b)",
    "try": "if rank == 0:\n    try:\n        model(x)\n    finally:\n        pass",
}


@pytest.mark.parametrize("body", GUARDS.values(), ids=GUARDS)
def test_a_guard_by_the_rank_keeps_ranks_away(body: str, tmp_path: Path) -> None:
    assert missed(tmp_path, body) == ["model(b)" if "model(b)" in body else "model(x)"]


COLLECTIVES = {
    "dist.barrier()": FSDP2,
    "dist.monitored_barrier()": FSDP2,
    "dist.all_reduce(x)": FSDP2,
    "dist.broadcast(x, src=0)": FSDP2,
    "dist.broadcast_object_list([x], 0)": FSDP2,
    "dist.all_gather_object([None], x)": FSDP2,
    "dist.reduce(x, 0)": FSDP2,
    "dist.barrier(group=None)": FSDP2,
    "dist.all_reduce(x, group=dist.group.WORLD)": FSDP2,
    "dist.new_group([0, 1])": FSDP2,
    'dcp.save({"x": x}, checkpoint_id="c")': FSDP2,
    'dcp.async_save({"x": x}, checkpoint_id="c")': FSDP2,
    'dcp.load({"x": x}, checkpoint_id="c", no_dist=False)': FSDP2,
    "get_model_state_dict(model, options=full)": FSDP2,
    "get_optimizer_state_dict(model, torch.optim.SGD(model.parameters()), options=full)": FSDP2,
    "set_model_state_dict(model, {}, options=StateDictOptions(broadcast_from_rank0=True))": FSDP2,
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)": FSDP2,
    "model.unshard()": FSDP2,
    "model[0].weight.full_tensor()": FSDP2,
    "next(model.parameters()).full_tensor()": FSDP2,
    'model.state_dict()["0.weight"].full_tensor()': FSDP2,
    "model.state_dict()": FSDP1,
    "model.clip_grad_norm_(1.0)": FSDP1,
    "model(x)": FSDP1,
    "FSDP.summon_full_params(model)": FSDP1,
    "FSDP.optim_state_dict(model, torch.optim.SGD(model.parameters()))": FSDP1,
    "get_model_state_dict(model)": FSDP1,
}


@pytest.mark.parametrize(("call", "build"), COLLECTIVES.items(), ids=COLLECTIVES)
def test_a_collective_under_a_guard_is_missed(call: str, build: str, tmp_path: Path) -> None:
    assert missed(tmp_path, f"if rank == 0:\n    y = {call}\n", build) == [call]


LOCAL = {
    "model.state_dict()": FSDP2,
    "get_model_state_dict(model)": FSDP2,
    "get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))": FSDP2,
    "get_model_state_dict(nn.Linear(8, 8), options=full)": FSDP2,
    "nn.Linear(8, 8)(x)": FSDP2,
    "dist.barrier(dist.new_subgroup())": FSDP2,
    "dist.all_reduce(x, group=tensor_group)": FSDP2,
    "dist.all_reduce(x, dist.ReduceOp.SUM, tensor_group)": FSDP2,
    "dist.all_reduce(x, **options)": FSDP2,
    "dist.send(x, 1)": FSDP2,
    "dist.new_group([0], use_local_synchronization=True)": FSDP2,
    'dcp.save({"x": x}, checkpoint_id="c", no_dist=True)': FSDP2,
    'dcp.save({"x": x}, checkpoint_id="c", process_group=shard_group)': FSDP2,
    "torch.nn.utils.clip_grad_norm_(nn.Linear(8, 8).parameters(), 1.0)": FSDP2,
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()": FSDP1,
    "x.full_tensor()": FSDP2,
    "FSDP.summon_full_params(model)": FSDP2,
    "torch.save(x, 'x.pt')": FSDP2,
    "dist.barrier()": "",
    "model(x)": "model = FSDP(nn.Linear(8, 8), sharding_strategy=ShardingStrategy.NO_SHARD)\n",
}


@pytest.mark.parametrize(("call", "build"), LOCAL.items(), ids=LOCAL)
def test_what_a_rank_can_do_alone_is_left_alone(call: str, build: str, tmp_path: Path) -> None:
    build = f"from torch.distributed.fsdp import ShardingStrategy\n{build}"
    assert missed(tmp_path, f"if rank == 0:\n    y = {call}\n", build) == []


LEGAL = {
    "the write only": (
        "sd = get_model_state_dict(model, options=full)\nif rank == 0:\n    torch.save(sd, 'x')"
    ),
    "both arms": "if rank == 0:\n    model(x)\nelse:\n    model(x + 1)",
    "sender and receivers": (
        "if rank == 0:\n    dist.broadcast(x, src=0)\nelse:\n    dist.broadcast(x + 1, src=0)"
    ),
    "a barrier in each arm": """
        if rank == 0:
            torch.save(x, "x.pt")
            dist.barrier()
        else:
            dist.barrier()
        """,
    "rank 0 first": """
        if rank != 0:
            dist.barrier()
        torch.load("x.pt")
        if rank == 0:
            dist.barrier()
        """,
    "rank 0 first, in a context": """
        @contextmanager
        def rank_zero_first():
            if rank > 0:
                dist.barrier()
            yield
            if rank == 0:
                dist.barrier()
        with rank_zero_first():
            torch.load("x.pt")
        """,
    "rank 0 first, and back": """
        def load():
            if rank != 0:
                dist.barrier()
                return
            torch.load("x.pt")
            dist.barrier()
        load()
        """,
    "local rank first": """
        if local_rank not in (-1, 0):
            dist.barrier()
        torch.load("x.pt")
        if local_rank == 0:
            dist.barrier()
        """,
    "three arms": """
        if rank == 0:
            dist.barrier()
        elif rank == 1:
            dist.barrier()
        else:
            dist.barrier()
        """,
    "match": "match rank:\n    case 0:\n        model(x)\n    case _:\n        model(x)",
    "a callee on each side": """
        def serve():
            dist.broadcast(x, 0)
        def follow():
            dist.broadcast(x, 0)
        if rank == 0:
            serve()
        else:
            follow()
        """,
    "unknown code on the other side": """
        from workers import follow
        if rank == 0:
            model(x)
        else:
            follow(model)
        """,
    "one process": "if world_size == 1 and rank == 0:\n    model(x)",
    "one process around": "if world_size == 1:\n    if rank == 0:\n        model(x)",
    "one process by an argument": """
        def run(rank, world_size):
            if world_size == 1:
                if rank == 0:
                    model(x)
        run(rank, int(sys.argv[1]))
        """,
    "one process or rank 0": "if world_size == 1 or rank == 0 or x:\n    pass",
    "not distributed": "if local_rank == -1:\n    model(x)",
    "the others raise": """
        if rank != 0:
            raise RuntimeError("one node only")
        model(x)
        """,
    "the others fail": "if rank != 0:\n    sys.exit(1)\nmodel(x)",
    "a name that only says rank": "if config.rank_zero_only:\n    model(x)",
    "an argument that only says rank": "if args.local_rank == 0:\n    model(x)",
    "the rank of an adapter": """
        def run(rank):
            if rank == 0:
                model(x)
        run(int(sys.argv[1]))
        """,
    "the rank in a group": "if dist.get_rank(pipeline) == 0:\n    model(x)",
    "the rank in a mesh": 'if mesh.get_local_rank("pp") == 0:\n    model(x)',
    "the node": 'if int(os.environ["GROUP_RANK"]) == 0:\n    model(x)',
    "or something else": "if rank == 0 or everyone:\n    model(x)",
    "every rank": "if rank >= 0:\n    model(x)",
    "a turn for each": "for i in range(world_size):\n    if rank == i:\n        model(x)",
    "a decorator that asks nothing": """
        def timed(function):
            def run(*args):
                if rank == 0:
                    print("begin")
                return function(*args)
            return run
        @timed
        def evaluate():
            model(x)
        evaluate()
        """,
    "a copy": "import copy\nif rank == 0:\n    copy.deepcopy(nn.Linear(8, 8))(x)",
}


@pytest.mark.parametrize("body", LEGAL.values(), ids=LEGAL)
def test_what_the_other_ranks_answer_is_left_alone(body: str, tmp_path: Path) -> None:
    assert missed(tmp_path, body) == []


def test_before_it_is_sharded_a_model_is_each_ranks_own(tmp_path: Path) -> None:
    body = """
        model = nn.Linear(8, 8)
        if rank == 0:
            model(x)
        fully_shard(model)
        """
    assert missed(tmp_path, body, "") == []


def test_ranks_that_shard_alone_talk_among_themselves(tmp_path: Path) -> None:
    body = """
        model = nn.Linear(8, 8)
        if rank != 0:
            fully_shard(model)
            model(x)
            dist.barrier()
        """
    assert missed(tmp_path, body, "") == []


SHARDED_IN_BOTH_ARMS = {
    "two calls": """
        if rank == 0:
            model = FSDP(nn.Linear(8, 8))
            dist.barrier()
        else:
            model = FSDP(nn.Linear(8, 8))
        """,
    "one function": """
        def shard():
            return fully_shard(nn.Linear(8, 8))
        if rank == 0:
            model = shard()
            dist.barrier()
        else:
            model = shard()
        """,
}


@pytest.mark.parametrize("body", SHARDED_IN_BOTH_ARMS.values(), ids=SHARDED_IN_BOTH_ARMS)
def test_ranks_that_shard_in_an_arm_each_talk_together(body: str, tmp_path: Path) -> None:
    assert missed(tmp_path, body, "") == ["dist.barrier()"]


@pytest.mark.parametrize("group", ["process_group=first", "first", "**options"])
def test_ranks_that_shard_in_groups_of_their_own_are_left_alone(group: str, tmp_path: Path) -> None:
    body = f"""
        if rank == 0:
            model = FSDP(nn.Linear(8, 8), {group})
            dist.barrier()
        else:
            model = FSDP(nn.Linear(8, 8), process_group=others)
        """
    assert missed(tmp_path, body, "") == []


def test_ranks_of_which_some_shard_twice_are_left_alone(tmp_path: Path) -> None:
    body = """
        if rank > 1:
            model = FSDP(nn.Linear(8, 8))
            dist.barrier()
        elif rank == 1:
            model = FSDP(nn.Linear(8, 8))
        """
    assert missed(tmp_path, body, "") == []


def test_a_barrier_in_each_arm_that_shards_is_left_alone(tmp_path: Path) -> None:
    body = """
        def shard():
            model = FSDP(nn.Linear(8, 8))
            dist.barrier()
            return model
        if rank == 0:
            model = shard()
        else:
            model = shard()
        """
    assert missed(tmp_path, body, "") == []


def test_one_call_below_a_guard_is_one_mistake(tmp_path: Path) -> None:
    body = """
        def evaluate():
            model(x)
            dist.all_reduce(x)
        if rank == 0:
            evaluate()
            dist.barrier()
        """
    assert missed(tmp_path, body) == ["model(x)", "dist.barrier()"]


@pytest.mark.parametrize(
    "launch",
    [
        "import torch.multiprocessing as mp\nmp.spawn(worker, args=(2,), nprocs=2)",
        "import torch.multiprocessing as mp\nmp.start_processes(worker, args=(2,), nprocs=2)",
        "from torch.multiprocessing.spawn import start_processes\n"
        'start_processes(worker, args=(2,), nprocs=2, start_method="fork")',
    ],
)
def test_a_worker_gets_its_rank_first(launch: str, tmp_path: Path) -> None:
    worker = """
def worker(number, size):
    dist.init_process_group("gloo", rank=number, world_size=size)
    fully_shard(model)
    if number == 0:
        model(x)
"""
    build = "model = nn.Sequential(nn.Linear(8, 8))\n"
    assert missed(tmp_path, f"{worker}\n{launch}\n", build) == ["model(x)"]
