"""`torch.save` checkpoints become distributed ones, and training goes on from both alike."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest
from plans import answered, only_change
from ranks import Ranks, report

from fsdplint.files.writing import write
from fsdplint.migrate.dcp import DCP
from fsdplint.migrate.plan import Plan
from fsdplint.migrate.step import Change, Kept

PROGRAMS = Path(__file__).parent / "programs"
HEAD = """\
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
rank = dist.get_rank()
model = nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
path = "out/checkpoint.pt"
FULL = StateDictOptions(full_state_dict=True)
"""
SAVE = """\
state = get_model_state_dict(model, options=FULL)
if rank == 0:
    torch.save({"model": state}, path)
"""
LOAD = """\
state = torch.load(path)
set_model_state_dict(model, state["model"], options=FULL)
"""


def planned(folder: Path, text: str, name: str = "train.py", **answers: str) -> Plan:
    """Return the plan for a program, with answers by the topics of their questions."""
    (folder / "pyproject.toml").touch()
    (folder / name).write_text(text, "utf-8")
    return answered(DCP, folder / name, **answers)


def migrated(folder: Path, body: str, **answers: str) -> str:
    """Return what a program becomes below its head, of a plan that is complete and final."""
    after = only_change(planned(folder, HEAD + textwrap.dedent(body).lstrip("\n"), **answers))
    again = planned(folder, after, **answers)
    assert (again.of(Change), again.files) == ([], ())
    return after[after.index('path = "out/checkpoint.pt"\n') :]


_CASES = {
    "shards of one rank": (
        """
        if rank == 0:
            # all of it
            torch.save({"model": model.state_dict(), "o": optimizer.state_dict()}, path)
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["o"])
        """,
        """
        if rank == 0 and os.path.isfile(path):
            os.rename(path, f"{path}.old")  # a file of torch.save
        dist.barrier()
        # all of it
        dcp.save(
            {"model": get_model_state_dict(model), "o": get_optimizer_state_dict(model, optimizer)},
            checkpoint_id=path,
        )
        is_file = os.path.isfile(path)
        if is_file:  # written by torch.save
            checkpoint = torch.load(path, mmap=True, weights_only=True)
        else:
            checkpoint = {
                "model": get_model_state_dict(model),
                "o": get_optimizer_state_dict(model, optimizer),
            }
            dcp.load(checkpoint, checkpoint_id=path)
        load_options = StateDictOptions(full_state_dict=is_file)
        set_model_state_dict(model, checkpoint["model"], options=load_options)
        set_optimizer_state_dict(model, optimizer, checkpoint["o"], options=load_options)
        """,
    ),
    "a file for each state": (
        """
        model_state = get_model_state_dict(model, options=FULL)
        optim_state = get_optimizer_state_dict(model, optimizer, options=FULL)
        if rank == 0:
            os.makedirs("out", exist_ok=True)
            torch.save(model_state, "out/model.pt")
            torch.save(optim_state, "out/optim.pt")
        if Path("out/model.pt").exists():
            set_model_state_dict(model, torch.load("out/model.pt"), options=FULL)
            set_optimizer_state_dict(model, optimizer, torch.load("out/optim.pt"), options=FULL)
        """,
        """
        model_state = get_model_state_dict(model)
        optim_state = get_optimizer_state_dict(model, optimizer)
        model_path = "out/model.pt"
        if rank == 0 and os.path.isfile(model_path):
            os.rename(model_path, f"{model_path}.old")  # a file of torch.save
        dist.barrier()
        dcp.save(model_state, checkpoint_id=model_path)
        optimizer_path_ = "out/optim.pt"
        if rank == 0 and os.path.isfile(optimizer_path_):
            os.rename(optimizer_path_, f"{optimizer_path_}.old")  # a file of torch.save
        dist.barrier()
        dcp.save(optim_state, checkpoint_id=optimizer_path_)
        if rank == 0:
            os.makedirs("out", exist_ok=True)
        if Path("out/model.pt").exists():
            model_path = "out/model.pt"
            is_file = os.path.isfile(model_path)
            if is_file:  # written by torch.save
                model_state_ = torch.load(model_path, mmap=True, weights_only=True)
            else:
                model_state_ = get_model_state_dict(model)
                dcp.load(model_state_, checkpoint_id=model_path)
            load_options = StateDictOptions(full_state_dict=is_file)
            set_model_state_dict(model, model_state_, options=load_options)
            optimizer_path = "out/optim.pt"
            is_file = os.path.isfile(optimizer_path)
            if is_file:  # written by torch.save
                optimizer_state = torch.load(optimizer_path, mmap=True, weights_only=True)
            else:
                optimizer_state = get_optimizer_state_dict(model, optimizer)
                dcp.load(optimizer_state, checkpoint_id=optimizer_path)
            load_options = StateDictOptions(full_state_dict=is_file)
            set_optimizer_state_dict(model, optimizer, optimizer_state, options=load_options)
        """,
    ),
    "other ranks leave before": (
        """
        def save(epoch):
            state = {"model": get_model_state_dict(model, options=FULL), "epoch": epoch}
            if rank != 0:
                return
            name = f"out/{epoch}.pt"
            print("saving", name)
            torch.save(state, name)


        def load(name):
            state = torch.load(f=name)
            set_model_state_dict(model, state["model"], options=FULL)
            return state.get("epoch", 0)
        """,
        """
        def save(epoch):
            state = {"model": get_model_state_dict(model), "epoch": epoch}
            name = f"out/{epoch}.pt"
            if dist.get_rank() == 0 and os.path.isfile(name):
                os.rename(name, f"{name}.old")  # a file of torch.save
            dist.barrier()
            dcp.save(state, checkpoint_id=name)
            if rank != 0:
                return
            print("saving", name)


        def load(name):
            is_file = os.path.isfile(name)
            if is_file:  # written by torch.save
                state = torch.load(f=name, mmap=True, weights_only=True)
            else:
                state = {
                    "model": get_model_state_dict(model),
                    "epoch": None,
                }
                dcp.load(state, checkpoint_id=name)
            load_options = StateDictOptions(full_state_dict=is_file)
            set_model_state_dict(model, state["model"], options=load_options)
            return state.get("epoch", 0)
        """,
    ),
    "every second epoch": (
        """
        for epoch in range(9):
            state = get_model_state_dict(model, options=FULL)
            if rank == 0 and epoch % 2 == 0:
                torch.save({"model": state, "best": best}, path)
        state = torch.load(path, mmap=True) if rank == 0 else {}
        set_model_state_dict(model, state["model"] if rank == 0 else {}, options=FULL)
        best = state["best"]
        """,
        """
        for epoch in range(9):
            state = get_model_state_dict(model)
            if epoch % 2 == 0:
                if rank == 0 and os.path.isfile(path):
                    os.rename(path, f"{path}.old")  # a file of torch.save
                dist.barrier()
                dcp.save({"model": state, "best": best}, checkpoint_id=path)
        is_file = os.path.isfile(path)
        if is_file:  # written by torch.save
            state = torch.load(path, mmap=True, weights_only=True)
        else:
            state = {
                "model": get_model_state_dict(model),
                "best": None,
            }
            dcp.load(state, checkpoint_id=path)
        load_options = StateDictOptions(full_state_dict=is_file)
        set_model_state_dict(model, state["model"], options=load_options)
        best = state["best"]
        """,
    ),
    "both states at once": (
        """
        options = StateDictOptions(full_state_dict=True, ignore_frozen_params=True)
        model_state, optim_state = get_state_dict(model, optimizer, options=options)
        if rank == 0:
            checkpoint = {"model": model_state, "rng": torch.get_rng_state()}
            checkpoint["optimizer"] = optim_state
            if config:
                checkpoint["config"] = config
            torch.save(checkpoint, path)
        if rank == 0:
            checkpoint = torch.load(path, weights_only=False)
        else:
            checkpoint = {}
        set_state_dict(
            model,
            optimizer,
            model_state_dict=checkpoint["model"],
            optim_state_dict=checkpoint["optimizer"],
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        torch.set_rng_state(checkpoint["rng"])
        """,
        """
        model_state, optim_state = get_state_dict(model, optimizer, OPTIONS)
        checkpoint = {"model": model_state, "rng": torch.get_rng_state()}
        checkpoint["optimizer"] = optim_state
        if config:
            checkpoint["config"] = config
        if rank == 0 and os.path.isfile(path):
            os.rename(path, f"{path}.old")  # a file of torch.save
        dist.barrier()
        dcp.save(checkpoint, checkpoint_id=path)
        is_file = os.path.isfile(path)
        if is_file:  # written by torch.save
            checkpoint = torch.load(path, weights_only=False, mmap=True)
        else:
            checkpoint = {
                "model": get_model_state_dict(model, OPTIONS),
                "rng": torch.get_rng_state(),
                "optimizer": get_optimizer_state_dict(model, optimizer, OPTIONS),
            }
            dcp.load(checkpoint, checkpoint_id=path)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=checkpoint["model"],
            optim_state_dict=checkpoint["optimizer"],
            options=StateDictOptions(full_state_dict=is_file, broadcast_from_rank0=is_file),
        )
        torch.set_rng_state(checkpoint["rng"])
        """.replace("OPTIONS", "options=StateDictOptions(ignore_frozen_params=True)"),
    ),
    "one variable for several states": (
        """
        state = get_model_state_dict(model, options=FULL)
        if rank == 0:
            torch.save(state, path)
        state = torch.load(path)
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
        for epoch in range(9):
            state = get_model_state_dict(model, options=FULL)
            if rank == 0:
                torch.save(state, path)
        """,
        """
        state = get_model_state_dict(model)
        if rank == 0 and os.path.isfile(path):
            os.rename(path, f"{path}.old")  # a file of torch.save
        dist.barrier()
        dcp.save(state, checkpoint_id=path)
        is_file = os.path.isfile(path)
        if is_file:  # written by torch.save
            state = torch.load(path, mmap=True, weights_only=True)
        else:
            state = get_model_state_dict(model)
            dcp.load(state, checkpoint_id=path)
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=is_file))
        for epoch in range(9):
            state = get_model_state_dict(model)
            if rank == 0 and os.path.isfile(path):
                os.rename(path, f"{path}.old")  # a file of torch.save
            dist.barrier()
            dcp.save(state, checkpoint_id=path)
        """,
    ),
    "a trainer": (
        """
        class Trainer:
            def __init__(self):
                self.model, self.step = model, 0

            def _state(self):
                return get_model_state_dict(self.model, options=FULL)

            def save(self):
                state = self._state()
                if rank == 0:
                    torch.save({"model": state, "step": self.step}, path)
                dist.barrier()

            def load(self):
                if not os.path.isfile(path):
                    return
                self.checkpoint = torch.load(path) if rank == 0 else None
                set_model_state_dict(self.model, self.checkpoint["model"], options=FULL)
                self.step = self.checkpoint["step"]
        """,
        """
        class Trainer:
            def __init__(self):
                self.model, self.step = model, 0

            def _state(self):
                return get_model_state_dict(self.model, options=FULL)

            def save(self):
                state = get_model_state_dict(self.model)
                if rank == 0 and os.path.isfile(path):
                    os.rename(path, f"{path}.old")  # a file of torch.save
                dist.barrier()
                dcp.save({"model": state, "step": self.step}, checkpoint_id=path)
                dist.barrier()

            def load(self):
                if not os.path.exists(path):
                    return
                is_file = os.path.isfile(path)
                if is_file:  # written by torch.save
                    self.checkpoint = torch.load(path, mmap=True, weights_only=True)
                else:
                    self.checkpoint = {
                        "model": get_model_state_dict(self.model),
                        "step": None,
                    }
                    dcp.load(self.checkpoint, checkpoint_id=path)
                load_options = StateDictOptions(full_state_dict=is_file)
                set_model_state_dict(self.model, self.checkpoint["model"], options=load_options)
                self.step = self.checkpoint["step"]
        """,
    ),
    "perhaps without an optimizer": (
        """
        def save(model, optimizer):
            state = {"model": get_model_state_dict(model, options=FULL)}
            if optimizer is not None:
                state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=FULL)
            if rank == 0:
                torch.save(state, path)


        def load(model, optimizer=None, scheduler=None):
            state = torch.load(path)
            set_model_state_dict(model, state["model"], options=FULL)
            if optimizer is not None and "optimizer" in state:
                set_optimizer_state_dict(model, optimizer, state["optimizer"], options=FULL)
        """,
        """
        def save(model, optimizer):
            state = {"model": get_model_state_dict(model)}
            if optimizer is not None:
                state["optimizer"] = get_optimizer_state_dict(model, optimizer)
            if rank == 0 and os.path.isfile(path):
                os.rename(path, f"{path}.old")  # a file of torch.save
            dist.barrier()
            dcp.save(state, checkpoint_id=path)


        def load(model, optimizer=None, scheduler=None):
            is_file = os.path.isfile(path)
            if is_file:  # written by torch.save
                state = torch.load(path, mmap=True, weights_only=True)
            else:
                state = {
                    "model": get_model_state_dict(model),
                }
                if optimizer is not None:
                    state["optimizer"] = get_optimizer_state_dict(model, optimizer)
                dcp.load(state, checkpoint_id=path)
            load_options = StateDictOptions(full_state_dict=is_file)
            set_model_state_dict(model, state["model"], options=load_options)
            if optimizer is not None and "optimizer" in state:
                set_optimizer_state_dict(model, optimizer, state["optimizer"], options=load_options)
        """,
    ),
    "perhaps without a process group": (
        """
        def state_of(model):
            if dist.is_initialized():
                return get_model_state_dict(model, options=FULL)
            return model.state_dict()


        def save(model):
            state = state_of(model)
            if not dist.is_initialized() or rank == 0:
                torch.save({"model": state}, path)


        def load(model):
            state = torch.load(path)
            if dist.is_initialized():
                options = StateDictOptions(full_state_dict=True)
                set_model_state_dict(model, state["model"], options=options)
            else:
                model.load_state_dict(state["model"])
        """,
        """
        def state_of(model):
            if dist.is_initialized():
                return get_model_state_dict(model, options=FULL)
            return model.state_dict()


        def save(model):
            state = get_model_state_dict(model)
            if (not dist.is_initialized() or rank == 0) and os.path.isfile(path):
                os.rename(path, f"{path}.old")  # a file of torch.save
            if dist.is_initialized():
                dist.barrier()
            dcp.save({"model": state}, checkpoint_id=path)


        def load(model):
            is_file = os.path.isfile(path)
            if is_file:  # written by torch.save
                state = torch.load(path, mmap=True, weights_only=True)
            else:
                state = {
                    "model": get_model_state_dict(model),
                }
                dcp.load(state, checkpoint_id=path)
            if dist.is_initialized():
                options = StateDictOptions(full_state_dict=is_file)
                set_model_state_dict(model, state["model"], options=options)
            else:
                model.load_state_dict(state["model"])
        """,
    ),
    "the other ranks do something else": (
        """
        state = dict(model=get_model_state_dict(model, options=FULL))
        if rank == 0:
            torch.save(obj=state, f=path)  # all of it
            # the end
        else:
            print("waiting")
        state = torch.load(path)
        set_model_state_dict(model, state["model"], options=FULL)
        """,
        """
        state = dict(model=get_model_state_dict(model))
        if rank == 0 and os.path.isfile(path):
            os.rename(path, f"{path}.old")  # a file of torch.save
        dist.barrier()
        dcp.save(state_dict=state, checkpoint_id=path)  # all of it
        if rank == 0:
            pass
            # the end
        else:
            print("waiting")
        is_file = os.path.isfile(path)
        if is_file:  # written by torch.save
            state = torch.load(path, mmap=True, weights_only=True)
        else:
            state = {
                "model": get_model_state_dict(model),
            }
            dcp.load(state, checkpoint_id=path)
        load_options = StateDictOptions(full_state_dict=is_file)
        set_model_state_dict(model, state["model"], options=load_options)
        """,
    ),
    "old checkpoints are deleted": (
        """
        def save(step, kept):
            state = get_model_state_dict(model, options=FULL)
            if rank == 0:
                name = Path("out") / f"{step}.pt"
                torch.save({"model": state}, name)
                kept.append(name)
                if len(kept) > 2:
                    os.remove(kept.pop(0))
                print("done")  # all of it


        def load(name):
            state = torch.load(
                name,
                "cpu",
            )["model"]
            set_model_state_dict(model, state, options=FULL)
        """,
        """
        def save(step, kept):
            state = get_model_state_dict(model)
            name = Path("out") / f"{step}.pt"
            if rank == 0 and os.path.isfile(name):
                os.rename(name, f"{name}.old")  # a file of torch.save
            dist.barrier()
            dcp.save({"model": state}, checkpoint_id=name)
            if rank == 0:
                kept.append(name)
                if len(kept) > 2:
                    old = kept.pop(0)
                    if os.path.isdir(old):
                        shutil.rmtree(old)
                    else:
                        os.remove(old)
                print("done")  # all of it


        def load(name):
            is_file = os.path.isfile(name)
            if is_file:  # written by torch.save
                checkpoint = torch.load(
                    name,
                    "cpu",
                    mmap=True,
                    weights_only=True,
                )
            else:
                checkpoint = {
                    "model": get_model_state_dict(model),
                }
                dcp.load(checkpoint, checkpoint_id=name)
            load_options = StateDictOptions(full_state_dict=is_file)
            state = checkpoint["model"]
            set_model_state_dict(model, state, options=load_options)
        """,
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_every_rank_saves_and_loads(name: str, tmp_path: Path) -> None:
    before, after = _CASES[name]
    text = migrated(tmp_path, before)
    expected = textwrap.dedent(after).lstrip("\n")
    used = "FULL = StateDictOptions(full_state_dict=True)\n" if "options=FULL" in expected else ""
    assert text == f'path = "out/checkpoint.pt"\n{used}{expected}'


def test_parameters_without_memory_get_some_before_dcp_fills_them(tmp_path: Path) -> None:
    meta = 'with torch.device("meta"):\n    model = nn.Linear(4, 4)\nfully_shard(model)\n'
    text = migrated(tmp_path, meta + SAVE + LOAD)
    after = """\
    model_device = next(model.parameters()).device_mesh.device_type
    for module in model.modules():
        if any(p.is_meta for p in module.parameters(recurse=False)):
            module.to_empty(device=model_device, recurse=False)
    state = {
        "model": get_model_state_dict(model),
    }
"""
    assert f"else:\n{after}    dcp.load(state, checkpoint_id=path)\n" in text


def test_code_that_looks_for_a_file_finds_the_folder(tmp_path: Path) -> None:
    body = """
        def load(path):
            state = torch.load(path)
            set_model_state_dict(model, state["model"], options=FULL)


        def main(path, other):
            if os.path.isfile(path) and not Path("config.json").is_file():
                load(path)
            if Path(other).is_file():
                load(other)
        """
    text = migrated(tmp_path, SAVE + textwrap.dedent(body))
    assert 'if os.path.exists(path) and not Path("config.json").is_file():' in text
    assert "if Path(other).exists():" in text
    text = migrated(tmp_path, SAVE + textwrap.dedent(body), looks_for_checkpoint="no")
    assert "if Path(other).is_file():" in text


def test_saves_in_the_background_wait_for_each_other(tmp_path: Path) -> None:
    before = """
        def save(step):
            state = get_model_state_dict(model, options=FULL)
            if rank == 0:
                torch.save({"model": state, "step": step, "steps": [step]}, path)


        load = torch.load(path)
        set_model_state_dict(model, load["model"], options=FULL)
        for step in range(9):
            save(step)
        dist.destroy_process_group()
        """
    after = """
        pending_save = None
        checkpoint_group = None


        def save(step):
            state = get_model_state_dict(model)
            global pending_save, checkpoint_group
            if pending_save is None:
                checkpoint_group = dist.new_group(backend="gloo")
            else:
                pending_save.result()
            if rank == 0 and os.path.isfile(path):
                os.rename(path, f"{path}.old")  # a file of torch.save
            dist.barrier()
            pending_save = dcp.async_save(
                {"model": state, "step": step, "steps": [step]},
                checkpoint_id=path,
                process_group=checkpoint_group,
            )
        """
    text = migrated(tmp_path, before, async_save="yes")
    assert textwrap.dedent(after).lstrip("\n") in text
    end = "    save(step)\nif pending_save is not None:\n    pending_save.result()\ndist.destroy"
    assert end in text


@pytest.mark.parametrize(
    ("body", "line", "reason"),
    [
        (
            "torch.save({'model': get_model_state_dict(model)}, f'{rank}.pt')\n" + LOAD,
            22,
            "each rank writes a file of its own; give all ranks one path",
        ),
        (
            SAVE.replace("path)", "path)\n    os.replace(path, 'other')") + LOAD,
            24,
            "`os.replace(path, 'other')` handles the file, which becomes a folder; "
            "change it by hand",
        ),
        (
            SAVE.replace("rank == 0", "rank == 0 and loss < best") + LOAD,
            24,
            "`loss < best` decides on some ranks only whether this is saved; let every rank "
            "decide alike and test it outside the rank test",
        ),
        (
            SAVE.replace("    torch", "    path = choose()\n    torch") + LOAD,
            25,
            "`path = choose()` prepares the save on some ranks only; give every rank the same "
            "value above the rank test",
        ),
        (
            "def save(state):\n    torch.save(state, path)\n"
            "save({'model': get_model_state_dict(model)})\n" + LOAD,
            23,
            "`save({'model': get_model_state_dict(model)})` puts the checkpoint together; save "
            "it there, where its parts are known",
        ),
        (
            SAVE + "state = torch.load(path)\nnet = nn.Linear(4, 4)\n"
            "set_model_state_dict(net, state['model'])\n",
            25,
            "the file is read before `net` is built, and DCP loads into what is there; read it "
            "below, and what is needed earlier from a file of its own",
        ),
        (
            "checkpoint = {'model': get_model_state_dict(model)}\nif args:\n"
            "    checkpoint['args'] = 1\ntorch.save(checkpoint, path)\n" + LOAD + "state['args']\n",
            26,
            '`"args"` is saved in some cases only, and DCP loads no key that is not there; save '
            "it always",
        ),
        (
            SAVE + LOAD + "args = state['args']\n",
            25,
            "`args` is read from the checkpoint, but nothing saves it",
        ),
        (
            SAVE.replace("state}", "state, 'args': vars(args)}") + LOAD + "a = state['args']\n",
            25,
            '`"args"` is read back, but DCP cannot load a dict without one like it to load '
            "into; save it in a file of its own",
        ),
        (
            SAVE + LOAD + "print(state)\n",
            25,
            "`print(state)` hands on the whole checkpoint, so its keys are not known here; load "
            "it where they are read",
        ),
        (
            SAVE + "    model.save_pretrained('out', state_dict=state)\n" + LOAD,
            24,
            "`model.save_pretrained('out', state_dict=state)` uses `state`, too, which holds "
            "shards afterwards; take the state for it apart",
        ),
        (
            SAVE.replace("if", "state = to_cpu(state)\nif") + LOAD,
            25,
            "it is not known how `state` holds `get_model_state_dict(model, options=FULL)`; save "
            "a dict with constant keys, then migrate again",
        ),
        (
            SAVE + "with open(path, 'rb') as file:\n    state = torch.load(file)\n"
            "set_model_state_dict(model, state['model'])\n",
            26,
            "it reads an open file; give `torch.load` the path",
        ),
        (
            SAVE + "if rank == 0:\n    state = torch.load(path)\n"
            "set_model_state_dict(model, state['model'])\n",
            26,
            "only some ranks load; move the load out of `if rank == 0:`",
        ),
        (
            SAVE + LOAD + "def read():\n    return torch.load(path)\n",
            28,
            "other code takes the checkpoint as a whole; load it where its keys are read",
        ),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nFSDP(model)\n",
            23,
            "FSDP1 shards this model; run `fsdplint migrate fsdp2` first",
        ),
    ],
)
def test_what_cannot_move_is_kept(body: str, line: int, reason: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, HEAD + body)
    kept = [(entry.line, entry.found.reason) for entry in plan.of(Kept)]  # type: ignore[union-attr]  # Kept
    assert (line, reason) in kept
    assert not plan.is_complete


def test_a_file_that_nothing_loads_stays(tmp_path: Path) -> None:
    plan = planned(tmp_path, HEAD + SAVE)
    assert (plan.entries, plan.files) == ((), ())
    plan = planned(tmp_path, HEAD + SAVE.replace("if", "state = to_cpu(state)\nif"))
    assert (plan.entries, plan.files) == ((), ())


def test_a_notebook_keeps_its_cells(tmp_path: Path) -> None:
    parts = [HEAD, SAVE, LOAD]
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": part.splitlines(keepends=True),
        }
        for part in parts
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    file = tmp_path / "train.ipynb"
    plan = planned(tmp_path, json.dumps(notebook, indent=1), file.name)
    assert plan.is_complete, plan.entries
    write(*plan.files)
    sources = ["".join(cell["source"]) for cell in json.loads(file.read_text())["cells"]]
    assert sources[1].endswith('dcp.save({"model": state}, checkpoint_id=path)\n')
    assert sources[2].startswith("is_file = os.path.isfile(path)\n")


@pytest.mark.parametrize(
    ("program", "given"),
    [("checkpoints.py", ()), ("gathered.py", ("helpers",)), ("gathered.py", ("hand",))],
)
def test_training_goes_on_from_folders_and_from_files(
    program: str, given: tuple[str, ...], tmp_path: Path, ranks: Ranks
) -> None:
    """Runs on two and on four ranks, from both, end with the losses and moments of one run."""
    old = (PROGRAMS / program).read_text()
    plan = planned(tmp_path, old)
    assert plan.is_complete, plan.entries
    new = plan.files[0][1].text

    def run(text: str, folder: str, epochs: int, world_size: int = 2) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        arguments = (str(tmp_path / folder), str(epochs), *given)
        ended = ranks.run(text, arguments=arguments, process_group=False, world_size=world_size)
        assert not report(ended)

    run(old, "whole", 4)
    run(old, "file", 2)
    shutil.copytree(tmp_path / "file", tmp_path / "file4")
    run(new, "folder", 2)
    shutil.copytree(tmp_path / "folder", tmp_path / "folder4")
    run(new, "folder", 4)
    run(new, "file", 4)
    run(new, "file4", 4, world_size=4)
    run(new, "folder4", 4, world_size=4)
    folders = [str(tmp_path / each) for each in ("whole", "folder", "file", "file4", "folder4")]
    assert not report(ranks.run(COMPARISON, arguments=folders, world_size=1))


COMPARISON = """
import json
import sys

import torch

runs = [
    (torch.load(f"{folder}/moments.pt"), json.load(open(f"{folder}/losses.json")))
    for folder in sys.argv[1:]
]
(first, losses), *others = runs
for number, (other, theirs) in enumerate(others):
    close = 1e-6 if number >= 2 else 0.0  # four ranks round in another order
    torch.testing.assert_close(theirs, losses, rtol=close, atol=0.0)
    # A load that broadcasts makes lists of tuples.
    assert json.dumps(other["param_groups"]) == json.dumps(first["param_groups"])
    assert other["state"].keys() == first["state"].keys()
    for name, state in first["state"].items():
        torch.testing.assert_close(other["state"][name], state, rtol=close, atol=close / 1e3)
"""
