"""Averages of weights, and optimizers of several models, in scripts for one GPU."""

from __future__ import annotations

from pathlib import Path

from plans import answered, only_change
from ranks import Ranks, report

from fsdplint.migrate.single import SINGLE

_SCRIPT = """\
import copy
import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

    def sample(self, x):
        return self.layer(x).relu()


class Average(AveragedModel):
    def __init__(self, model, decay):
        def average(old, new, count):
            return decay * old + (1 - decay) * new

        super().__init__(model, avg_fn=average, use_buffers=True)


def main():
    torch.manual_seed(0)
    model, head = Net(), nn.Linear(4, 2)
    mean = Average(model, 0.5)
    teacher = copy.deepcopy(model)
    data = TensorDataset(torch.randn(16, 4))
    loader = DataLoader(data, batch_size=8)
    groups = [{"params": model.parameters()}, {"params": head.parameters(), "lr": 0.01}]
    optimizer = torch.optim.Adam(groups)
    for epoch in range(2):
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = head(model(batch)).square().mean()
            loss.backward()
            optimizer.step()
            mean.update_parameters(model)
            with torch.no_grad():
                for old, new in zip(teacher.parameters(), model.parameters()):
                    old.mul_(0.5).add_(new, alpha=0.5)
        with torch.no_grad():
            images = mean.module.sample(torch.ones(1, 4)), teacher.sample(torch.ones(1, 4))
    state = {"mean": mean.state_dict(), "teacher": teacher.state_dict(), "images": images}
    state["optimizer"] = optimizer.state_dict()
    torch.save(state, sys.argv[1])


if __name__ == "__main__":
    main()
"""
_COMPARED = """\
import sys

import torch

before, *others = (torch.load(path) for path in sys.argv[1:])
moments = [each["exp_avg"] for each in before.pop("optimizer")["state"].values()]
for other in others:
    saved = other.pop("optimizer")["state"].values()
    torch.testing.assert_close([each["exp_avg"] for each in saved], moments)
    torch.testing.assert_close(other, before)
"""


def test_averages_and_the_state_of_two_models_are_as_on_one_gpu(
    tmp_path: Path, ranks: Ranks
) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    after = only_change(answered(SINGLE, tmp_path / "train.py", batch_size="divide"))
    for name in ("mean.module", "teacher"):
        assert f"    fully_shard({name}, reshard_after_forward=True)\n" in after
        assert f'    register_fsdp_forward_method({name}, "sample")\n' in after
    assert "torch.nn.ModuleList([model, head])" in after
    files = [str(tmp_path / f"{name}.pt") for name in ("before", "one", "two")]
    for text, size, file in zip((_SCRIPT, after, after), (1, 1, 2), files, strict=True):
        run = ranks.run(text, world_size=size, arguments=[file], process_group=False)
        assert not report(run)
    assert not report(ranks.run(_COMPARED, arguments=files, world_size=1))
