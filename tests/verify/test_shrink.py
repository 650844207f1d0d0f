"""`--shrink`: configurations of modules are made smaller, and the report says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Verification
from fsdplint.verify.warm_launcher import Warm

LIBRARY = """
from torch import nn

class Config:
    def __init__(self):
        self.num_hidden_layers = 6
        self.hidden_size = 64
        self.num_attention_heads = 8
        self.num_key_value_heads = 4
        self.intermediate_size = 96
        self.labels = 2
        self.patch = (3, 8, 8, 3, 1, 1)
        self.layer_types = ["local", "local", "local", "local", "local", "global"]

    @classmethod
    def from_pretrained(cls, name, return_unused_kwargs=False, **kwargs):
        config = cls()
        config.labels = kwargs.pop("labels", 2)
        return (config, kwargs) if return_unused_kwargs else config

class PreTrainedModel(nn.Module):
    config_class = Config

    @classmethod
    def from_pretrained(cls, name, **kwargs):
        raise AssertionError("weights are loaded")

    @classmethod
    def _from_config(cls, config, dtype=None):
        return cls(config).to(dtype)

class Model(PreTrainedModel):
    def __init__(self, config):
        super().__init__()
        assert len(config.layer_types) == config.num_hidden_layers
        assert len(config.patch) == 6
        self.labels = config.labels
        width = config.hidden_size
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in config.layer_types)
        self.attention = nn.MultiheadAttention(width, config.num_attention_heads)
"""
HEAD = """
import torch
from dataclasses import dataclass
from torch import nn
from torch.distributed.fsdp import fully_shard
from transformers.modeling_utils import Config, Model

torch.distributed.init_process_group("gloo")

@dataclass(frozen=True)
class Sizes:
    n_layer: int = 5
    n_head: int = 6
    n_embd: int = 96

class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width = sizes.n_embd
        self.blocks = nn.Sequential(*(nn.Linear(width, width) for _ in range(sizes.n_layer)))
"""
TAIL = """
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sum(p.sum() for p in model.parameters()).backward()
optimizer.step()
"""
OF_LIBRARY = (
    "`--shrink` changed `Config`: num_hidden_layers 2 (was 6), hidden_size 16 (was "
    "64), num_attention_heads 2 (was 8), num_key_value_heads 1 (was 4), intermediate_size 24 (was "
    "96)"
)


def run(warm: Warm, folder: Path, model: str, shrink: bool = True) -> Verification:
    (folder / "transformers").mkdir()
    (folder / "transformers" / "__init__.py").touch()
    (folder / "transformers" / "modeling_utils.py").write_text(LIBRARY)
    (folder / "train.py").write_text(f"{HEAD}{model}{TAIL}")
    request = Request("train.py", (), 2, None, "cpu", LONG, shrink=shrink)
    return verify(request, folder, launcher=warm)


@pytest.mark.parametrize(
    ("model", "note", "layers"),
    [
        (
            "model = Net(Sizes())",
            "`--shrink` changed `Sizes`: n_layer 2 (was 5), n_head 3 (was 6), n_embd 48 (was 96)",
            2,
        ),
        ("model = Model(Config())", OF_LIBRARY, 2),
        (
            "model = Model.from_pretrained('name', dtype=torch.bfloat16, labels=5)\n"
            "assert model.labels == 5",
            OF_LIBRARY,
            2,
        ),
    ],
)
def test_configurations_are_made_smaller(
    warm: Warm, tmp_path: Path, model: str, note: str, layers: int
) -> None:
    found = run(warm, tmp_path, f"{model}\nassert len(model.blocks) == {layers}")
    assert sorted(found.notes[0].split(", ")) == sorted(note.split(", "))
    assert len(found.notes) == 1
    (snapshot,) = found.snapshots[0]
    names = {p.name for unit in snapshot.units for p in unit.parameters}
    assert len({name for name in names if name.startswith("blocks")}) == 2 * layers


def test_nothing_is_made_smaller_unasked(warm: Warm, tmp_path: Path) -> None:
    found = run(warm, tmp_path, "model = Net(Sizes())\nassert len(model.blocks) == 5", shrink=False)
    assert (found.notes, found.failure) == ((), "")


def test_other_modules_are_built_and_copied_as_ever(warm: Warm, tmp_path: Path) -> None:
    model = (
        "import copy, pickle\n"
        "model = copy.deepcopy(nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2)))\n"
        "model = pickle.loads(pickle.dumps(model))\n"
        "class Table(nn.Module, dict): pass\n"
        "Table()\n"
        "assert model[1].linear1.out_features == 2048\n"
    )
    found = run(warm, tmp_path, model)
    assert (found.notes, found.failure) == (("`--shrink` found no configuration to change",), "")
