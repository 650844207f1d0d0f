"""Methods of a sharded model, and numbers of each rank in the entries of a dict."""

from __future__ import annotations

from pathlib import Path

from plans import answered, only_change
from ranks import Ranks, report

from fsdplint.migrate.single import SINGLE

_SCRIPT = """\
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.total = self.count = 0

    def update(self, value, count):
        self.total += value * count
        self.count += count
        self.average = self.total / self.count


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x) * self.weight

    def inverse(self, x):
        return x / self.weight


class Flow(nn.Sequential):
    def inverse(self, x):
        for layer in reversed(self):
            x = layer.inverse(x)
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Flow(*[Scale() for _ in range(2)])

    def forward(self, x):
        return self.net(x)

    def inverse(self, x):
        return self.net.inverse(x)


def validate(model, loader):
    meters = {"loss": Meter(), "error": Meter()}
    model.eval()
    with torch.no_grad():
        for (x,) in loader:
            y = model(x)
            meters["loss"].update(y.square().mean().item(), len(x))
            meters["error"].update(y.abs().mean().item(), len(x))
    return dict([("loss", meters["loss"].average), ("error", meters["error"].average)])


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4))
    loader = DataLoader(data, batch_size=8)
    others = DataLoader(data, batch_size=16)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 1e9
    for epoch in range(3):
        model.train()
        for (x,) in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log = validate(model, others)
        if log["error"] < best:
            torch.save(model.state_dict(), sys.argv[1])
            best = log["error"]
        images = model.inverse(torch.ones(1, 4))


if __name__ == "__main__":
    main()
"""


def test_a_method_that_leads_to_other_methods_is_registered(tmp_path: Path, ranks: Ranks) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    after = only_change(answered(SINGLE, tmp_path / "train.py", batch_size="divide"))
    assert '    register_fsdp_forward_method(model, "inverse")\n' in after
    assert 'if mean_over_ranks(log["error"]) < best:' in after
    run = ranks.run(after, arguments=[str(tmp_path / "model.pt")], process_group=False)
    assert not report(run)


_FETCHED = """\
    if not os.path.exists("data"):
        os.system("unzip data.zip")
"""


def test_a_command_that_creates_what_is_missing_is_run_first_by_rank_0(tmp_path: Path) -> None:
    text = _SCRIPT.replace("    data = ", f"{_FETCHED}    data = ")
    (tmp_path / "train.py").write_text(text)
    after = only_change(answered(SINGLE, tmp_path / "train.py", batch_size="divide"))
    wait = "    if dist.get_rank() {} 0:\n        dist.barrier()\n"
    assert wait.format("!=") + _FETCHED + wait.format("==") in after


_CHOSEN = """\
import sys

import torch
from torch import nn


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        return self.net(x)

    def loss(self, x):
        return self.forward(x).square().mean()


class Second(First):
    def forward(self, x):
        return self.net(x).relu()

    def loss(self, x):
        return self.forward(x).abs().mean()


def main():
    if sys.argv[1] == "first":
        model = First()
    else:
        model = Second()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model.loss(torch.ones(2, 4)).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


def test_each_class_that_may_be_the_model_calls_itself(tmp_path: Path, ranks: Ranks) -> None:
    (tmp_path / "train.py").write_text(_CHOSEN)
    after = only_change(answered(SINGLE, tmp_path / "train.py"))
    assert "return self(x).square().mean()" in after and "return self(x).abs().mean()" in after
    for name in ("first", "second"):
        assert not report(ranks.run(after, arguments=[name], process_group=False))


_AGAIN = """\
    try:
        train(model, optimizer)
    except torch.cuda.OutOfMemoryError:
        train(model, optimizer)
"""


def test_a_handler_that_trains_again_may_save(tmp_path: Path) -> None:
    lines = _CHOSEN[_CHOSEN.index("    for _ in range(2):") : _CHOSEN.index("\n\nif __name__")]
    saves = '    torch.save(model.state_dict(), "model.pt")\n'
    train = f"def train(model, optimizer):\n{lines}{saves}\n\n"
    text = _CHOSEN.replace(lines, _AGAIN).replace("def main", f"{train}def main")
    (tmp_path / "train.py").write_text(text)
    after = only_change(answered(SINGLE, tmp_path / "train.py"))
    assert after.count("get_model_state_dict(") == 1
