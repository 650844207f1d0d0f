"""A one-GPU script becomes one rank of several, which shard its model and divide its data."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from plans import only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.single import SINGLE
from fsdplint.migrate.step import Change, Kept, Question

_BEFORE = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--output", default="model.pt")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(16, 4))
    loader = DataLoader(data, batch_size=args.batch_size)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for (batch,) in loader:
            loss = model(batch.to(device)).square().mean()
            model.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}", loss.item())
    torch.save(model.state_dict(), args.output)


if __name__ == "__main__":
    main()
"""
_AFTER = """\
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--output", default="model.pt")
    args = parser.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(16, 4))
    loader = DataLoader(
        data,
        batch_size=args.batch_size // dist.get_world_size(),
        sampler=DistributedSampler(data, shuffle=False),
    )
    model = Net().to(device)
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for (batch,) in loader:
            loss = model(batch.to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}", loss.item())
    state_dict = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        torch.save(state_dict, args.output)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
_COMPARED = """\
import sys

import torch

before, one, two = (torch.load(path) for path in sys.argv[1:])
assert before.keys() == one.keys() == two.keys()
for name, value in before.items():
    assert torch.equal(one[name], value)
    torch.testing.assert_close(two[name], value)
"""


planned = partial(plan_of, SINGLE)


def migrated(folder: Path, text: str, **answers: str) -> str:
    """Return a complete migration of a script, whose questions are answered by their topics."""
    topics = {topic.replace("_", "-"): answer for topic, answer in answers.items()}
    given: dict[str, str] = {}
    while (plan := planned(folder, text, given)).of(Question):
        given |= {each.key: topics[each.key.rpartition(":")[2]] for each in plan.of(Question)}
    after = only_change(plan)
    again = planned(folder, after)
    assert not again.files and not again.of(Kept), "a second migration finds something"
    return after


def test_a_script_trains_the_same_on_one_rank_and_on_two(tmp_path: Path, ranks: Ranks) -> None:
    after = migrated(tmp_path, _BEFORE, batch_size="divide")
    assert after[after.index("def main") :] == _AFTER
    files = [str(tmp_path / name) for name in ("before.pt", "one.pt", "two.pt")]
    for text, size, file in zip((_BEFORE, after, after), (1, 1, 2), files, strict=True):
        arguments = ["--output", file]
        assert not report(
            ranks.run(text, world_size=size, arguments=arguments, process_group=False)
        )
    assert not report(ranks.run(_COMPARED, arguments=files, world_size=1))


def test_the_batch_size_may_stay_that_of_each_rank(tmp_path: Path) -> None:
    after = migrated(tmp_path, _BEFORE, batch_size="keep")
    assert "        data,\n        batch_size=args.batch_size,\n        sampler=Dist" in after


def test_a_loader_that_shuffles_gets_a_new_order_in_each_epoch(tmp_path: Path) -> None:
    text = _BEFORE.replace(
        "DataLoader(data, batch_size=args.batch_size)", "DataLoader(data, **kwargs)"
    )
    text = text.replace("    data =", '    kwargs = {"batch_size": 4, "shuffle": True}\n    data =')
    after = migrated(tmp_path, text, batch_size="divide")
    assert (
        """\
    loader = DataLoader(
        data,
        **{
            **kwargs,
            "shuffle": False,
            "sampler": DistributedSampler(data),
            "batch_size": kwargs["batch_size"] // dist.get_world_size(),
        },
    )
"""
        in after
    )
    assert "in range(2):\n        loader.sampler.set_epoch(epoch)\n" in after


def test_the_epoch_may_be_an_entry_of_a_state(tmp_path: Path) -> None:
    text = _BEFORE.replace("args.batch_size)", "args.batch_size, shuffle=True)")
    text = text.replace("for epoch in", 'state = {}\n    for state["epoch"] in')
    after = migrated(tmp_path, text.replace('f"epoch {epoch}", ', ""), batch_size="keep")
    assert 'in range(2):\n        loader.sampler.set_epoch(state["epoch"])\n' in after


def test_batches_without_a_loader_differ_by_seed(tmp_path: Path) -> None:
    text = _BEFORE.replace("for (batch,) in loader:", "for _ in range(4):").replace(
        "batch.to(device)", "torch.randn(4, 4, device=device)"
    )
    after = migrated(tmp_path, text, random_batches="reseed")
    line = "fully_shard(model)\n    torch.manual_seed(torch.initial_seed() + dist.get_rank())\n"
    assert line in after
    assert "manual_seed(torch.initial" not in migrated(tmp_path, text, random_batches="leave")


_DEVICES = {
    'model.to("cuda:0")': 'model.to("cuda")',
    "model.to(f'cuda:{args.gpu}')": 'model.to("cuda")',
    "model.cuda(args.gpu)": "model.cuda()",
    "model.cuda(0, non_blocking=True)": "model.cuda(non_blocking=True)",
    "torch.cuda.set_device(args.gpu)": 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
    "gpu = 0; model.to(gpu)": 'gpu = 0; model.to("cuda")',
    'model.to(torch.device("cuda", args.gpu))': 'model.to(torch.device("cuda"))',
    "with torch.cuda.device(args.gpu): pass": "with torch.cuda.device("
    "torch.cuda.current_device()): pass",
    "model = nn.DataParallel(model)": "",
    'os.environ["CUDA_VISIBLE_DEVICES"] = "1"': "",
    'os.environ["CUDA_VISIBLE_DEVICES"] = args.output': 'os.environ["CUDA_VISIBLE_DEVICES"] = '
    "args.output",
}


@pytest.mark.parametrize("line", _DEVICES)
def test_each_rank_uses_its_own_gpu(tmp_path: Path, line: str) -> None:
    place = "    optimizer = torch"
    after = migrated(tmp_path, _BEFORE.replace(place, f"    {line}\n{place}"), batch_size="divide")
    new = f"    {_DEVICES[line]}\n" if _DEVICES[line] else ""
    assert f"model = Net().to(device)\n{new}    for tensor in" in after


_FORMATS = {
    "model = model.to(memory_format=torch.channels_last)": "",
    "model.to(memory_format=torch.channels_last)": "",
    "net = model.to(memory_format=torch.channels_last)": "    net = model\n",
    "model.to(device, memory_format=torch.channels_last)": "    model.to(device)\n",
}


@pytest.mark.parametrize("line", _FORMATS)
def test_parameters_keep_the_default_memory_format(tmp_path: Path, line: str) -> None:
    place = "    optimizer = torch"
    after = migrated(tmp_path, _BEFORE.replace(place, f"    {line}\n{place}"), batch_size="divide")
    assert f"model = Net().to(device)\n{_FORMATS[line]}    for tensor in" in after


_MADE = {
    "weight.new_zeros(2, 2)": "torch.zeros(2, 2, dtype=weight.dtype, device=weight.device)",
    "weight.new_full((2, 2), 0.0, device=batch.device)": "torch.full((2, 2), 0.0, "
    "device=batch.device, dtype=weight.dtype)",
    "batch.new_zeros(2, 2)": "batch.new_zeros(2, 2)",
}


@pytest.mark.parametrize("made", _MADE)
def test_tensors_like_a_parameter_are_no_shards(tmp_path: Path, ranks: Ranks, made: str) -> None:
    helper = f"def start(model, batch):\n    weight = next(model.parameters())\n    return {made}\n"
    text = _BEFORE.replace("def main():", f"{helper}\n\ndef main():")
    text = text.replace("model(batch.to(device))", "(model(batch)[:2] + start(model, batch))")
    after = migrated(tmp_path, text, batch_size="keep")
    assert f"    return {_MADE[made]}\n" in after
    file = str(tmp_path / "model.pt")
    assert not report(ranks.run(after, arguments=["--output", file], process_group=False))


_FOLDERS = {
    'os.mkdir("out")': 'os.makedirs("out", exist_ok=True)',
    "os.makedirs(args.output, 0o755)": "os.makedirs(args.output, 0o755, exist_ok=True)",
    "Path(args.output).mkdir(parents=True)": "Path(args.output).mkdir(parents=True, exist_ok=True)",
    'os.makedirs("out", exist_ok=False)': 'os.makedirs("out", exist_ok=False)',
}


@pytest.mark.parametrize("line", _FOLDERS)
def test_any_rank_may_create_a_folder_first(tmp_path: Path, line: str) -> None:
    text = _BEFORE.replace(
        "import argparse", "import argparse\nimport os\nfrom pathlib import Path"
    )
    text = text.replace("    torch.manual_seed(0)\n", f"    torch.manual_seed(0)\n    {line}\n")
    after = migrated(tmp_path, text, batch_size="divide")
    assert f"    torch.manual_seed(0)\n    {_FOLDERS[line]}\n" in after


_KEPT = {
    ("model.parameters(), lr", "build(), lr"): "it does not show of which model these parameters "
    "are; call `fully_shard` on the model before this by hand",
    ("model.parameters(), lr", "model.head.parameters(), lr"): "`model.head.parameters()` does not "
    "name a whole model; call `fully_shard` on the model before this by hand",
    ("torch.optim.SGD(model.parameters(), lr=0.1)", "build(model)"): "no optimizer shows that is "
    "built from the parameters of the model; create the process group and call `fully_shard` "
    "before that by hand",
    ("    torch.manual_seed(0)", '    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")'): "all "
    "ranks would see the same GPUs; leave it to the launcher",
    ("    torch.manual_seed(0)", '    os.environ["CUDA_VISIBLE_DEVICES"] = str(args.gpu)'): "all "
    "ranks would see the same GPUs; leave it to the launcher",
    ("Net().to(device)", "Net().to(args.gpu)"): "this is the number of one GPU; use `cuda`, the "
    "rank's own, by hand",
    ("optimizer = torch", "model = nn.parallel.DistributedDataParallel(model)"): "the program "
    "trains with DDP; run `fsdplint migrate ddp`",
    (
        "    optimizer = torch",
        "    net = nn.parallel.DistributedDataParallel(model)\n    net.load_state_dict({})\n"
        "    optimizer = torch",
    ): "the program trains with DDP; run `fsdplint migrate ddp`",
    ("    torch.manual_seed(0)", "    torch.distributed.init_process_group()"): "the program "
    "starts ranks already; shard its model by hand",
    ("    torch.manual_seed(0)", "    import accelerate; accelerate.Accelerator()"): "`accelerate."
    "Accelerator` can shard the model itself; turn that on by hand",
}


@pytest.mark.parametrize("change", _KEPT)
def test_what_is_not_known_is_kept(tmp_path: Path, change: tuple[str, str]) -> None:
    plan = planned(tmp_path, _BEFORE.replace(*change))
    assert [e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept)] == [_KEPT[change]]


def test_other_scripts_that_share_a_module_do_not_change(tmp_path: Path) -> None:
    model, script = _BEFORE.split("def main():")
    (tmp_path / "net.py").write_text(model, "utf-8")
    (tmp_path / "other.py").write_text(f"from net import *\n\n\ndef main():{script}", "utf-8")
    plan = planned(tmp_path, f"from net import *\n\n\ndef main():{script}")
    assert {Path(entry.path).name for entry in plan.entries} == {"train.py"}


def test_the_plan_tells_how_to_start_the_script(tmp_path: Path) -> None:
    plan = planned(tmp_path, _BEFORE)
    found = [entry.found.what for entry in plan.of(Change) if isinstance(entry.found, Change)]
    assert (
        "shard `model` with `fully_shard` before its optimizer is built; create the process group "
        "and choose each rank's GPU; start the script with `torchrun --nproc-per-node GPUS "
        "train.py`" in found
    )


def test_imports_of_the_state_dict_helpers_are_one(tmp_path: Path) -> None:
    line = "    torch.save(model.state_dict(), args.output)\n"
    loads = "    model.load_state_dict(torch.load(args.output))\n"
    after = migrated(tmp_path, _BEFORE.replace(line, loads + line), batch_size="keep")
    assert (
        """\
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
"""
        in after
    )


def test_a_loader_of_both_kinds_is_kept(tmp_path: Path) -> None:
    text = _BEFORE.replace(
        "def main():",
        "def load(data, size):\n    return DataLoader(data, batch_size=size)\n\n\ndef main():",
    ).replace(
        "DataLoader(data, batch_size=args.batch_size)",
        "load(data, args.batch_size)\n    others = load(data, 8)",
    )
    plan = planned(tmp_path, text)
    assert [e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept)] == [
        "it also makes a loader that the model is not trained on, which each rank needs whole; "
        "make the two by separate calls by hand"
    ]


def test_a_variable_without_a_sampler_gets_one(tmp_path: Path) -> None:
    text = _BEFORE.replace("    loader =", "    sampler = None\n    loader =")
    text = text.replace("size)", "size, shuffle=(sampler is None), sampler=sampler)")
    after = migrated(tmp_path, text, batch_size="keep")
    assert (
        "    sampler = DistributedSampler(data)\n    loader = DataLoader(data, "
        "batch_size=args.batch_size, shuffle=(sampler is None), sampler=sampler)\n" in after
    )
    assert "in range(2):\n        loader.sampler.set_epoch(epoch)\n" in after


def test_ranks_start_once_a_function_has_read_the_command_line(tmp_path: Path) -> None:
    start, end = _BEFORE.index("    parser ="), _BEFORE.index("    torch.manual_seed")
    lines = _BEFORE[start:end].replace("args =", "return")
    text = _BEFORE[:start] + "    args = read()\n" + _BEFORE[end:]
    text = text.replace("def main():", f"def read():\n{lines}\n\ndef main():")
    after = migrated(tmp_path, text, batch_size="keep")
    assert "    args = read()\n    if torch.cuda.is_available():\n" in after


def test_the_given_file_is_the_script(tmp_path: Path) -> None:
    model, script = _BEFORE.split("def main():")
    guard = 'if __name__ == "__main__":\n    torch.optim.SGD(Net().parameters())\n'
    (tmp_path / "net.py").write_text(f"{model}{guard}", "utf-8")
    plan = planned(tmp_path, f"from net import *\n\n\ndef main():{script}")
    assert not plan.of(Kept)


def test_a_model_is_sharded_before_a_choice_between_its_optimizers(tmp_path: Path) -> None:
    built = "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    indented = f"    {built}"
    other = indented.replace("torch.optim.SGD", "Slow")
    choice = f"    if args.output:\n{indented}    else:\n{other}"
    text = _BEFORE.replace(built, choice).replace(
        "def main", "class Slow(torch.optim.SGD):\n    pass\n\n\ndef main"
    )
    after = migrated(tmp_path, text, batch_size="keep")
    assert f"    fully_shard(model)\n{choice}" in after


_SAVES = {
    """\
    torch.save(state, "new.pt")
    if args.output:
        shutil.copyfile("new.pt", args.output)
    print("saved")
""": """\
    if dist.get_rank() == 0:
        torch.save(state, "new.pt")
        if args.output:
            shutil.copyfile("new.pt", args.output)
    if dist.get_rank() == 0:
        print("saved")
""",
    """\
    with open("new.pt", "wb") as file:
        torch.save(state, file)
""": """\
    if dist.get_rank() == 0:
        with open("new.pt", "wb") as file:
            torch.save(state, file)
""",
    """\
    if args.output or args.batch_size:
        # the old one
        os.remove(args.output)
""": """\
    if (args.output or args.batch_size) and dist.get_rank() == 0:
        # the old one
        os.remove(args.output)
""",
    """\
    # the end
    print("trained")
    # of all
    print("on", torch.cuda.device_count())
""": """\
    # the end
    if dist.get_rank() == 0:
        print("trained")
        # of all
        print("on", torch.cuda.device_count())
""",
    """\
    if args.batch_size % 2 == 0:
        print("even")
""": """\
    if args.batch_size % 2 == 0 and dist.get_rank() == 0:
        print("even")
""",
}


@pytest.mark.parametrize("lines", _SAVES)
def test_one_rank_changes_files_and_prints(tmp_path: Path, lines: str) -> None:
    text = _BEFORE.replace("import argparse", "import argparse\nimport os\nimport shutil")
    saved = "    torch.save(model.state_dict(), args.output)\n"
    text = text.replace(saved, f'    state = {{"size": args.batch_size}}\n{lines}')
    after = migrated(tmp_path, text, batch_size="keep")
    assert f"args.batch_size}}\n{_SAVES[lines]}    dist.destroy_process_group()\n" in after


def test_a_load_waits_for_the_rank_that_writes_its_file(tmp_path: Path) -> None:
    text = _BEFORE.replace(
        "args.output)\n", "args.output)\n    model.load_state_dict(torch.load(args.output))\n"
    )
    after = migrated(tmp_path, text, batch_size="keep")
    saved = "        torch.save(state_dict, args.output)\n"
    load = "    set_model_state_dict(\n        model,\n        torch.load(args.output),\n"
    assert f"{saved}    dist.barrier()\n{load}" in after


_SIZED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def loss_of(outputs, size):
    return (outputs - torch.ones({size}, 4)).square().mean()


def train(batch_size=4):
    data = TensorDataset(torch.randn(16, 4))
    loader = DataLoader(data, batch_size=batch_size)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * batch_size)
    for (batch,) in loader:
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{{len(data) // batch_size}} batches of %d" % batch_size)


if __name__ == "__main__":
    train()
"""
_PER_RANK = "batch_size=batch_size // dist.get_world_size()"


@pytest.mark.parametrize(
    ("size", "loss", "first"),
    [
        ("1", "loss_of(model(batch), batch_size)", "divide"),
        ("size", "loss_of(model(batch), batch_size)", "keep"),
        ("size", "loss_of(model(batch), size=len(batch))", "divide"),
        ("1", "model(batch).view(batch_size, 2, 2).square().mean()", "keep"),
        ("1", "model(batch).square().sum() / batch_size", "keep"),
        ("1", "model(batch).square().mean() if len(batch) == batch_size else 0", "keep"),
    ],
)
def test_a_batch_size_that_other_code_needs_is_not_divided(
    tmp_path: Path, size: str, loss: str, first: str
) -> None:
    text = _SIZED.format(size=size, loss=loss)
    (entry,) = plan_of(SINGLE, tmp_path, text).of(Question)
    assert isinstance(entry.found, Question)
    assert entry.found.choices[0] == first
    divided = plan_of(SINGLE, tmp_path, text, {entry.key: "divide"})
    assert divided.is_complete == (first == "divide")
    assert (_PER_RANK in only_change(plan_of(SINGLE, tmp_path, text, {entry.key: first}))) == (
        first == "divide"
    )
