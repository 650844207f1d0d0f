"""Which module a sharding call takes, in which order, and what else has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import script

from fsdplint.engine.facts.containers import sharded_containers
from fsdplint.engine.program import Program
from fsdplint.rules.blocks_kept_unsharded import kept_blocks
from fsdplint.rules.ddp_around_fsdp import mixtures
from fsdplint.rules.deepcopy_of_sharded_model import copies
from fsdplint.rules.fsdp1_argument_to_fully_shard import reports
from fsdplint.rules.reshard_after_forward_value import bad_values
from fsdplint.rules.root_sharded_before_children import roots_first
from fsdplint.rules.sharded_twice import repeats
from fsdplint.rules.tied_weights_in_different_groups import ties
from fsdplint.rules.wrap_policy_called import called_policies, collections_as_policies

NET = """\
import copy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy as by_size
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self, tie=False):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.parts = nn.ModuleDict({"a": nn.Linear(8, 8)})
        self.head = nn.Linear(8, 8)

model = Net()
"""
BLOCKS = "for block in model.blocks:\n    fully_shard(block)\n"
ROOT = "fully_shard(model)\n"
TIE = "model.head.weight = model.embed.weight\n"

Facts = Callable[[Program], Iterator[Any]]


def count(facts: Facts, tmp_path: Path, text: str) -> int:
    return len(list(facts(script(tmp_path, NET + text))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROOT + BLOCKS, 1),
        (BLOCKS + ROOT, 0),
        ("if model.root_first:\n    fully_shard(model)\n" + BLOCKS, 1),
        ("if model.whole:\n    fully_shard(model)\nelse:\n    fully_shard(model.head)\n", 0),
        (ROOT + "other = Net()\nfor block in other.blocks:\n    fully_shard(block)\n", 0),
        (ROOT + "model.new = nn.Linear(8, 8)\nfully_shard(model.new)\n", 0),
        ("new = nn.Linear(8, 8)\n" + ROOT + "model.new = new\nfully_shard(model.new)\n", 0),
        (ROOT + "unknown(model)\n" + BLOCKS, 0),
        ("fully_shard(model, ignored_params=p)\nfully_shard(model.head)\n", 0),
        ("model = FSDP(model)\nmodel.head = FSDP(model.head)\n", 0),
        ("for m in reversed(list(model.modules())):\n    fully_shard(m)\n", 0),
        ("for m in [*model.blocks, model]:\n    fully_shard(m)\n", 0),
        ("for m in (model, model.head):\n    fully_shard(m)\n", 1),
        ("for m in unknown.modules():\n    fully_shard(m)\n", 1),
        ("for m in unknown.modules():\n    if m.big:\n        fully_shard(m)\n", 0),
        ("[fully_shard(m) for m in unknown.modules() if m.big]\n", 0),
    ],
)
def test_a_root_before_its_parts(tmp_path: Path, text: str, expected: int) -> None:
    assert count(roots_first, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fully_shard(model.blocks)\n", 1),
        ("fully_shard(model.parts)\n", 1),
        ("blocks = model.blocks\nfully_shard(blocks)\n", 1),
        ("fully_shard(list(model.blocks))\n", 0),
        ("fully_shard([model.blocks, model.head])\n", 0),
        ("fully_shard(model.blocks[:2])\n", 0),
        ("def shard(part):\n    fully_shard(part)\nshard(list(model.blocks))\n", 0),
        ("def shard(part):\n    fully_shard(part)\nshard(model.blocks)\n", 1),
        ("FSDP(model.blocks)\n", 0),
    ],
)
def test_a_container(tmp_path: Path, text: str, expected: int) -> None:
    assert count(sharded_containers, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROOT + ROOT, 1),
        (BLOCKS + BLOCKS + ROOT, 1),
        (BLOCKS.replace("blocks", "blocks[:2]") + BLOCKS.replace("blocks", "blocks[2:]"), 0),
        (ROOT + "if model.late:\n    fully_shard(model)\n", 0),
        (ROOT + "model = Net()\n" + ROOT, 0),
        (ROOT + "fully_shard(copy.copy(Net()))\n", 0),
        ("fully_shard([model.head, model.embed])\nfully_shard(model.head)\n", 1),
        ("picked = []\npicked.append(model)\nfor m in picked:\n    fully_shard(m)\n" + ROOT, 0),
    ],
)
def test_a_module_twice(tmp_path: Path, text: str, expected: int) -> None:
    assert count(repeats, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TIE + "fully_shard(model.embed)\n" + ROOT, 1),
        (TIE + "fully_shard(model.head)\n" + ROOT, 1),
        (TIE + "fully_shard(model.head)\nfully_shard(model.embed)\n", 1),
        (TIE + "fully_shard([model.head, model.embed])\n" + ROOT, 0),
        (TIE + BLOCKS + ROOT, 0),
        ("fully_shard(model.embed)\n" + TIE + ROOT, 0),
        (TIE + "fully_shard(model.embed)\n", 0),
        ("if model.tied:\n    " + TIE + "fully_shard(model.embed)\n" + ROOT, 0),
        ("if model.tied:\n    " + TIE + "    fully_shard(model.embed)\n    " + ROOT, 1),
        (TIE + "FSDP(model.embed)\n" + ROOT, 0),
    ],
)
def test_a_shared_weight(tmp_path: Path, text: str, expected: int) -> None:
    assert count(ties, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROOT + "DDP(model)\n", 1),
        (BLOCKS + "DDP(model)\n", 1),
        (BLOCKS + "DDP(model.head)\n", 0),
        ("DDP(model)\n" + ROOT, 0),
        ("model = FSDP(model)\nDDP(model)\n", 1),
        ("model = FSDP(model, sharding_strategy=unknown)\nDDP(model)\n", 0),
        ("model = FSDP(model)\n" + ROOT, 1),
        (ROOT + "model = FSDP(model)\n", 1),
        (ROOT + "model = FSDP(model, ignored_modules=[model.head])\n", 0),
        ("model.head = FSDP(model.head)\n" + ROOT, 0),
        ("if model.ddp:\n    DDP(model)\nelse:\n    fully_shard(model)\n", 0),
    ],
)
def test_two_kinds_of_parallelism(tmp_path: Path, text: str, expected: int) -> None:
    found = list(mixtures(script(tmp_path, NET + text)))
    assert len({(m.site.node.start, m.inner_site.node.start) for m in found}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROOT + "copy.deepcopy(model)\n", 1),
        ("fully_shard(model.head)\ncopy.deepcopy(model)\n", 1),
        (ROOT + "torch.optim.swa_utils.AveragedModel(model)\n", 1),
        ("copy.deepcopy(model)\n" + ROOT, 0),
        (ROOT + "copy.deepcopy(model.state_dict())\n", 0),
        (ROOT + "copy.deepcopy(Net())\n", 0),
        (ROOT + "copy.copy(model)\n", 0),
        ("FSDP(model)\ncopy.deepcopy(model)\n", 0),
    ],
)
def test_a_copy(tmp_path: Path, text: str, expected: int) -> None:
    assert count(copies, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("by_size(min_num_params=9)", 1),
        ("by_size(9)", 1),
        ("by_size(model, True, 9)", 0),
        ("by_size(*given)", 0),
        ("by_size(min_num_params=9, **given)", 0),
        ("by_size", 0),
    ],
)
def test_a_policy_that_is_called(tmp_path: Path, policy: str, expected: int) -> None:
    text = f"FSDP(model, auto_wrap_policy={policy})\n"
    assert count(called_policies, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("{Net}", 1), ("[Net]", 1), ("by_size", 0), ("None", 0), ("{Net} if late else None", 0)],
)
def test_a_policy_that_is_none(tmp_path: Path, policy: str, expected: int) -> None:
    text = f"FSDP(model, auto_wrap_policy={policy})\n"
    assert count(collections_as_policies, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("'True'", [True]),
        ("'no'", [None]),
        ("1", [True]),
        ("0", [False]),
        ("-1", [None]),
        ("0.5", [None]),
        ("torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP", [False]),
        ("True", []),
        ("None", []),
        ("2", []),
        ("1 if late else True", []),
        ("unknown", []),
    ],
)
def test_values_of_resharding(tmp_path: Path, value: str, meant: list[bool | None]) -> None:
    text = f"fully_shard(model, reshard_after_forward={value})\n"
    found = list(bad_values(script(tmp_path, NET + text)))
    assert [fact.meant for fact in found] == meant


@pytest.mark.parametrize(
    ("argument", "root", "expected"),
    [
        ("reshard_after_forward=False", ROOT, 1),
        ("reshard_after_forward=False", "", 0),
        ("reshard_after_forward=late", ROOT, 0),
        ("reshard_after_forward=True", ROOT, 0),
    ],
)
def test_kept_blocks(tmp_path: Path, argument: str, root: str, expected: int) -> None:
    text = BLOCKS.replace("(block)", f"(block, {argument})") + root
    assert count(kept_blocks, tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # in a partial that another function calls
        (
            "def decorate(m, by): by(m)\ndecorate(model, partial(fully_shard, device_mesh=mesh))\n",
            1,
        ),
        ("partial(fully_shard, device_mesh=mesh)(model, reshard_after_forward=False)\n", 1),
        ("partial(fully_shard, device_mesh=mesh)(model, device_id=0)\n", 2),
        ("fully_shard(model, device_mesh=mesh)\n", 1),
        # in neither
        ("shard = partial(fully_shard, **{'device_mesh': mesh})\nshard(model)\n", 0),
        ("partial(print, device_mesh=mesh)\nfully_shard(model, **{'device_mesh': mesh})\n", 0),
    ],
)
def test_a_wrong_argument_is_shown_where_it_is_written(
    tmp_path: Path, text: str, expected: int
) -> None:
    program = script(tmp_path, NET + "from functools import partial\n" + text)
    (report,) = reports(program)
    notes = [e for e in report.evidence if e.note.endswith("is passed here")]
    assert len(notes) == expected
    source = (tmp_path / "train.py").read_text(encoding="utf-8")
    shown = {source[e.span.start : e.span.end] for e in notes}
    assert shown <= {"device_mesh=mesh", "device_id=0"}
