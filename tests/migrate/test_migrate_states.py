"""State dicts of FSDP1 models become calls of the state dict helpers, equal in what ranks get."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from ranks import Ranks, report

from fsdplint.files.writing import write
from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.fsdp2.full_params import full_params
from fsdplint.migrate.fsdp2.states import states
from fsdplint.migrate.plan import Plan, make_plan
from fsdplint.migrate.step import Change, Kept, Migration, Question

PROGRAM = Path(__file__).parent / "programs" / "states.py"
STATES = Migration(
    "states", (states, full_params), frozenset(), lambda _: iter(()), lambda _: iter(())
)
HEAD = """\
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardedStateDictConfig, StateDictType

model = FSDP(torch.nn.Linear(4, 4), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
path = "checkpoint"
"""
FULL = "StateDictOptions(full_state_dict=True)"
ONE = "StateDictOptions(full_state_dict=True, cpu_offload=True)"


def planned(folder: Path, body: str, **answers: str) -> tuple[Plan, str]:
    """Return the plan for a program, and its text below the head afterwards."""
    file = folder / "train.py"
    text = HEAD + textwrap.dedent(body).lstrip("\n")
    file.write_text(text)
    keys = {key.replace("line", "train.py:"): value for key, value in answers.items()}
    plan = make_plan(STATES, [str(file)], keys)
    return plan, (plan.files[0][1].text if plan.files else text).removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            """
            save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):  # CPU
                # the whole model
                state = model.state_dict()  # on rank 0
            """,
            f"""
            save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            # CPU
            # the whole model
            state = get_model_state_dict(
                model, options={ONE}
            )  # on rank 0
            """,
            id="rank 0 only",
        ),
        pytest.param(
            """
            with torch.no_grad(), FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                s = [model.state_dict(), FSDP.optim_state_dict(model, optimizer)]
                dcp.save(s, checkpoint_id=path)
            """,
            """
            with torch.no_grad():
                s = [get_model_state_dict(model), get_optimizer_state_dict(model, optimizer)]
                dcp.save(s, checkpoint_id=path)
            """,
            id="shards, beside another context",
        ),
        pytest.param(
            """
            a, b = model, FSDP(torch.nn.Linear(2, 2))
            with FSDP.state_dict_type(
                a, StateDictType.FULL_STATE_DICT
            ), FSDP.state_dict_type(b, StateDictType.SHARDED_STATE_DICT):
                x, y = a.state_dict(), b.state_dict()
            """,
            f"""
            a, b = model, FSDP(torch.nn.Linear(2, 2))
            x, y = get_model_state_dict(a, options={FULL}), get_model_state_dict(b)
            """,
            id="several models",
        ),
        pytest.param(
            """
            FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
            def save(net):
                return net.state_dict()
            save(model)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                s = model.state_dict()
            """,
            f"""
            def save(net):
                return get_model_state_dict(net)
            save(model)
            s = get_model_state_dict(model, options={FULL})
            """,
            id="a setting for later calls",
        ),
        pytest.param(
            """
            checkpoint = torch.load(path)
            model.load_state_dict(checkpoint["model"], strict=False)
            print(checkpoint["model"].keys())
            """,
            """
            checkpoint = torch.load(path)
            set_model_state_dict(
                model,
                dict(checkpoint["model"]),
                options=StateDictOptions(full_state_dict=True, strict=False),
            )
            print(checkpoint["model"].keys())
            """,
            id="a load without a context, of a dict that is used again",
        ),
        pytest.param(
            """
            state = torch.load(path)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                state = FSDP.optim_state_dict_to_load(
                    optim_state_dict=state, model=model, optim=optimizer
                )
                optimizer.load_state_dict(state)
            """,
            f"""
            state = torch.load(path)
            set_optimizer_state_dict(
                model, optimizer, state, options={FULL}
            )
            """,
            id="an optimizer's load",
        ),
        pytest.param(
            """
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"model": model.state_dict()}
                dcp.load_state_dict(state, dcp.FileSystemReader(path))
                model.load_state_dict(state["model"])
                read = load_sharded_optimizer_state_dict(
                    model_state_dict=state["model"],
                    optimizer_key="optim",
                    storage_reader=dcp.FileSystemReader(path),
                )
                optimizer.load_state_dict(
                    FSDP.optim_state_dict_to_load(model, optimizer, read["optim"])
                )
            """,
            """
            state = {"model": get_model_state_dict(model)}
            dcp.load_state_dict(state, dcp.FileSystemReader(path))
            set_model_state_dict(model, state["model"])
            read = {"optim": get_optimizer_state_dict(model, optimizer)}
            dcp.load(read, storage_reader=dcp.FileSystemReader(path))
            set_optimizer_state_dict(model, optimizer, read["optim"])
            """,
            id="loads of shards",
        ),
        pytest.param(
            """
            read = load_sharded_optimizer_state_dict(
                model.state_dict(), "optim", dcp.FileSystemReader(path)
            )
            # flattened
            state = FSDP.optim_state_dict_to_load(read["optim"], model, optimizer)
            optimizer.load_state_dict(state)
            """,
            """
            read = {"optim": get_optimizer_state_dict(model, optimizer)}
            dcp.load(read, storage_reader=dcp.FileSystemReader(path))
            # flattened
            state = read["optim"]
            set_optimizer_state_dict(model, optimizer, state)
            """,
            id="the order of torch 2.0, and shards without a context",
        ),
        pytest.param(
            """
            full = torch.load(path) if dist.get_rank() == 0 else None
            sharded = FSDP.scatter_full_optim_state_dict(full, model)
            optimizer.load_state_dict(sharded)
            one = FSDP.full_optim_state_dict(model, optimizer)
            """,
            f"""
            full = torch.load(path) if dist.get_rank() == 0 else None
            set_optimizer_state_dict(
                model,
                optimizer,
                full,
                options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
            )
            one = get_optimizer_state_dict(
                model, optimizer, options={ONE}
            )
            """,
            id="the deprecated methods",
        ),
        pytest.param(
            """
            with torch.no_grad(), FSDP.summon_full_params(model, rank0_only=True, writeback=False):
                for name, p in model.named_parameters():
                    # each
                    if dist.get_rank() == 0:
                        print(name, p.norm())
                size = sum(p.numel() for p in model.parameters())
                total = sum(p.norm() ** 2 for p in model.parameters())
                print(model[0].weight.sum())
                state = model.state_dict()
            """,
            f"""
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p = p.full_tensor()
                    # each
                    if dist.get_rank() == 0:
                        print(name, p.norm())
                size = sum(p.numel() for p in model.parameters())
                total = sum(p.full_tensor().norm() ** 2 for p in model.parameters())
                print(model[0].weight.full_tensor().sum())
                state = get_model_state_dict(model, options={FULL})
            """,
            id="parameters that are read",
        ),
        pytest.param(
            """
            with FSDP.summon_full_params(model, recurse=False):
                model.generate(path)
            """,
            """
            model.generate(path)
            """,
            id="generation",
        ),
        pytest.param(
            """
            def resume(state):
                if not path.startswith(f"{dist.get_rank()}-"):
                    return
                state = FSDP.full_optim_state_dict(
                    model,  # on rank 0
                    optimizer,
                )
                # scattered
                scattered = FSDP.scatter_full_optim_state_dict(state, model)
            resume({})
            """,
            f"""
            def resume(state):
                if not path.startswith(f"{{dist.get_rank()}}-"):
                    return
                state = get_optimizer_state_dict(
                    # on rank 0
                    model,
                    optimizer,
                    options={ONE},
                )
                # scattered
                scattered = state
            resume({{}})
            """,
            id="a state that nothing loads, on ranks that have a file",
        ),
    ],
)
def test_text(tmp_path: Path, before: str, after: str) -> None:
    plan, text = planned(tmp_path, before)
    assert text == textwrap.dedent(after).lstrip("\n")
    assert plan.of(Kept) == plan.of(Question) == []


def test_gathered_gradients_that_are_clipped(tmp_path: Path) -> None:
    """The norm is that of all shards without a gather."""
    (tmp_path / "train.py").write_text(f"""{HEAD}
with FSDP.summon_full_params(model, with_grads=True):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norm = torch.nn.utils.clip_grad_norm_(model.module.parameters(), 1.0)
""")
    plan = make_plan(FSDP2, [str(tmp_path / "train.py")], {})
    assert plan.is_complete
    assert plan.files[0][1].text.endswith("""
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
""")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "if dist.get_rank() == 0:\n    torch.save(model.state_dict(), path)\n",
            "only some ranks reach `model.state_dict()`, and FSDP1 and FSDP2 need all of them "
            "there: the job hangs; let every rank run it, then migrate again",
        ),
        (
            "if dist.get_rank() == 0:\n"
            "    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
            "        state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path))\n"
            "        optimizer.load_state_dict(state)\n",
            "only some ranks reach `FSDP.optim_state_dict_to_load()`, and FSDP1 and FSDP2 need all",
        ),
        (
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
            "    state = model.state_dict()\n    unknown(model)\n",
            "`unknown(model)` may take the state of `model`",
        ),
        (
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, choose()):\n"
            "    state = model.state_dict()\n",
            "the value of `choose()` is not known here",
        ),
        (
            "state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load(path))\n"
            "print(state)\noptimizer.load_state_dict(state)\n",
            "`state` is used for more than one load",
        ),
        (
            "with FSDP.summon_full_params(model):\n"
            "    for p in model.parameters():\n        p.data.mul_(2)\n",
            "FSDP2 has no equivalent",
        ),
        (
            "with FSDP.summon_full_params(model):\n"
            "    if dist.get_rank() == 0:\n        print(model.weight)\n",
            "only some ranks may reach what reads a parameter",
        ),
        (
            "other = FSDP(torch.nn.Linear(2, 2), ignored_modules=[model])\n"
            "with FSDP.summon_full_params(model):\n    print(model.weight)\n",
            "parameters that are not sharded have no `full_tensor()`",
        ),
        (
            "with FSDP.summon_full_params(model):\n    torch.nn.init.zeros_(model.weight)\n",
            "FSDP2 has no equivalent",
        ),
        (
            "with FSDP.summon_full_params(model):\n"
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n",
            "FSDP2 has no equivalent",
        ),
        (
            "with FSDP.summon_full_params(model, with_grads=True, rank0_only=True):\n"
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n",
            "FSDP2 has no equivalent",
        ),
        (
            "with FSDP.summon_full_params(model, with_grads=True):\n"
            "    if dist.get_rank() == 0:\n"
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n",
            "only some ranks may reach what reads a parameter",
        ),
        (
            "FSDP.rekey_optim_state_dict(torch.load(path), 1, model)\n",
            "the state dict helpers take and return states by parameter names alone",
        ),
    ],
)
def test_kept(tmp_path: Path, body: str, reason: str) -> None:
    plan, text = planned(tmp_path, body)
    assert text == body
    assert [entry.found.reason.startswith(reason) for entry in plan.of(Kept)] == [True]  # type: ignore[union-attr]  # they are Kept


def test_a_type_that_an_option_chooses_is_asked_for(tmp_path: Path) -> None:
    body = """
    with FSDP.state_dict_type(model, StateDictType[path]):
        state = model.state_dict()
    """
    plan, _ = planned(tmp_path, body)
    line = HEAD.count("\n") + 1
    assert [entry.key for entry in plan.of(Question)] == [f"train.py:{line}:state-dict-type"]
    answer = {f"line{line}:state-dict-type": "SHARDED_STATE_DICT"}
    plan, text = planned(tmp_path, body, **answer)
    assert text == "state = get_model_state_dict(model)\n"


def test_a_local_state_is_replaced_by_the_chosen_type(tmp_path: Path) -> None:
    body = """
    from torch.distributed.fsdp import LocalStateDictConfig
    policy = LocalStateDictConfig()
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT, policy):
        dcp.save(model.state_dict(), checkpoint_id=path)
    """
    ((key, question),) = [(e.key, e.found) for e in planned(tmp_path, body)[0].of(Question)]
    assert isinstance(question, Question)
    assert question.choices == ("SHARDED_STATE_DICT", "FULL_STATE_DICT")
    plan, text = planned(tmp_path, body, **{key.replace("train.py:", "line"): question.choices[0]})
    assert text.endswith("dcp.save(get_model_state_dict(model), checkpoint_id=path)\n")
    assert [entry.found.differs for entry in plan.of(Change)] == [  # type: ignore[union-attr]  # Changes
        "files with a local state dict, saved before, cannot be loaded any more"
    ]


def test_every_rank_gets_a_full_state_on_its_device(tmp_path: Path) -> None:
    plan, _ = planned(
        tmp_path,
        """
        policy = FullStateDictConfig(offload_to_cpu=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
            state = model.state_dict()
        inner = model.module.state_dict()
        """,
    )
    assert [e.found.differs for e in plan.of(Change)] == [  # type: ignore[union-attr]  # Changes
        "every rank gets the full state on its own device; if only rank 0 needs it, add "
        "`cpu_offload=True`",
        "the root's own parameters, which FSDP1 leaves flat in it, are there by name",
    ]


def test_a_mode_for_ddp_saves_other_keys(tmp_path: Path) -> None:
    plan, _ = planned(
        tmp_path,
        """
        state = model.state_dict()
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
        other = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        """,
    )
    assert [e.found.differs for e in plan.of(Change)] == [  # type: ignore[union-attr]  # Changes
        "of a model that DDP wraps instead, the keys are without `module.`",
        "",
    ]


def test_a_block_governs_the_functions_that_it_calls(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        HEAD
        + "from saving import save\n\n"
        + "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n    save(model)\n"
    )
    saving = "def save(model):\n    return model.state_dict()\n"
    (tmp_path / "saving.py").write_text(saving)
    plan = make_plan(STATES, [str(tmp_path)], {})
    texts = {Path(new.path).name: new.text for _, new in plan.files}
    assert texts["train.py"].removeprefix(HEAD) == "from saving import save\n\nsave(model)\n"
    assert texts["saving.py"] == (
        "from torch.distributed.checkpoint.state_dict import get_model_state_dict\n\n"
        "def save(model):\n    return get_model_state_dict(model)\n"
    )
    # The same function takes the full state elsewhere, which one text cannot say.
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text() + "save(model)\n")
    plan = make_plan(STATES, [str(tmp_path)], {})
    assert [entry.found.reason for entry in plan.of(Kept)] == [  # type: ignore[union-attr]  # Kept
        "`model.state_dict()` has another state dict type in another call of its function; pass "
        "the options by hand"
    ]
    assert plan.files == ()


def test_notebook(tmp_path: Path) -> None:
    code = HEAD + (
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    state = model.state_dict()\n"
    )
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Save"]},
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": code.splitlines(keepends=True),
        },
    ]
    file = tmp_path / "save.ipynb"
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    file.write_text(json.dumps(notebook, indent=1))
    plan = make_plan(STATES, [str(file)], {})
    write(*plan.files)
    cells[1]["source"] = [*HEAD.splitlines(keepends=True), "state = get_model_state_dict(model)\n"]
    assert json.loads(file.read_text()) == notebook


def test_files_and_resumed_training_are_equal(tmp_path: Path, ranks: Ranks) -> None:
    """The migrated program writes the same files, and resumes from those of FSDP1 alike."""
    from fsdplint.migrate.fsdp2 import FSDP2

    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    program = tmp_path / "states.py"
    program.write_text(PROGRAM.read_text())
    plan = make_plan(FSDP2, [str(program)], {})
    assert plan.is_complete
    for text, target in ((program.read_text(), old), (plan.files[0][1].text, new)):
        folders = (str(old), str(target))
        assert not report(ranks.run(text, arguments=folders, process_group=False))
    assert not report(ranks.run(COMPARISON, arguments=[str(old), str(new)], world_size=1))


COMPARISON = """
import sys
import torch

def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other

old, new = sys.argv[1:]
names = ["full", "resumed", "resumed_from_shards", "legacy0", "plain0", "plain1"]
names += ["summoned0", "summoned1", "legacy1"]
found = [[torch.load(f"{folder}/{name}.pt") for name in names] for folder in (old, new)]
assert [same(one, other) for one, other in zip(*found)] == [True] * 9
states = [each["optim"]["state"] for each in found[0][:3]]
assert [each["0.weight"]["step"].item() for each in states] == [2, 4, 4]
assert found[1][-1] == {}
"""
