"""Random numbers that nothing seeds begin alike on all ranks of a script that had one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import answered, only_change
from ranks import Ranks, report

from fsdplint.migrate.single import SINGLE

_SCRIPT = """\
import random

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return torch.ones(4) * self.rows[place] * noise()


def noise():
    return 1.0


def main():
    rows = list(range(16))
    SPLIT
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Rows(rows[:8])
    loader = DataLoader(data, batch_size=2)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    print("rows", rows[:8])


if __name__ == "__main__":
    main()
"""
_BOTH = """\
    dist.init_process_group()
    states = [np.random.get_state(), random.getstate()]
    dist.broadcast_object_list(states, src=0)
    np.random.set_state(states[0])
    random.setstate(states[1])
"""
_RANDOM = """\
    dist.init_process_group()
    states = [random.getstate()]
    dist.broadcast_object_list(states, src=0)
    random.setstate(states[0])
"""
_NUMPY = _RANDOM.replace("random.getstate", "np.random.get_state").replace(
    "random.setstate", "np.random.set_state"
)


def _migrated(folder: Path, text: str, **topics: str) -> str:
    (folder / "train.py").write_text(text)
    return only_change(answered(SINGLE, folder / "train.py", **topics))


@pytest.mark.parametrize(
    ("split", "begun"),
    [
        ("random.shuffle(rows)", _RANDOM),
        ("random.shuffle(rows); np.random.permutation(4)", _BOTH),
        ("rows, _ = train_test_split(rows, test_size=0.5)", _NUMPY),
        ("rows, _ = train_test_split(rows, random_state=1)", ""),
        ("random.seed(0); random.shuffle(rows)", ""),
        ("np.random.default_rng(0).shuffle(rows)", ""),
    ],
)
def test_what_nothing_seeds_begins_alike(tmp_path: Path, split: str, begun: str) -> None:
    after = _migrated(tmp_path, _SCRIPT.replace("SPLIT", split))
    assert begun in after if begun else "broadcast_object_list" not in after
    again = answered(SINGLE, tmp_path / "train.py")
    assert again.is_complete


def test_a_sample_may_differ(tmp_path: Path) -> None:
    text = _SCRIPT.replace("SPLIT", "pass").replace("* noise()", "* random.random()")
    assert "broadcast_object_list" not in _migrated(tmp_path, text)


def test_without_a_loader_the_user_decides(tmp_path: Path) -> None:
    text = _SCRIPT.replace("SPLIT", "random.shuffle(rows)")
    text = text.replace("in loader", "in torch.ones(2, 4).split(1)")
    assert _RANDOM in _migrated(tmp_path, text, random_batches="leave")
    own = _migrated(tmp_path, text, random_batches="leave", random_numbers="own")
    assert "broadcast_object_list" not in own


def test_ranks_split_alike(tmp_path: Path, ranks: Ranks) -> None:
    text = _SCRIPT.replace("SPLIT", "random.shuffle(rows)")
    after = _migrated(tmp_path, text).replace("from sklearn", "# from sklearn")
    printed = after.replace("        print(", "        pass\n    print(")
    assert printed != after
    outcomes = ranks.run(printed, process_group=False)
    assert not report(outcomes)
    first, second = ([li for li in o.output.splitlines() if "rows" in li] for o in outcomes)
    assert first == second != []
