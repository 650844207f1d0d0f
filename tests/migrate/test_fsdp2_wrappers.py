"""`FSDP(model, …)` becomes `fully_shard` of the same modules, with settings of the same effect."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
from plans import only_change, plan_of

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import Plan, make_plan
from fsdplint.migrate.step import Change, Kept, Question
from fsdplint.migrate.text import plan_as_text

_HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""


planned = partial(plan_of, FSDP2)
# The lines of a program and the lines that they become; imports are compared apart.
_CALLS = {
    "root": ("model = FSDP(model)", "fully_shard(model)"),
    "another name": ("sharded = FSDP(model)", "sharded = model\nfully_shard(sharded)"),
    "built in the call": (
        "model = FSDP(nn.Linear(4, 4))",
        "model = nn.Linear(4, 4)\nfully_shard(model)",
    ),
    "part of an expression": (
        "model = torch.compile(FSDP(nn.Linear(4, 4)))",
        "model_ = nn.Linear(4, 4)\nfully_shard(model_)\nmodel = torch.compile(model_)",
    ),
    "nested": (
        "model = FSDP(nn.Sequential(FSDP(nn.Linear(4, 4)), nn.Linear(4, 4)))",
        """\
        model_ = nn.Linear(4, 4)
        fully_shard(model_)
        model = nn.Sequential(model_, nn.Linear(4, 4))
        fully_shard(model)""",
    ),
    "a comprehension": (
        "models = [FSDP(m) for m in models]",
        "models = [fully_shard(m) for m in models]",
    ),
    "a context": (
        """\
        from torch.distributed.fsdp.wrap import enable_wrap, wrap
        with enable_wrap(wrapper_cls=FSDP, device_mesh=mesh):
            # both
            model.first = wrap(model.first)
            model.second = wrap(model.second)
        model = FSDP(model)""",
        """\
        # both
        model.first = fully_shard(model.first, mesh=mesh)
        model.second = fully_shard(model.second, mesh=mesh)
        fully_shard(model)""",
    ),
    "another name of the class": (
        """\
        Wrapper = FSDP
        print(isinstance(model, Wrapper))
        model = Wrapper(model, device_mesh=mesh)""",
        """\
        print(isinstance(model, FSDPModule))
        fully_shard(model, mesh=mesh)""",
    ),
    "a partial": (
        """\
        import functools
        from torch.distributed.fsdp import ShardingStrategy
        wrapper = functools.partial(
            FSDP, device_mesh=mesh, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        model.first = wrapper(model.first, device_mesh=other)
        model = wrapper(model)""",
        """\
        fully_shard(model.first, mesh=other, reshard_after_forward=False)
        fully_shard(model, mesh=mesh, reshard_after_forward=False)""",
    ),
    "needless": (
        "model = FSDP(model, limit_all_gathers=True, use_orig_params=True, forward_prefetch=False)",
        "fully_shard(model)",
    ),
    "comments": (
        """\
        model = FSDP(
            model,  # the policy
            use_orig_params=True,  # for compile
        )  # done""",
        "# the policy\n# for compile\nfully_shard(model)  # done",
    ),
    "gradients only": (
        """\
        from torch.distributed.fsdp import ShardingStrategy
        model = FSDP(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)""",
        "fully_shard(model, reshard_after_forward=False)",
    ),
    "positional": (
        """\
        from torch.distributed.fsdp import ShardingStrategy
        model = FSDP(model, None, ShardingStrategy.SHARD_GRAD_OP)""",
        "fully_shard(model, reshard_after_forward=False)",
    ),
    "replicated": (
        """\
        from torch.distributed.fsdp import ShardingStrategy
        model = FSDP(model, sharding_strategy=ShardingStrategy.NO_SHARD)""",
        """\
        fully_shard(
            model,
            mesh=init_device_mesh(
                "cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
            ),
        )""",
    ),
    "chosen at run time": (
        """\
        from torch.distributed.fsdp import ShardingStrategy
        kinds = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}
        model = FSDP(model, sharding_strategy=kinds[name])""",
        """\
        kinds = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}
        sharding_strategy = kinds[name]
        fully_shard(
            model, reshard_after_forward=sharding_strategy is not ShardingStrategy.SHARD_GRAD_OP
        )""",
    ),
    "replicated at run time": (
        """\
        from torch.distributed.fsdp import ShardingStrategy
        kind = ShardingStrategy.NO_SHARD if small else ShardingStrategy.FULL_SHARD
        def shard(model, kind):
            return FSDP(model, sharding_strategy=kind)""",
        """\
        kind = ShardingStrategy.NO_SHARD if small else ShardingStrategy.FULL_SHARD
        def shard(model, kind):
            mesh = None
            if kind is ShardingStrategy.NO_SHARD:
                mesh = init_device_mesh(
                    "cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
                )
            fully_shard(model, mesh=mesh)
            return model""",
    ),
    "hybrid at run time": (
        """\
        from torch.distributed.fsdp import ShardingStrategy as Kind
        kind = Kind._HYBRID_SHARD_ZERO2
        def shard(model, kind=Kind.HYBRID_SHARD):
            return FSDP(model, None, kind)""",
        """\
        kind = Kind._HYBRID_SHARD_ZERO2
        def shard(model, kind=Kind.HYBRID_SHARD):
            mesh = None
            if kind in (Kind.HYBRID_SHARD, Kind._HYBRID_SHARD_ZERO2):
                mesh = init_device_mesh(
                    "cuda",
                    (
                        dist.get_world_size() // torch.cuda.device_count(),
                        torch.cuda.device_count(),
                    ),
                    mesh_dim_names=("replicate", "shard"),
                )
            fully_shard(
                model, reshard_after_forward=kind is not Kind._HYBRID_SHARD_ZERO2, mesh=mesh
            )
            return model""",
    ),
    "mesh": ("model = FSDP(model, device_mesh=mesh)", "fully_shard(model, mesh=mesh)"),
    "process group": (
        "model = FSDP(model, process_group=group)",
        'fully_shard(model, mesh=DeviceMesh.from_group(group, "cuda"))',
    ),
    "process group that may be None": (
        """\
        group = dist.new_group(ranks) if ranks else None
        model = FSDP(model, process_group=group)
        print(model.process_group.size())""",
        """\
        group = dist.new_group(ranks) if ranks else None
        fully_shard(model, mesh=None if group is None else DeviceMesh.from_group(group, "cuda"))
        print((group or dist.group.WORLD).size())""",
    ),
    "ignored modules, or None": (
        """\
        def shard(model, ignored=None):
            FSDP(model, ignored_modules=ignored)""",
        """\
        def shard(model, ignored=None):
            ignored_params = {p for m in ignored or () for p in m.parameters()}
            fully_shard(model, ignored_params=ignored_params)""",
    ),
    "ignored modules": (
        "model = FSDP(model, ignored_modules=[model.head])",
        """\
        ignored_params = {p for m in [model.head] for p in m.parameters()}
        fully_shard(model, ignored_params=ignored_params)""",
    ),
    "device": (
        "model = FSDP(model, device_id=rank)",
        "torch.cuda.set_device(rank)\nfully_shard(model)",
    ),
    "device by name": (
        'device = torch.device("cuda", rank)\nmodel = FSDP(model, device_id=device)',
        'device = torch.device("cuda", rank)\ntorch.cuda.set_device(device)\nfully_shard(model)',
    ),
    "device of the CPU by name": (
        'device = torch.device("cpu")\nmodel = FSDP(model, device_id=device)',
        """\
        device = torch.device("cpu")
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))""",
    ),
    "device or None": (
        "model = FSDP(model, device_id=rank if cuda else None)",
        "if cuda:\n    torch.cuda.set_device(rank)\nfully_shard(model)",
    ),
    "device if there is one": (
        """\
        device = torch.device(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
        model = FSDP(model, device_id=device)""",
        """\
        device = torch.device(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
        if torch.cuda.is_available():
            torch.cuda.set_device(device)
        fully_shard(model)""",
    ),
    "current device": (
        "model = FSDP(model, device_id=torch.cuda.current_device())",
        "fully_shard(model)",
    ),
    "offloading": (
        """\
        from torch.distributed.fsdp import CPUOffload
        model = FSDP(model, cpu_offload=CPUOffload(offload_params=True))""",
        "fully_shard(model, offload_policy=CPUOffloadPolicy())",
    ),
    "a value on several lines": (
        """\
        model = FSDP(
            model,
            mixed_precision=(
                half
                if torch.cuda.is_bf16_supported()
                else None
            ),
        )""",
        """\
        mp_policy = (half if torch.cuda.is_bf16_supported() else None) or MixedPrecisionPolicy()
        fully_shard(model, mp_policy=mp_policy)""",
    ),
    "settings in a dict": (
        "settings = dict(device_mesh=mesh, use_orig_params=True)\nmodel = FSDP(model, **settings)",
        "fully_shard(model, mesh=mesh)",
    ),
    "keys under conditions": (
        """\
        settings: dict = {"use_orig_params": True}
        if replicated:
            # the plan of the cluster
            settings["device_mesh"] = mesh  # two dimensions
        if args.synced:
            settings["sync_module_states"] = True
            print("synced")
        settings["limit_all_gathers"] = True
        if fast:
            model = FSDP(model, **settings)
        else:
            settings["cpu_offload"] = offload
            model = FSDP(model, **settings)""",
        """\
        # the plan of the cluster
        # two dimensions
        if args.synced:
            print("synced")
        if fast:
            full_state = model.state_dict()
            fully_shard(model, mesh=mesh if replicated else None)
            if args.synced:
                set_model_state_dict(
                    model,
                    full_state,
                    options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
                )
                for buffer in model.buffers():
                    dist.broadcast(buffer, src=0)
            del full_state
        else:
            full_state = model.state_dict()
            fully_shard(model, mesh=mesh if replicated else None, offload_policy=offload)
            if args.synced:
                set_model_state_dict(
                    model,
                    full_state,
                    options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
                )
                for buffer in model.buffers():
                    dist.broadcast(buffer, src=0)
            del full_state""",
    ),
    "one of two values": (
        """\
        settings = dict(device_mesh=mesh)
        if pair:
            settings["device_mesh"] = wide
        else:
            settings["device_mesh"] = small if flat else big
        model = FSDP(model, **settings)""",
        "fully_shard(model, mesh=wide if pair else (small if flat else big))",
    ),
    "synchronized": (
        "model = FSDP(model, sync_module_states=True)",
        """\
        full_state = model.state_dict()
        fully_shard(model)
        set_model_state_dict(
            model,
            full_state,
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        del full_state""",
    ),
}

_POLICIES = {
    "classes": (
        "transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear, nn.Conv2d}",
        "isinstance(module, (nn.Linear, nn.Conv2d))",
    ),
    "function": ("lambda_auto_wrap_policy, lambda_fn=lambda m: m.big", "(lambda m: m.big)(module)"),
}


def _lines(plan: Plan) -> str:
    """Return what follows the imports."""
    lines = only_change(plan).splitlines()
    imports = [n for n, line in enumerate(lines) if line.startswith(("import ", "from "))]
    return "\n".join(lines[imports[-1] + 1 :])


@pytest.mark.parametrize("name", _CALLS)
def test_a_call_becomes_fully_shard(name: str, tmp_path: Path) -> None:
    before, after = map(dedent, _CALLS[name])
    plan = planned(tmp_path, f"{_HEAD}{before}\n")
    assert _lines(plan) == after
    text = only_change(plan)
    assert "FullyShardedDataParallel" not in text
    again = planned(tmp_path, text)
    assert (again.entries, again.files) == ((), ())


@pytest.mark.parametrize("name", _POLICIES)
def test_a_policy_becomes_a_loop(name: str, tmp_path: Path) -> None:
    policy, test = _POLICIES[name]
    function = policy.split(",")[0]
    before = f"""\
import functools
from torch.distributed.fsdp.wrap import {function}

policy = functools.partial({policy})
model = FSDP(model, auto_wrap_policy=policy)
"""
    after = f"""
for module in reversed(list(model.modules())):
    if module is not model and {test}:
        fully_shard(module)
fully_shard(model)"""
    assert _lines(planned(tmp_path, _HEAD + before)) == after


def test_a_policy_that_the_text_does_not_show_is_asked(tmp_path: Path) -> None:
    call = "FSDP(model, auto_wrap_policy=policy)"
    plan = planned(tmp_path, f"{_HEAD}\n\ndef shard(model, policy):\n    return {call}\n")
    lines = ["shard_by_policy(model, policy)", "fully_shard(model)", "return model"]
    body = "".join(f"    {line}\n" for line in lines)
    assert only_change(plan).endswith(f"\n\ndef shard(model, policy):\n{body}")
    assert "def shard_by_policy(module, policy, is_root=True, **settings):\n" in only_change(plan)


def test_only_the_root_casts_its_inputs(tmp_path: Path) -> None:
    before = """\
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

half = MixedPrecision(
    param_dtype=torch.bfloat16,
    # of the rotary embedding
    buffer_dtype=torch.bfloat16,  # too
)
model = FSDP(model, mixed_precision=half, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
"""
    after = """
half = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16,
    # of the rotary embedding
    # too
)
for module in reversed(list(model.modules())):
    if module is not model and isinstance(module, nn.Linear):
        fully_shard(module, mp_policy=replace(half, cast_forward_inputs=False))
fully_shard(model, mp_policy=half)
for buffer in model.buffers():
    if buffer.is_floating_point():
        buffer.data = buffer.to(half.param_dtype)"""
    plan = planned(tmp_path, _HEAD + before)
    assert _lines(plan) == after
    assert [entry.found.differs for entry in plan.of(Change)] == ["", ""]


def test_buffers_that_have_another_dtype_than_parameters_are_not_cast(tmp_path: Path) -> None:
    before = """\
from torch.distributed.fsdp import MixedPrecision

half = MixedPrecision(param_dtype=torch.half, reduce_dtype=torch.half, buffer_dtype=torch.bfloat16)
model = FSDP(model, mixed_precision=half)
"""
    plan = planned(tmp_path, _HEAD + before)
    assert [entry.found.differs for entry in plan.of(Change)] == ["FSDP2 does not cast buffers", ""]
    assert _lines(plan).endswith("fully_shard(model, mp_policy=half)")


def test_policies_that_cast_differently_say_what_units_cast(tmp_path: Path) -> None:
    before = """\
from torch.distributed.fsdp import MixedPrecision

half = MixedPrecision(param_dtype=torch.half, cast_forward_inputs=False, reduce_dtype=torch.half)
brain = MixedPrecision(torch.bfloat16, torch.float32, cast_forward_inputs=True)
full = MixedPrecision()


def shard(model, policy):
    model.layer = FSDP(model.layer, mixed_precision=policy)
    return FSDP(model, mixed_precision=policy)
"""
    plan = planned(tmp_path, _HEAD + before)
    text = only_change(plan)
    assert "half = MixedPrecisionPolicy(param_dtype=torch.half, cast_forward_inputs=False, " in text
    assert "brain = MixedPrecisionPolicy(torch.bfloat16, torch.float32)\n" in text
    assert "full = MixedPrecisionPolicy(cast_forward_inputs=False)\n" in text
    assert text.count("replace(mp_policy, cast_forward_inputs=True)") == 2
    roots = "MixedPrecision(cast_root_forward_inputs=False)"
    (kept, *_) = planned(tmp_path, f"{_HEAD}{before}other = {roots}\n").of(Kept)
    assert isinstance(kept.found, Kept)
    assert kept.found.reason.startswith("some policies of the program have the root cast")


def test_a_strategy_that_nothing_shows_is_asked_for(tmp_path: Path) -> None:
    text = f"{_HEAD}\n\ndef shard(model, strategy):\n    return FSDP(model, None, strategy)\n"
    plan = planned(tmp_path, text)
    ((key, question),) = [(entry.key, entry.found) for entry in plan.of(Question)]
    assert isinstance(question, Question)
    assert (key, question.text) == (
        "train.py:7:sharding-strategy",
        "Which strategy does `strategy` select?",
    )
    assert not plan.files
    answered = planned(tmp_path, text, {key: "shard-grad-op"})
    assert "fully_shard(model, reshard_after_forward=False)" in only_change(answered)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "model = FSDP(model, **get_settings())",
            "`**get_settings()` hides the arguments; write them out, then migrate again",
        ),
        (
            'model = FSDP(model, device_id=torch.device("mps:0"))',
            "no run shows what FSDP2 does on `mps`; shard it by hand",
        ),
        (
            "models = [FSDP(m, device_id=rank) for m in models]",
            "the call is in an expression that may skip or repeat it; move it out",
        ),
        (
            'settings = {}\nsettings["device_mesh"] = mesh\nshow(settings)\n'
            "model = FSDP(model, **settings)",
            "`settings` is used for more than the arguments of `FSDP`; write them out, then "
            "migrate again",
        ),
        (
            'settings = {}\nif narrow:\n    settings["ignored_modules"] = [head]\n'
            "model = FSDP(model, **settings)",
            "only `narrow` gives `ignored_modules`; pass it in each case by hand",
        ),
        (
            'settings = {}\nif wide:\n    settings["device_mesh"] = mesh\nwide = True\n'
            "model = FSDP(model, **settings)",
            "`wide` changes after `if wide:`; pass the argument in the call, then migrate again",
        ),
        (
            "settings = {}\ntry:\n    settings['device_mesh'] = mesh()\nexcept OSError:\n    pass\n"
            "model = FSDP(model, **settings)",
            "`settings['device_mesh'] = mesh()` may set an argument of `FSDP(model, **settings)`; "
            "pass it in the call, then migrate again",
        ),
        (
            "settings = {}\nfor part in model:\n    settings['device_mesh'] = mesh\n"
            "    FSDP(part, **settings)",
            "a loop fills or uses `settings`; write the arguments out",
        ),
        (
            "model = FSDP(model)\nprint(model._flat_param)",
            "FSDP2 shards each parameter by itself; read the model's parameters by hand",
        ),
        (
            "model = FSDP(model)\ndef show(wrapped):\n    return wrapped._all_handles",
            "`fully_shard` adds no `_all_handles` to the model; change it by hand",
        ),
        (
            "group = None\nif hybrid:\n    group = shards, replicas\n"
            "model = FSDP(model, process_group=group)",
            "it has a pair of process groups; build a mesh of them by hand",
        ),
        (
            "shard = FSDP",
            "no step knows how to change this use; change it by hand",
        ),
    ],
)
def test_what_no_step_can_change_is_kept(line: str, reason: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, f"{_HEAD}{line}\n")
    (entry,) = plan.of(Kept)
    assert isinstance(entry.found, Kept)
    assert (entry.line, entry.found.reason, plan.is_complete) == (
        3 + line.count("\n") + 1,
        reason,
        False,
    )


def test_code_of_a_sharded_model_that_would_hang_or_train_nothing_is_kept(tmp_path: Path) -> None:
    text = f"""{_HEAD}\
import torch.distributed as dist
from library import build

dist.init_process_group("nccl")
model = nn.Linear(4, 4)
optimizer = build(model)
model = FSDP(model, use_orig_params=True)
model(torch.ones(1, 4)).sum().backward()
optimizer.zero_grad()
optimizer.step()
if dist.get_rank() == 0:
    print(sum(p.norm() for p in model.parameters()))
"""
    kept = [e.found.what for e in planned(tmp_path, text).of(Kept) if isinstance(e.found, Kept)]
    assert kept == ["`build(model)`", "`p.norm()`"]


def test_what_follows_from_a_kept_place_is_not_reported(tmp_path: Path) -> None:
    body = """\
import torch.distributed as dist
from torch.distributed.fsdp import StateDictType

model = FSDP(nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())
if dist.get_rank() == 0:
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load("state"))
        optimizer.load_state_dict(state)
"""
    plan = planned(tmp_path, _HEAD + body)
    assert [(e.line, type(e.found)) for e in plan.entries] == [(7, Change), (10, Kept)]
    assert (plan.new, plan.is_complete) == ((), False)


def test_a_file_whose_name_for_fsdp1_is_also_another_class_is_kept(tmp_path: Path) -> None:
    head = _HEAD.replace("import torch\n", "").replace("from torch.d", "    from torch.d")
    body = """\
try:
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
except ImportError:
"""
    text = (
        body + head.replace("from torch import nn\n", "") + "model = FSDP(model, compute_dtype=x)\n"
    )
    (entry,) = planned(tmp_path, text).entries
    assert isinstance(entry.found, Kept)
    assert (entry.line, entry.found.reason) == (
        2,
        "`FSDP` is also `torch_xla.distributed.fsdp.XlaFullyShardedDataParallel`; name them "
        "differently, then migrate again",
    )


def test_methods_on_models_that_are_not_known_are_asked_about(tmp_path: Path) -> None:
    text = f"""{_HEAD}

model = FSDP(model)


def step(trainer, loss, accelerator, last):
    if last:
        loss.backward()
    else:
        with trainer.model.no_sync():
            loss.backward()
    accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
    return trainer.model.clip_grad_norm_(1.0)


def other(config, trained):
    from accelerate import Accelerator

    accelerator = Accelerator()
    accelerator.clip_grad_norm_(trained, config.max_norm)
"""
    asked = planned(tmp_path, text)
    keys = [entry.key for entry in asked.of(Question)]
    assert keys == ["train.py:13:no-sync", "train.py:16:clip-grad-norm"]
    assert not asked.files
    after = only_change(planned(tmp_path, text, dict.fromkeys(keys, "yes")))
    assert after.endswith("""
def step(trainer, loss, accelerator, last):
    if last:
        loss.backward()
    else:
        trainer.model.set_requires_gradient_sync(False)
        try:
            loss.backward()
        finally:
            trainer.model.set_requires_gradient_sync(True)
    accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
    return torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0).full_tensor()


def other(config, trained):
    from accelerate import Accelerator

    accelerator = Accelerator()
    accelerator.clip_grad_norm_(trained, config.max_norm)
""")
    kept = only_change(planned(tmp_path, text, dict.fromkeys(keys, "no")))
    assert "trainer.model.no_sync()" in kept


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("clip_grad_norm_(1.0)", None),
        (
            "register_comm_hook(None, hook)",
            "`fully_shard` adds no `register_comm_hook` to the model; change it by hand",
        ),
    ],
)
def test_methods_of_the_wrapper_are_found_on_each_path(
    call: str, reason: str | None, tmp_path: Path
) -> None:
    """Rules leave out what the program may not reach with a sharded model."""
    text = f"""{_HEAD}import argparse

from torch.nn.parallel import DistributedDataParallel as DDP


def train(model):
    if isinstance(model, FSDP):
        model.{call}


def main(args):
    model = nn.Linear(4, 4)
    if args.ddp:
        model = DDP(model)
    else:
        model = FSDP(model)
    if not args.pretrained_model:
        train(model)


main(argparse.ArgumentParser().parse_args())
"""
    plan = planned(tmp_path, text)
    reasons = [entry.found.reason for entry in plan.of(Kept) if isinstance(entry.found, Kept)]
    assert reasons == [reason] * (reason is not None)
    if reason is None:
        assert "clip_grad_norm_(model.parameters(), 1.0)" in only_change(plan)


@pytest.mark.parametrize("mode", ["", "if flag:\n    "])
def test_a_root_is_resharded_before_its_optimizer_state_is_taken(mode: str, tmp_path: Path) -> None:
    text = f"""{_HEAD}

def evaluate(model):
    with torch.no_grad():
        return model(torch.ones(2, 4))


def save(model, optimizer):
    torch.save(FSDP.optim_state_dict(model, optimizer), "a.pt")


model = nn.Linear(4, 4)
{mode}model = FSDP(model)
{_OPTIMIZER}
evaluate(model)
save(model, optimizer)
"""
    plan = planned(tmp_path, text)
    lines = only_change(plan).splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "model.reshard()")
    assert "get_optimizer_state_dict(" in lines[at + 1]
    assert (lines[at - 1] == "    if isinstance(model, FSDPModule):") is bool(mode)


def test_a_policy_that_a_function_makes_may_be_none(tmp_path: Path) -> None:
    line = "model = FSDP(model, mixed_precision=policy_of(config))"
    after = only_change(planned(tmp_path, f"{_HEAD}from lib import policy_of\n\n{line}\n"))
    assert "mp_policy = policy_of(config) or MixedPrecisionPolicy()\n" in after


def test_a_model_that_a_function_is_given_is_called(tmp_path: Path) -> None:
    text = f"""{_HEAD}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer.forward(x)


def loss(model, batch):
    return model.forward(batch).mean()


model = FSDP(Net())
"""
    asked = planned(tmp_path, text).of(Question)
    assert [(entry.line, entry.key) for entry in asked] == [(16, "train.py:16:forward")]
    after = {answer: planned(tmp_path, text, {asked[0].key: answer}) for answer in ("yes", "no")}
    assert "return model(batch).mean()" in only_change(after["yes"])
    assert "return model.forward(batch).mean()" in only_change(after["no"])


def test_a_docstring_selects_nothing_by_a_name_of_fsdp1(tmp_path: Path) -> None:
    text = f'"""FSDP names it layers.0._fsdp_wrapped_module.weight"""\n{_HEAD}\n'
    assert planned(tmp_path, f"{text}model = FSDP(nn.Linear(4, 4))\n").is_complete


def test_buffers_of_an_offloaded_model_are_not_on_the_cpu(tmp_path: Path) -> None:
    before = """\
from torch.distributed.fsdp import CPUOffload

model = FSDP(
    nn.Linear(4, 4),
    cpu_offload=CPUOffload(offload_params=True),
    param_init_fn=init,
    sync_module_states=True,
)
"""
    assert """\
    model.to_empty(device="cpu")
    for buffer in model.buffers():
        buffer.data = buffer.to("cuda")
""" in only_change(planned(tmp_path, _HEAD + before))


def test_tests_and_annotations_name_the_classes_of_fsdp2(tmp_path: Path) -> None:
    before = """\
from torch.distributed.fsdp import CPUOffload, MixedPrecision


def policies(offload: CPUOffload) -> tuple[MixedPrecision, CPUOffload]:
    return MixedPrecision(), offload


def wrap(model) -> FSDP:
    model = FSDP(model)
    return model if isinstance(model, (FSDP, nn.Linear)) else None


def units(model: FSDP):
    return FSDP.fsdp_modules(model)
"""
    after = """\


def policies(offload: OffloadPolicy) -> tuple[MixedPrecisionPolicy, OffloadPolicy]:
    return MixedPrecisionPolicy(), offload


def wrap(model) -> FSDPModule:
    fully_shard(model)
    return model if isinstance(model, (FSDPModule, nn.Linear)) else None


def units(model: FSDPModule):
    return [module for module in model.modules() if isinstance(module, FSDPModule)]"""
    assert _lines(planned(tmp_path, _HEAD + before)) == after


def test_nothing_is_left_of_the_wrapper(tmp_path: Path) -> None:
    text = f"""{_HEAD}
def main(distributed):
    from torch.distributed.fsdp import FullStateDictConfig

    config = FullStateDictConfig(offload_to_cpu=True)
    model = FSDP(nn.Linear(4, 4))
    raw = model.module if distributed else model
    return raw


main(True)
"""
    assert only_change(planned(tmp_path, text)).endswith("""
def main(distributed):

    model = nn.Linear(4, 4)
    fully_shard(model)
    raw = model
    return raw


main(True)
""")


def test_a_norm_that_only_fsdp1_takes_of_shards_is_said(tmp_path: Path) -> None:
    text = f"""{_HEAD}
model = FSDP(nn.Linear(4, 4))
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""
    plan = planned(tmp_path, text)
    (said,) = [entry for entry in plan.of(Change) if not entry.found.edits]
    assert (said.line, said.found.what) == (6, "keep `torch.nn.utils.clip_grad_norm_`")
    assert said.found.differs.startswith("it takes the norm over all ranks")
    ((_, corrected),) = plan.corrected
    assert corrected.text == text.replace(
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "model.clip_grad_norm_(1.0)"
    )
    assert not planned(tmp_path, only_change(plan)).entries
    hidden = planned(tmp_path, text.replace("4))", "4), **settings)", 1))
    (kept,) = hidden.of(Kept)
    assert "`**settings` hides the arguments" in kept.found.reason


def test_a_test_of_a_set_may_be_true(tmp_path: Path) -> None:
    text = f"""{_HEAD}import os

if not {{"RANK", "WORLD_SIZE"}}.issubset(os.environ):
    raise SystemExit
model = FSDP(nn.Linear(4, 4))
{_OPTIMIZER}
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""
    (said,) = (e for e in planned(tmp_path, text).of(Change) if e.found.what.startswith("keep"))
    assert said.found.what == "keep `torch.nn.utils.clip_grad_norm_`"


def test_dimensions_of_a_mesh_are_named(tmp_path: Path) -> None:
    text = f"""{_HEAD}from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import ShardingStrategy

mesh = init_device_mesh(
    "cuda",
    (2, 4),
)
model = FSDP(nn.Linear(4, 4), sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)
"""
    after = only_change(planned(tmp_path, text))
    assert (
        """
mesh = init_device_mesh(
    "cuda",
    (2, 4),
    mesh_dim_names=("replicate", "shard"),
)
"""
        in after
    )
    for same in ("(2, 4), mesh_dim_names=('a', 'b'),", "(8,),"):
        assert '"replicate"' not in only_change(planned(tmp_path, text.replace("(2, 4),", same)))
    (new,) = planned(tmp_path, text.replace("HYBRID", "FULL")).new
    assert new.rule == "mesh-arguments"
    plan = planned(tmp_path, text.replace("(2, 4)", "(4, 1)"))
    (said,) = [entry for entry in plan.of(Change) if not entry.found.edits]
    assert (said.line, said.found.what) == (7, "keep `init_device_mesh(`")
    assert "fix `fsdp1-mesh-not-reduced` first" in said.found.differs


def test_groups_that_fsdp1_flattens_are_said(tmp_path: Path) -> None:
    text = f"""{_HEAD}
model = FSDP(nn.Linear(4, 4))
groups = [
    {{"params": [p for n, p in model.named_parameters() if "bias" not in n]}},
    {{"params": [p for n, p in model.named_parameters() if "bias" in n], "weight_decay": 0}},
]
optimizer = torch.optim.AdamW(groups)
model(torch.ones(2, 4)).mean().backward()
optimizer.step()
"""
    plan = planned(tmp_path, text)
    said = [entry for entry in plan.of(Change) if not entry.found.edits]
    assert [(each.line, each.found.what) for each in said] == [
        (7, 'keep `"bias" not in n`'),
        (8, 'keep `"bias" in n`'),
    ]
    assert "fix `parameters-grouped-after-flattening` first" in said[0].found.differs
    assert not planned(tmp_path, only_change(plan)).entries
    apart = text.replace("4))", "4), use_orig_params=True)", 1)
    assert all(entry.found.edits for entry in planned(tmp_path, apart).of(Change))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "print(dist.get_rank(), dist.get_world_size())"),
        ("sharding_strategy=S.FULL_SHARD", "print(dist.get_rank(), dist.get_world_size())"),
        ("sharding_strategy=S.HYBRID_SHARD", None),
        ("process_group=group", None),
    ],
)
def test_the_ranks_of_a_wrapper_are_those_of_its_group(
    arguments: str, text: str | None, tmp_path: Path
) -> None:
    head = f"{_HEAD}from torch.distributed.fsdp import ShardingStrategy as S\n"
    call = f"FSDP(nn.Linear(4, 4), {arguments})"
    plan = planned(tmp_path, f"{head}model = {call}\nprint(model.rank, model.world_size)\n")
    if text is None:
        assert [entry.line for entry in plan.of(Kept)] == [6]
    else:
        assert only_change(plan).splitlines()[-1] == text


def test_a_notebook_keeps_its_cells(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    notebook = tmp_path / "train.ipynb"
    cell = (
        '{{"cell_type": "code", "execution_count": null, "metadata": {{}}, "outputs": [], '
        '"source": [{}]}}'
    )
    head = ", ".join(f'"{line}"' for line in "\\n|".join(_HEAD.splitlines()).split("|"))
    cells = ", ".join(map(cell.format, [head, '"model = FSDP(model)  # all"']))
    notebook.write_text(
        f'{{"cells": [{cells}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}'
    )
    plan = make_plan(FSDP2, [str(notebook)], {})
    assert plan_as_text(plan).splitlines()[1:] == ["    2:1  shard `model` with `fully_shard`"]
    ((before, after),) = plan.files
    new = '"from torch.distributed.fsdp import fully_shard"'
    old = '"from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"'
    assert after.encode().decode() == before.encode().decode().replace(old, new).replace(
        "model = FSDP(model)", "fully_shard(model)"
    )


def test_a_finding_in_the_lines_that_change_is_not_new(tmp_path: Path) -> None:
    body = """\
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2")
if torch.cuda.is_available():
    sharded = FSDP(model, device_id=torch.cuda.current_device())
else:
    sharded = FSDP(model)
"""
    plan = planned(tmp_path, _HEAD + body)
    assert [finding.rule for finding in plan.outcome.findings] == ["only-root-sharded"] * 2
    assert only_change(plan).endswith("    sharded = model\n    fully_shard(sharded)\n")


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ("from settings import Settings", "Settings.units"),
        ("from settings import policy", "policy"),
        ("from settings import *", "policy"),
        ("import settings", "settings.policy"),
        ("from . import settings", "settings.policy"),
    ],
)
def test_settings_that_another_file_reads_stay(line: str, policy: str, tmp_path: Path) -> None:
    settings = """\
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
policy = ModuleWrapPolicy({nn.Linear})


class Settings:
    units = ModuleWrapPolicy({nn.Conv2d})
    rate = 0.1
"""
    (tmp_path / "settings.py").write_text(settings)
    call = f"FSDP(model, auto_wrap_policy={policy})"
    plan = planned(tmp_path, f"{_HEAD}{line}\n\n\ndef main(model):\n    {call}\n")
    assert plan.is_complete
    after = {Path(new.path).name: new.text for _, new in plan.files}
    assert f"shard_by_policy(model, {policy})" in after["train.py"]
    assert "\n    units = ModuleWrapPolicy" in after["settings.py"]
    assert ("\npolicy = ModuleWrapPolicy" in after["settings.py"]) is (policy != "Settings.units")


def test_all_ranks_gather_a_state_that_rank_0_took_alone(tmp_path: Path) -> None:
    before = """
dist.init_process_group()
model = FSDP(nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "model.pt")
"""
    after = """
state_dict = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if dist.get_rank() == 0:
    torch.save(state_dict, "model.pt")
"""
    plan = plan_of(FSDP2, tmp_path, f"{_HEAD}import torch.distributed as dist\n{before}")
    assert only_change(plan).endswith(after.lstrip("\n"))
    what = [entry.found.what for entry in plan.of(Change) if isinstance(entry.found, Change)]
    assert what[-2:] == [
        "replace `model.state_dict()` by a state dict helper",
        "let every rank call `model.state_dict`",
    ]


def test_a_state_behind_tests_of_ranks_in_two_files_is_taken_on_all(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib.py").write_text("""\
import os

import torch


def save(model):
    if int(os.environ["LOCAL_RANK"]) == 0:
        torch.save(model.state_dict(), "a.pt")
""")
    text = f"""{_HEAD}import torch.distributed as dist
from lib import save

model = FSDP(nn.Linear(4, 4))
if dist.get_rank() == 0:
    save(model)
"""
    plan = planned(tmp_path, text)
    assert plan.is_complete
    ends = {Path(new.path).name: new.text.splitlines()[-1] for _, new in plan.files}
    assert ends == {"lib.py": '        torch.save(state_dict, "a.pt")', "train.py": "save(model)"}


def test_a_strategy_that_a_method_imports_for_itself_is_imported(tmp_path: Path) -> None:
    body = """
def strategy(nodes):
    from torch.distributed.fsdp import ShardingStrategy

    return ShardingStrategy.SHARD_GRAD_OP if nodes else ShardingStrategy.FULL_SHARD


def main(nodes):
    return FSDP(nn.Linear(4, 4), sharding_strategy=strategy(nodes))
"""
    after = only_change(planned(tmp_path, _HEAD + body))
    assert "from torch.distributed.fsdp import ShardingStrategy, fully_shard\n" in after
    assert "is not ShardingStrategy.SHARD_GRAD_OP" in after


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "wrapper = functools.partial(FSDP, device_mesh=mesh)\nmodel = trained(model, wrapper)",
            "`wrapper` is not only called; call the class itself by hand",
        ),
        (
            "wrapper = FSDP\nif narrow:\n    wrapper = nn.Identity\nmodel = wrapper(model)",
            "`wrapper` may be used elsewhere; use the class itself there by hand",
        ),
    ],
)
def test_other_names_that_are_more_than_the_class_stay(
    body: str, reason: str, tmp_path: Path
) -> None:
    plan = planned(tmp_path, f"import functools\n{_HEAD}{body}\n")
    assert reason in [entry.found.reason for entry in plan.of(Kept)]


def test_scripts_that_share_a_wrapper_are_migrated_together(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(f"""{_HEAD}

def shard(model, strategy=None):
    return FSDP(model, sharding_strategy=strategy)
""")
    (tmp_path / "other.py").write_text("""\
from torch import nn
from torch.distributed.fsdp import ShardingStrategy
from lib import shard

model = shard(nn.Linear(4, 4), ShardingStrategy.SHARD_GRAD_OP)
model.clip_grad_norm_(1.0)
""")
    text = "from torch import nn\nfrom lib import shard\n\nmodel = shard(nn.Linear(4, 4))\n"
    plan = planned(tmp_path, text)
    assert plan.is_complete
    after = {Path(new.path).name: new.text for _, new in plan.files}
    assert sorted(after) == ["lib.py", "other.py"]
    assert "strategy is not ShardingStrategy.SHARD_GRAD_OP" in after["lib.py"]
    assert "model.clip_grad_norm_" not in after["other.py"]


@pytest.mark.parametrize(
    ("settings", "corrects"),
    [
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True", True),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", False),
        ("use_orig_params=True", False),
    ],
)
def test_gradients_that_fsdp1_does_not_clear(tmp_path: Path, settings: str, corrects: bool) -> None:
    text = f"""{_HEAD}\
from torch.distributed.fsdp import ShardingStrategy

model = FSDP(nn.Linear(4, 4), {settings})
optimizer = torch.optim.AdamW(model.parameters())
for batch in torch.randn(4, 2, 4):
    loss = model(batch).mean()
    model.zero_grad()
    loss.backward()
    optimizer.step()
"""
    plan = planned(tmp_path, text)
    said = [e.found for e in plan.of(Change) if e.line == 10]
    assert [change.differs.startswith("FSDP1 clears no gradients") for change in said] == [corrects]  # type: ignore[union-attr]  # Changes
    after = text.replace("model.zero_grad", "optimizer.zero_grad")
    assert [source.text for _, source in plan.corrected] == [after] * corrects
    assert "optimizer.zero_grad()" in plan.files[0][1].text


def test_a_policy_that_the_new_code_asks_is_no_unknown_code(tmp_path: Path) -> None:
    text = f"""{_HEAD}\
from torch.distributed.fsdp import fully_shard


def shard(model, modern):
    if not modern:
        return FSDP(model, auto_wrap_policy=lambda module, recurse, nonwrapped_numel: True)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])


shard(Net(), modern=True)
"""
    assert planned(tmp_path, text).is_complete


_CHOOSING = f"""{_HEAD}import random


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        return self.rest(x)

    def rest(self, x):
        chosen = (x > 0).all()
        TEST
            x = self.second(x)
        return self.first(x)


model = FSDP(Net())
STEP
    loss = model(torch.ones(4)).sum()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("test", "step", "differs"),
    [
        ("if x.shape[0] > 2:", "for _ in range(2):", False),
        ("if x.sum() > 2:", "for _ in range(2):", True),
        ("if self.training and chosen:", "for _ in range(2):", True),
        ("for _ in torch.where(x > 0)[0].unique():", "for _ in range(2):", True),
        ("if random.random() < 0.1:", "for _ in range(2):", True),
        ("if x.shape[0] > 2:", "if random.random() < 0.1:", True),
        ("if x.shape[0] > 2:", "for _ in torch.randperm(4):", False),
        ("if x.shape[0] > 2:", "if torch.ones(2).sum() > 2:", False),
        ("if x.isnan().any(): raise ValueError\n        if True:", "if True:", False),
    ],
)
def test_gradients_of_parameters_that_some_ranks_use_are_reduced_on_all(
    test: str, step: str, differs: bool, tmp_path: Path
) -> None:
    plan = planned(tmp_path, _CHOOSING.replace("TEST", test).replace("STEP", step))
    line = "fully_shard(model)\nmodel.set_reduce_scatter_unused_params(True)\n"
    assert (line in only_change(plan)) is differs
    (said,) = (entry.found for entry in plan.of(Change) if entry.line == 24 - 1 + test.count("\n"))
    assert isinstance(said, Change)
    assert bool(said.differs) is differs


_OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters())"


@pytest.mark.parametrize(
    ("before", "corrected", "after"),
    [
        (
            f"{_OPTIMIZER}\nmodel = FSDP(model)\n",
            f"model = FSDP(model)\n{_OPTIMIZER}\n",
            f"fully_shard(model)\n{_OPTIMIZER}\n",
        ),
        (
            f"model = FSDP(model)\n{_OPTIMIZER}\n"
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
            "    state = model.state_dict()\n"
            "    if dist.get_rank() == 0:\n"
            '        torch.save({"model": state, "optimizer": optimizer.state_dict()}, "a.pt")\n',
            f"model = FSDP(model)\n{_OPTIMIZER}\n"
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
            "    state = model.state_dict()\n"
            "    optimizer_state = get_optimizer_state_dict(model, optimizer, "
            "options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
            "    if dist.get_rank() == 0:\n"
            '        torch.save({"model": state, "optimizer": optimizer_state}, "a.pt")\n',
            f"fully_shard(model)\n{_OPTIMIZER}\n"
            "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n"
            "optimizer_state = get_optimizer_state_dict(model, optimizer, "
            "options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
            "if dist.get_rank() == 0:\n"
            '    torch.save({"model": state, "optimizer": optimizer_state}, "a.pt")\n',
        ),
        (
            "model = FSDP(model)\n"
            "with model.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
            "    state = model.state_dict()\n",
            "model = FSDP(model)\n"
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
            "    state = model.state_dict()\n",
            "fully_shard(model)\n"
            "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n",
        ),
        (
            "model = FSDP(model)\nFSDP.clip_grad_norm_(model, max_norm=1.0)\n",
            "model = FSDP(model)\nmodel.clip_grad_norm_(max_norm=1.0)\n",
            "fully_shard(model)\n"
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\n",
        ),
        (
            "model = FSDP(model)\nema = FSDP(nn.Linear(4, 4))\n"
            "ema.load_state_dict(model.state_dict())\n",
            "model = FSDP(model)\nema = FSDP(nn.Linear(4, 4))\n"
            "state_dict = model.state_dict()\nema.load_state_dict(state_dict)\n",
            "fully_shard(model)\nema = nn.Linear(4, 4)\nfully_shard(ema)\n"
            "state_dict = get_model_state_dict(model, "
            "options=StateDictOptions(full_state_dict=True))\n"
            "set_model_state_dict(ema, state_dict, "
            "options=StateDictOptions(full_state_dict=True))\n",
        ),
    ],
)
def test_what_is_mended_first(before: str, corrected: str, after: str, tmp_path: Path) -> None:
    head = "import torch.distributed as dist\nfrom torch.distributed.fsdp import StateDictType\n"
    head += f"{_HEAD}\nmodel = nn.Linear(4, 4)\n"
    plan = planned(tmp_path, head + before)
    texts = (plan.corrected[0][1].text, only_change(plan))
    assert [text.split("\nmodel = nn.Linear(4, 4)\n")[1] for text in texts] == [corrected, after]


def test_a_type_for_no_named_model_is_kept(tmp_path: Path) -> None:
    text = f"""{_HEAD}from torch.distributed.fsdp import StateDictType


def save(model):
    model.set_state_dict_type(StateDictType.FULL_STATE_DICT)
    return model.state_dict()


save(FSDP(nn.Linear(4, 4)))
plugin.set_state_dict_type("FULL_STATE_DICT")
"""
    (kept,) = planned(tmp_path, text).of(Kept)
    assert (kept.line, kept.found.reason) == (8, "it does not name its model; remove it by hand")


def test_a_raw_state_stays_if_a_load_of_it_does(tmp_path: Path) -> None:
    text = f"""{_HEAD}

def load(optimizer):
    optimizer.load_state_dict(torch.load("a.pt"))


model = FSDP(nn.Linear(4, 4))
{_OPTIMIZER}
torch.save(optimizer.state_dict(), "a.pt")
"""
    assert "optimizer.state_dict()" in only_change(planned(tmp_path, text))
    load = 'def load(optimizer):\n    optimizer.load_state_dict(torch.load("a.pt"))\n'
    assert "optimizer.state_dict()" not in only_change(planned(tmp_path, text.replace(load, "")))


def test_a_forward_of_one_rank_is_said(tmp_path: Path) -> None:
    text = f"""{_HEAD}import torch.distributed as dist

model = FSDP(nn.Linear(4, 4))
{_OPTIMIZER}
if dist.get_rank() == 0:
    model(torch.ones(2, 4))
"""
    (said,) = (e for e in planned(tmp_path, text).of(Change) if e.found.what.startswith("keep"))
    assert said.found.what == "keep `model(torch.ones(2, 4))`"
    assert said.found.differs.endswith("and the job hangs, as under FSDP1")


def test_a_load_of_a_raw_state_stays_if_a_save_does(tmp_path: Path) -> None:
    text = f"""{_HEAD}import torch.distributed as dist

model = FSDP(nn.Linear(4, 4))
{_OPTIMIZER}
torch.save(optimizer.state_dict(), f"{{dist.get_rank()}}.pt")
states = torch.load("all.pt")
optimizer.load_state_dict(states[dist.get_rank()])
"""
    plan = planned(tmp_path, text)
    assert "\noptimizer.load_state_dict(states[dist.get_rank()])\n" in only_change(plan)
    (said,) = (e for e in plan.of(Change) if e.found.what.startswith("keep"))
    assert said.line == 10
    assert said.found.differs.endswith("of the optimizer's state, as under FSDP1")


_AVERAGING = f"""{_HEAD}

def update(ema, model):
    for e, p in zip(ema.parameters(), model.parameters()):
        CHANGE


def init(model):
    for p in model.parameters():
        p.data.fill_(0.0)


model = FSDP(nn.Linear(4, 4)STRATEGY)
ema = nn.Linear(4, 4)
"""


@pytest.mark.parametrize(
    ("change", "frees"),
    [
        ("e.mul_(0.9).add_(p, alpha=0.1)", True),
        ("e.data.lerp_(p.data, 0.1)", True),
        ("e.data = 0.9 * e.data + 0.1 * p.data", True),
        ("torch._foreach_lerp_([e], [p], 0.1)", True),
        ("e.grad.copy_(p.grad)", False),
        ("print(e - p)", False),
    ],
)
def test_roots_of_averaged_models_are_freed(change: str, frees: bool, tmp_path: Path) -> None:
    text = _AVERAGING.replace("CHANGE", change)
    kept = ", reshard_after_forward=True" * frees
    after = only_change(planned(tmp_path, text.replace("STRATEGY", "")))
    assert f"fully_shard(model{kept})\n" in after
    strategy = ", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"
    text = f"from torch.distributed.fsdp import ShardingStrategy\n{text}"
    plan = planned(tmp_path, text.replace("STRATEGY", strategy))
    assert f"fully_shard(model, reshard_after_forward={frees})\n" in only_change(plan)
    said = [e.found.differs for e in plan.of(Change) if isinstance(e.found, Change)]
    assert any(each.startswith("the root's parameters are freed") for each in said) is frees
