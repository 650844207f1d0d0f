"""A one-GPU script becomes one rank of several, which shard its model and divide its data."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from plans import answered, only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.changed_in_forward import INSIDE
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


_SHUFFLED = _BEFORE.replace("args.batch_size)", "args.batch_size, shuffle=True)")
_COUNTS = "loader.sampler.set_epoch(loader.sampler.epoch + 1)\n"


def test_a_sampler_counts_the_epochs_of_a_while_loop(tmp_path: Path) -> None:
    text = _SHUFFLED.replace("for epoch in range(2):", "epoch = 0\n    while epoch < 2:")
    after = migrated(
        tmp_path,
        text.replace("optimizer.step()", "optimizer.step(); epoch += 1"),
        batch_size="keep",
    )
    assert f"while epoch < 2:\n        {_COUNTS}        for (batch,) in loader:\n" in after


def test_every_loop_that_trains_on_a_loader_sets_the_epoch(tmp_path: Path) -> None:
    loop = _SHUFFLED[_SHUFFLED.index("    for epoch in") : _SHUFFLED.index("        print(f")]
    after = migrated(
        tmp_path,
        _SHUFFLED.replace(loop, loop.replace("epoch", "warm_up") + loop),
        batch_size="keep",
    )
    assert after.count("in range(2):\n        loader.sampler.set_epoch(epoch)\n") == 1
    assert after.count("in range(2):\n        loader.sampler.set_epoch(warm_up)\n") == 1


def test_a_loader_that_each_epoch_makes_is_kept(tmp_path: Path) -> None:
    made = "    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)\n"
    epoch = "    for epoch in range(2):\n"
    text = _SHUFFLED.replace(made, "").replace(epoch, f"{epoch}    {made}")
    (tmp_path / "train.py").write_text(text)
    plan = answered(SINGLE, tmp_path / "train.py")
    (reason,) = (e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept))
    assert reason.startswith("each pass of a loop makes this loader, ")


def test_a_loop_over_several_loaders_asks_for_their_sampler(tmp_path: Path) -> None:
    text = _SHUFFLED.replace(
        "    for epoch in range(2):\n        for (batch,) in loader:\n",
        "    other = DataLoader(data, batch_size=2)\n    def batches(loader):\n"
        "        for (batch,) in loader:\n            yield batch\n"
        "    for _ in range(2):\n        print(len(list(batches(other))))\n"
        "        for batch in batches(loader):\n",
    )
    after = migrated(tmp_path, text.replace('f"epoch {epoch}", ', ""), batch_size="keep")
    assert (
        "def batches(loader):\n        if isinstance(loader.sampler, DistributedSampler):\n"
        f"            {_COUNTS}        for (batch,) in loader:\n"
    ) in after


def test_batches_without_a_loader_differ_by_seed(tmp_path: Path) -> None:
    text = _BEFORE.replace("for (batch,) in loader:", "for _ in range(4):").replace(
        "batch.to(device)", "torch.randn(4, 4, device=device)"
    )
    after = migrated(tmp_path, text, random_batches="reseed")
    line = "fully_shard(model)\n    torch.manual_seed(torch.initial_seed() + dist.get_rank())\n"
    assert line in after
    assert "manual_seed(torch.initial" not in migrated(tmp_path, text, random_batches="leave")
    plan = answered(SINGLE, tmp_path / "train.py", random_batches="reseed")
    found = [each.found for each in plan.of(Change) if isinstance(each.found, Change)]
    assert (
        "each rank goes through all of the data, and a step uses one batch of each rank; "
        "random numbers after this differ from those of the program before"
    ) in [each.differs for each in found]


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
    "nn.parallel.data_parallel(model, data, range(args.gpu))": "model(data)",
    "nn.parallel.data_parallel(model, (data,), range(args.gpu))": "model(data,)",
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


def test_a_model_that_is_copied_to_other_gpus_is_kept(tmp_path: Path) -> None:
    copied = "copies = nn.parallel.replicate(model, [0, 1])"
    text = _BEFORE.replace("            loss = ", f"            {copied}\n            loss = ")
    (tmp_path / "train.py").write_text(text)
    (kept,) = answered(SINGLE, tmp_path / "train.py").of(Kept)
    assert isinstance(kept.found, Kept)
    assert kept.found.reason == "it would copy a sharded model to other GPUs; remove it"


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


_WRITTEN = {
    'log = open("log.txt", "w")': 'log = open("log.txt" if dist.get_rank() == 0 else os.devnull, '
    '"w")',
    'open("log.txt")': 'open("log.txt")',
    'logging.basicConfig(filename="log.txt")': 'logging.basicConfig(filename="log.txt" if '
    "dist.get_rank() == 0 else os.devnull)",
    'handler = logging.FileHandler("log.txt")': 'handler = logging.FileHandler("log.txt" if '
    "dist.get_rank() == 0 else os.devnull)",
    'writer = SummaryWriter("runs")': 'writer = SummaryWriter("runs" if dist.get_rank() == 0 else '
    "tempfile.mkdtemp())",
    'writer = SummaryWriter(comment="a")': 'writer = SummaryWriter(comment="a", log_dir=None if '
    "dist.get_rank() == 0 else tempfile.mkdtemp())",
    'np.save("a.npy", loss.item())': "if dist.get_rank() == 0:\n        "
    'np.save("a.npy", loss.item())',
    'Path("a").write_text("a")': 'if dist.get_rank() == 0:\n        Path("a").write_text("a")',
    'save_image(model(batch), "a.png")': "result = model(batch)\n    if dist.get_rank() == 0:\n"
    '        save_image(result, "a.png")',
    'picture = Image.new("L", (1, 1)); picture.save("a.png")': "picture = Image.new("
    '"L", (1, 1)); picture.save("a.png")',
    'Image.new("L", (1, 1)).save("a.png")': 'if dist.get_rank() == 0:\n        Image.new("L", '
    '(1, 1)).save("a.png")',
    'table.to_csv("a.csv")': 'if dist.get_rank() == 0:\n        table.to_csv("a.csv")',
}
_LIBRARIES = """\
import logging
import os
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.tensorboard import SummaryWriter
from torchvision.utils import save_image
"""


@pytest.mark.parametrize("line", _WRITTEN)
def test_one_rank_writes_a_file(tmp_path: Path, line: str) -> None:
    text = _LIBRARIES + _BEFORE.replace("    torch.save(", f"    {line}\n    torch.save(")
    after = migrated(tmp_path, text, batch_size="keep")
    assert f"item())\n    {_WRITTEN[line]}\n    state_dict =" in after


def test_a_file_that_is_read_as_well_is_kept(tmp_path: Path) -> None:
    plan = planned(
        tmp_path, _BEFORE.replace("    torch.save(", '    open("a", "w+")\n    torch.save(')
    )
    assert [e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept)] == [
        "all ranks write this file; open it on rank 0 only by hand"
    ]


def test_a_helper_that_other_scripts_use_asks_the_environment(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        'def note(path, text):\n    with open(path, "a") as file:\n        file.write(text)\n',
        "utf-8",
    )
    text = f"import tools\n{_BEFORE}".replace(
        "    torch.save(", '    tools.note("a", "b")\n    torch.save('
    )
    plan = planned(tmp_path, text, {})
    while questions := plan.of(Question):
        plan = planned(tmp_path, text, {each.key: "keep" for each in questions})
    (after,) = [after.text for before, after in plan.files if before.path.endswith("tools.py")]
    assert not plan.of(Kept)
    assert (
        'with open(path if os.environ.get("RANK", "0") == "0" else os.devnull, "a") as file:'
        in after
    )


_DECIDED = {
    """\
        if total < best:
            best = total
            torch.save(model.state_dict(), "best.pt")
        else:
            break
""": "        total = mean_over_ranks(total)\n        if total < best:\n",
    """\
        if total / 4 < 0.1:
            break
""": "        if mean_over_ranks(total / 4) < 0.1:\n",
    """\
        if not math.isfinite(total):
            raise SystemExit
""": "        total = mean_over_ranks(total)\n        if not math.isfinite(total):\n",
    """\
        if time.time() - began > 60:
            break
""": "        if mean_over_ranks(time.time() - began) > 60:\n",
    """\
        schedule.step(total)
""": "        total = mean_over_ranks(total)\n        schedule.step(total)\n",
    """\
        if stops(total):
            break
""": "    value = mean_over_ranks(value)\n    return value < 0.1\n",
    """\
        if epoch > 3:
            break
""": "        if epoch > 3:\n",
}


def _deciding(lines: str) -> str:
    text = _BEFORE.replace(
        "    for epoch in",
        "    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n"
        '    best, began = float("inf"), time.time()\n    for epoch in',
    )
    text = text.replace("        for (batch", "        total = 0.0\n        for (batch")
    text = text.replace("step()\n", f"step()\n            total += loss.item()\n{lines}")
    helper = "def stops(value):\n    return value < 0.1\n"
    return f"import math\nimport time\n{text}".replace("def main", f"{helper}\n\ndef main")


@pytest.mark.parametrize("lines", _DECIDED)
def test_ranks_decide_alike(tmp_path: Path, lines: str) -> None:
    after = migrated(tmp_path, _deciding(lines), batch_size="keep")
    assert _DECIDED[lines] in after
    own = "mean_over_ranks(" in _DECIDED[lines]
    assert after.count("mean_over_ranks(") == 2 * own


def test_ranks_that_stop_early_stop_together(tmp_path: Path, ranks: Ranks) -> None:
    text = _deciding("        if total > 1.0:\n            break\n").replace(
        "epoch in range(2)", "epoch in range(20)"
    )
    scales = "torch.tensor([[0.1], [5.0]] * 8)"
    text = text.replace("torch.randn(16, 4)", f"torch.randn(16, 4) * {scales}")
    text = text.replace("lr=0.1", "lr=1e-4")
    after = migrated(tmp_path, text, batch_size="keep")
    file = str(tmp_path / "model.pt")
    assert not report(ranks.run(after, arguments=["--output", file], process_group=False))


_NORMED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for x, y in loader:
            output = model(x)
            guess = output.argmax(1)
            if output.max().item() > 100:
                print("large")
            correct = correct + (guess == y).sum().item()
            total += len(y)
    return correct / total


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 8) * 3 + 1
    y = (x[:, 0] * x[:, 1] > 0).long()
    data = TensorDataset(x[:128], y[:128])
    loader = DataLoader(data, batch_size=4)
    others = DataLoader(TensorDataset(x[128:], y[128:]), batch_size=32)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, state = 0.0, {{"best": 0.0}}
    for epoch in range(6):
        model.train()
        for a, b in loader:
            loss = nn.functional.cross_entropy(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = evaluate(model, others)
{decides}

if __name__ == "__main__":
    main()
"""
_SAVES_BEST = """\
        if score > best:
            best = score
            torch.save(model.state_dict(), "best.pt")
"""
_SCORED = {
    _SAVES_BEST: "        score = mean_over_ranks(score)\n        if score > best:\n",
    """\
        better = score > best
        if better:
            best = score
            torch.save(model.state_dict(), "best.pt")
""": "        score = mean_over_ranks(score)\n        better = score > best\n",
    """\
        def keep():
            state["score"] = score

        keep()
        if state["score"] > state["best"]:
            state["best"] = state["score"]
            torch.save(model.state_dict(), "best.pt")
""": '        if mean_over_ranks(state["score"]) > mean_over_ranks(state["best"]):\n',
    """\
        score = torch.tensor(score)
        if score > best:
            best = score.item()
            torch.save(model.state_dict(), "best.pt")
""": "        best = mean_over_ranks(best)\n        if mean_over_ranks(score) > best:\n",
}


@pytest.mark.parametrize("decides", _SCORED)
def test_ranks_decide_alike_by_an_evaluation(tmp_path: Path, decides: str) -> None:
    after = migrated(tmp_path, _NORMED.format(decides=decides), batch_size="divide")
    mended = _SCORED[decides]
    assert mended in after
    assert after.count("mean_over_ranks(") == 1 + mended.count("mean_over_ranks(")
    assert "            if dist.get_rank() == 0:\n                torch.save(state_dict, " in after


_GUESSING = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 2))

    def forward(self, x):
        return self.layers(x)

    def guess(self, x):
        return self.layers(x)


"""


def test_ranks_decide_alike_by_what_a_method_of_the_model_computes(tmp_path: Path) -> None:
    text = _NORMED.format(decides=_SAVES_BEST).replace("output = model(", "output = model.guess(")
    text = text.replace("def evaluate", f"{_GUESSING}def evaluate")
    text = re.sub(r"model = nn.*", "model = Net()", text)
    after = migrated(tmp_path, text, batch_size="divide")
    assert 'register_fsdp_forward_method(model, "guess")' in after
    assert _SCORED[_SAVES_BEST] in after


def test_a_variable_that_is_only_called_alike_stays_as_it_is(tmp_path: Path) -> None:
    text = _NORMED.format(decides=_SAVES_BEST)
    spent = "def spent(best):\n    if best > 60:\n        best = best / 60\n    return best\n\n\n"
    text = text.replace("def evaluate", f"{spent}def evaluate")
    text = text.replace("    model.eval()\n", "    model.eval()\n    print(spent(time.time()))\n")
    after = migrated(tmp_path, f"import time\n\n{text}", batch_size="divide")
    assert spent in after and _SCORED[_SAVES_BEST] in after


def test_ranks_decide_alike_what_a_function_gets(tmp_path: Path) -> None:
    save = '    if better:\n        torch.save(model.state_dict(), "best.pt")\n'
    decides = "        improved = score > best\n        save(model, improved)\n"
    text = _NORMED.format(decides=decides)
    text = text.replace("def evaluate", f"def save(model, better):\n{save}\n\ndef evaluate")
    after = migrated(tmp_path, text, batch_size="divide")
    assert "        score = mean_over_ranks(score)\n        improved = score > best\n" in after


def test_ranks_with_other_statistics_save_together(tmp_path: Path, ranks: Ranks) -> None:
    text = _NORMED.format(decides=_SAVES_BEST).replace('"best.pt"', repr(str(tmp_path / "best.pt")))
    after = migrated(tmp_path, text, batch_size="divide")
    assert not report(ranks.run(after, process_group=False))


@pytest.mark.parametrize(
    "device", ['"cuda:" + str(number)', '"cuda:%d" % number', '"cuda:{}".format(number)']
)
def test_the_name_of_a_gpu_may_be_composed(tmp_path: Path, device: str) -> None:
    text = _BEFORE.replace('"cuda:0" if', f"{device} if").replace(
        "    args =", "    number = 0\n    args ="
    )
    after = migrated(tmp_path, text, batch_size="keep")
    assert 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n' in after


def test_a_model_is_sharded_before_the_loop_that_trains_it(tmp_path: Path) -> None:
    text = _BEFORE.replace("    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
    text = text.replace(
        "        for (batch,) in loader:\n",
        "        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "        for (batch,) in loader:\n",
    )
    after = migrated(tmp_path, text, batch_size="keep")
    assert "    fully_shard(model)\n    for epoch in range(2):\n" in after


def test_a_model_of_each_pass_is_sharded_in_the_loop(tmp_path: Path) -> None:
    text = _BEFORE.replace("    model = Net().to(device)\n", "")
    text = text.replace("    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
    text = text.replace(
        "        for (batch,) in loader:\n",
        "        model = Net().to(device)\n"
        "        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "        for (batch,) in loader:\n",
    )
    after = migrated(tmp_path, text, batch_size="keep")
    assert "        fully_shard(model)\n        optimizer = " in after


_AVERAGES = {
    "total / len(loader.dataset)": "total / len(loader.sampler)",
    "100.0 * total / len(data)": "100.0 * total / len(loader.sampler)",
    "total / len(loader)": "total / len(loader)",
    "epoch / len(data)": "epoch / len(data)",
}


@pytest.mark.parametrize("average", _AVERAGES)
def test_sums_of_a_rank_are_divided_by_its_samples(tmp_path: Path, average: str) -> None:
    after = migrated(tmp_path, _deciding(f"        print({average})\n"), batch_size="keep")
    assert f"            print({_AVERAGES[average]})\n" in after


def test_a_state_is_loaded_after_an_evaluation(tmp_path: Path, ranks: Ranks) -> None:
    lines = """\
    with torch.no_grad():
        model(batch.to(device))
    model.load_state_dict(torch.load(args.output))
"""
    text = _BEFORE.replace("args.output)\n", f"args.output)\n{lines}")
    after = migrated(tmp_path, text, batch_size="keep")
    assert "    model.reshard()\n" in after
    file = str(tmp_path / "model.pt")
    assert not report(ranks.run(after, arguments=["--output", file], process_group=False))


def test_a_dataset_that_takes_no_sampler_is_kept(tmp_path: Path) -> None:
    text = _BEFORE.replace(
        "def main",
        "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n"
        "        yield torch.randn(4)\n\n\ndef main",
    ).replace("TensorDataset(torch.randn(16, 4))", "Stream()")
    plan = planned(tmp_path, text)
    assert [e.found.reason for e in plan.of(Kept) if isinstance(e.found, Kept)] == [
        "an `IterableDataset` takes no sampler; have its `__iter__` give each rank its part by hand"
    ]


_HANDLERS = {"pass": 0, "shutil.rmtree(args.output)": 1}


@pytest.mark.parametrize("handler", _HANDLERS)
def test_a_folder_whose_error_is_handled_is_kept(tmp_path: Path, handler: str) -> None:
    lines = f"    try:\n        os.mkdir(args.output)\n    except OSError:\n        {handler}\n"
    text = _BEFORE.replace("import argparse", "import argparse\nimport os\nimport shutil")
    text = text.replace("    torch.manual_seed(0)\n", f"    torch.manual_seed(0)\n{lines}")
    assert len(planned(tmp_path, text).of(Kept)) == _HANDLERS[handler]


def test_a_state_of_the_program_itself_needs_no_file(tmp_path: Path) -> None:
    line = "    model.load_state_dict({**model.state_dict()})\n"
    text = _BEFORE.replace("args.output)\n", f"args.output)\n{line}")
    assert "barrier" not in migrated(tmp_path, text, batch_size="keep")


_DOWNLOADED = """\
import os
from urllib.request import urlretrieve

import torch
from torchvision.datasets import MNIST


def corpus(path):
{corpus}


def main():
    text = corpus("corpus.txt")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{main}
    for batch in (torch.ones(2, 4), torch.zeros(2, 4)):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
_TURNS = [
    (
        "    return MNIST(path, download=True)",
        "    if dist.get_rank() != 0:\n        dist.barrier()\n"
        "    dataset = MNIST(path, download=True)\n"
        "    if dist.get_rank() == 0:\n        dist.barrier()\n"
        "    return dataset\n",
    ),
    (
        "    if not os.path.exists(path):\n        urlretrieve('x', path)\n    return path",
        "    if dist.get_rank() != 0:\n        dist.barrier()\n"
        "    if not os.path.exists(path):\n        urlretrieve('x', path)\n"
        "    if dist.get_rank() == 0:\n        dist.barrier()\n"
        "    return path\n",
    ),
    (
        "    if os.path.exists(path):\n        words = json.load(open(path))\n    else:\n"
        "        words = build()\n        json.dump(words, open(path, 'w'))\n    return words",
        "    if dist.get_rank() != 0:\n        dist.barrier()\n"
        "    if os.path.exists(path):\n        words = json.load(open(path))\n    else:\n"
        "        words = build()\n        json.dump("
        "words, open(path if dist.get_rank() == 0 else os.devnull, 'w'))\n"
        "    if dist.get_rank() == 0:\n        dist.barrier()\n"
        "    return words\n",
    ),
    (
        "    path = Path(path)\n    if not path.is_file():\n        prepare(path)\n    return path",
        "    path = Path(path)\n    if dist.get_rank() != 0:\n        dist.barrier()\n"
        "    if not path.is_file():\n        prepare(path)\n"
        "    if dist.get_rank() == 0:\n        dist.barrier()\n"
        "    return path\n",
    ),
    (
        "    if not os.path.exists(path):\n        print(path)\n    return path",
        "    if not os.path.exists(path) and dist.get_rank() == 0:\n        print(path)\n"
        "    return path\n",
    ),
    ("    return MNIST(path, download=False)", "    return MNIST(path, download=False)\n"),
]


@pytest.mark.parametrize(("before", "after"), _TURNS)
def test_rank_0_downloads_first(tmp_path: Path, before: str, after: str) -> None:
    text = _DOWNLOADED.format(corpus=before, main="")
    assert f"def corpus(path):\n{after}" in migrated(tmp_path, text, random_batches="leave")


def test_downloads_that_follow_each_other_have_one_turn(tmp_path: Path) -> None:
    lines = "    first = MNIST('a', download=True)\n    second = MNIST('b', download=True)"
    text = _DOWNLOADED.format(corpus="    return path", main=lines)
    assert (
        f"    if dist.get_rank() != 0:\n        dist.barrier()\n{lines}\n"
        "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    ) in migrated(tmp_path, text, random_batches="leave")


_EARLY = [
    "    if os.path.exists(path):\n        return path\n    else:\n        urlretrieve('x', path)",
    "    if os.path.exists(path):\n        return torch.load(path)\n    torch.save(build(), path)",
]


@pytest.mark.parametrize("body", _EARLY)
def test_a_download_that_may_return_early_is_kept(tmp_path: Path, body: str) -> None:
    text = _DOWNLOADED.format(corpus=body, main="")
    (entry,) = plan_of(SINGLE, tmp_path, text).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.reason == (
        "the code around it may leave before its end; let rank 0 do this first, and the other "
        "ranks wait, by hand"
    )


_PLAYED = """\
import random

import numpy as np
import torch
from torch import nn


class Game:
    def reset(self):
        return torch.randn(4)

    def step(self, action):
        return torch.randn(4), 1.0, random.random() < 0.1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            IN_FORWARD
                continue
            x = block(x)
        return x


SEED
game, net, seen, ends = Game(), Net(), [], []
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for episode in range(4):
    state, done = game.reset(), False
    LOOP:
        ACT
            action = net(state).argmax().item()
        state, reward, done = game.step(action)
        seen.append(state)
        if len(seen) > 8:
            net(torch.stack(seen[-8:])).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        BREAK
torch.save(net.state_dict(), "net.pt")
"""
_ALIKE = {
    "IN_FORWARD": "if x is None:",
    "LOOP": "for _ in range(9)",
    "ACT": "if episode > 1:",
    "SEED": "random.seed(0)",
    "BREAK": "if done: state = game.reset()",
}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, None),
        ({"LOOP": "while not done"}, "not done"),
        ({"BREAK": "if done: break"}, "done"),
        ({"ACT": "if random.random() < 0.5:"}, None),
        (
            {"ACT": "if random.random() < 0.5:", "SEED": "torch.manual_seed(0)"},
            "random.random() < 0.5",
        ),
        ({"IN_FORWARD": "if np.random.rand() < 0.1:"}, "np.random.rand() < 0.1"),
        ({"IN_FORWARD": "if np.random.rand() < 0.1:", "SEED": "np.random.seed(0)"}, None),
        ({"BREAK": "if len(seen) < 4: break"}, None),
        ({"BREAK": "if done: ends.append(0)\n        if len(ends) > 4: break"}, None),
    ],
)
def test_what_one_rank_decides_by_its_environment_or_by_chance(
    tmp_path: Path, change: dict[str, str], kept: str | None
) -> None:
    text = _PLAYED
    for key, value in {**_ALIKE, **change}.items():
        text = text.replace(key, value)
    (tmp_path / "train.py").write_text(text)
    plan = answered(SINGLE, tmp_path / "train.py", random_batches="leave")
    found = {each.found.what for each in plan.of(Kept) if isinstance(each.found, Kept)}
    assert found == ({f"`{kept}`"} if kept else set())


_TRIED = """\
    try:
{download}        for batch in (torch.ones(2, 4), torch.zeros(2, 4)):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ranks_do_not_wait_for_a_download_while_they_train(tmp_path: Path) -> None:
    before = _DOWNLOADED.format(corpus="    return path", main="")
    loop = before[before.index("    for batch") : before.index("\n\nif __name__")]
    data = "        data = MNIST('a', download=True)\n"
    text = before.replace(loop, _TRIED.format(download=data))
    turn = (
        "        if dist.get_rank() != 0:\n            dist.barrier()\n"
        f"{data}        if dist.get_rank() == 0:\n            dist.barrier()\n"
    )
    after = migrated(tmp_path, text, random_batches="leave")
    assert f"    try:\n{turn}        for batch" in after


def test_a_call_that_downloads_and_trains_is_kept(tmp_path: Path) -> None:
    text = _DOWNLOADED.format(corpus="    return path", main="")
    text = text.replace("def main():", "def main(download):")
    text = text.replace("    main()\n", "    main(download=True)\n")
    (entry,) = plan_of(SINGLE, tmp_path, text).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.reason == (
        "it trains, too; let rank 0 do this first, and the other ranks wait, by hand"
    )


_FILLED = """\
        self.net = nn.Sequential()
        for place, (size, _) in enumerate(zip([4], [4])):
            self.net.add_module(name=f"layer{place}", module=nn.Linear(size, 4))

    def sample(self, x):
        return self.net(x)
"""


def test_a_method_is_registered_that_may_use_parameters(tmp_path: Path) -> None:
    text = _BEFORE.replace("        self.head = nn.Linear(4, 2)\n", _FILLED)
    text = text.replace("return self.head(x)", "return self.net(x)")
    text = text.replace(
        "        print(", "        model.sample(torch.randn(1, 4))\n        print(", 1
    )
    after = migrated(tmp_path, text, batch_size="divide")
    assert '    fully_shard(model)\n    register_fsdp_forward_method(model, "sample")\n' in after


_PRINTED = [
    'print("mean", torch.mean(torch.tensor([1.0, 2.0])))',
    'print(f"{np.log(2.0):.2f} {loss.item()}")',
]


@pytest.mark.parametrize("line", _PRINTED)
def test_one_rank_prints_what_a_library_computes(tmp_path: Path, line: str) -> None:
    text = _BEFORE.replace("import torch\n", "import numpy as np\nimport torch\n", 1)
    after = migrated(
        tmp_path, text.replace('print(f"epoch {epoch}", loss.item())', line), batch_size="divide"
    )
    assert f"        if dist.get_rank() == 0:\n            {line}\n" in after


def test_all_ranks_compute_a_norm_to_print(tmp_path: Path) -> None:
    line = "print(torch.nn.utils.clip_grad_norm_(parameters, 1.0))"
    text = _BEFORE.replace(
        "            loss.backward()\n", f"            loss.backward()\n            {line}\n"
    )
    text = text.replace(
        "    for epoch", "    parameters = list(model.parameters())\n    for epoch", 1
    )
    after = migrated(tmp_path, text, batch_size="divide")
    assert "            loss.backward()\n            print(torch.nn.utils.clip_grad_norm_(" in after


_EVALUATED = """\
    right = 0
    with torch.no_grad():
        for (batch,) in loader:
            outputs = model(batch)
            right += (outputs.argmax(1) == 0).sum().item()
    accuracy = right / len(data)
    best = 0
    if accuracy > best:
        torch.save(model.state_dict(), args.output)
"""


def test_ranks_decide_alike_by_what_the_model_computes(tmp_path: Path) -> None:
    text = _BEFORE.replace("    torch.save(model.state_dict(), args.output)\n", _EVALUATED)
    lines = "    accuracy = mean_over_ranks(accuracy)\n    if accuracy > best:\n"
    assert lines in migrated(tmp_path, text, batch_size="divide")


def test_a_variable_whose_methods_are_used_stays_what_it_is(tmp_path: Path) -> None:
    evaluated = _EVALUATED.replace("sum().item()", "sum()").replace("save(", "save((")
    evaluated = evaluated.replace("args.output", "accuracy.cpu()), args.output")
    text = _BEFORE.replace("    torch.save(model.state_dict(), args.output)\n", evaluated)
    after = migrated(tmp_path, text, batch_size="divide")
    assert "    if mean_over_ranks(accuracy) > best:\n" in after


def test_a_scripted_model_is_kept(tmp_path: Path) -> None:
    text = _BEFORE.replace("Net().to(device)", "torch.jit.script(Net().to(device))")
    (entry,) = plan_of(SINGLE, tmp_path, text).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.reason == (
        "`fully_shard` takes no module of TorchScript; shard the module itself, without this call, "
        "by hand"
    )


def test_samples_are_cached_by_each_rank(tmp_path: Path) -> None:
    cached = (
        "class Cached(torch.utils.data.Dataset):\n    def __getitem__(self, index):\n"
        "        return self.features(index)\n\n    def features(self, path):\n"
        "        if not os.path.exists(path):\n            prepare(path)\n"
        "        return torch.load(path)\n\n\ndef main():"
    )
    text = _DOWNLOADED.format(corpus="    return path", main="").replace("def main():", cached)
    assert ".barrier()" not in migrated(tmp_path, text, random_batches="leave")


def test_another_script_may_create_files_as_it_does(tmp_path: Path) -> None:
    guarded = (
        "if __name__ == '__main__':\n    import os\n\n    if not os.path.exists('words'):\n"
        "        prepare('words')\n"
    )
    (tmp_path / "words.py").write_text(f"def prepare(path):\n    pass\n\n\n{guarded}", "utf-8")
    plan = planned(tmp_path, f"import words\n{_BEFORE}")
    assert guarded not in "".join(after.text for _, after in plan.files)
    assert not plan.of(Kept)


def test_ranks_know_the_size_of_what_they_compute(tmp_path: Path) -> None:
    sized = "            outputs = model(batch)\n            if outputs.size(0) < 2:\n"
    sized += "                break\n"
    text = _BEFORE.replace("            loss =", f"{sized}            loss =")
    assert "            if outputs.size(0) < 2:\n" in migrated(tmp_path, text, batch_size="divide")


def test_a_question_to_the_user_is_kept(tmp_path: Path) -> None:
    text = _BEFORE.replace(
        "    torch.manual_seed(0)\n", "    if input('y/n') == 'n':\n        return\n"
    )
    (entry,) = plan_of(SINGLE, tmp_path, text).of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.what == "`input('y/n')`"


def test_a_loader_may_be_drawn_from_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(
        "def forever(loader):\n    while True:\n        yield from loader\n", "utf-8"
    )
    text = _BEFORE.replace("batch_size=args.batch_size)", "batch_size=2, shuffle=True)")
    text = text.replace(
        "        for (batch,) in loader:", "        for (batch,) in forever(loader):"
    )
    (tmp_path / "train.py").write_text(f"from forever import forever\n{text}", "utf-8")
    plan = answered(SINGLE, tmp_path / "train.py")
    assert plan.is_complete
    assert "set_epoch(" in "".join(after.text for _, after in plan.files)


def test_a_state_with_a_sharded_part_is_kept(tmp_path: Path) -> None:
    lines = "    whole = Net()\n    model = Net().to(device)\n    model = model.head\n"
    text = _BEFORE.replace("    model = Net().to(device)\n", lines)
    text = text.replace("    torch.save(model", "    whole.head = model\n    torch.save(whole")
    (tmp_path / "train.py").write_text(text, "utf-8")
    (entry,) = answered(SINGLE, tmp_path / "train.py").of(Kept)
    assert isinstance(entry.found, Kept)
    assert entry.found.what == "`whole.state_dict()`"


_SHARED = """\
import torch


def save(model, path):
    torch.save(model.state_dict(), path)


def load(model, path):
    model.load_state_dict(torch.load(path))
"""
_GUESSES = """\
import sys

import torch
from files import load, save

if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    save(model, sys.argv[1])
    load(model, sys.argv[1])
"""


@pytest.mark.parametrize("uses", [False, True])
def test_functions_of_states_still_work_in_scripts_without_ranks(
    tmp_path: Path, ranks: Ranks, uses: bool
) -> None:
    (tmp_path / "files.py").write_text(_SHARED)
    if uses:
        (tmp_path / "guess.py").write_text(_GUESSES)
    text = f"import files\n{_BEFORE}".replace(
        "    torch.save(model.state_dict(), args.output)\n",
        "    files.save(model, args.output)\n    files.load(model, args.output)\n",
    )
    (tmp_path / "train.py").write_text(text)
    plan = answered(SINGLE, tmp_path / "train.py")
    assert plan.is_complete
    (after,) = [after for before, after in plan.files if before.path.endswith("files.py")]
    assert ("if not dist.is_initialized() or dist.get_rank() == 0:" in after.text) is uses
    assert ("broadcast_from_rank0" in after.text) is not uses
    if uses:
        (tmp_path / "files.py").write_text(after.text)
        text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{_GUESSES}"
        arguments = [str(tmp_path / "guess.pt")]
        assert not report(ranks.run(text, world_size=1, arguments=arguments, process_group=False))


_LOADED = """\
from torch.utils.data import DataLoader


def loader_of(data, size):
    return DataLoader(data, batch_size=size, shuffle=True)
"""
_COUNTED = """\
from files import loader_of

if __name__ == "__main__":
    loader = loader_of(range(16), 4)
    assert len(loader) == 4
    assert sorted(each.item() for batch in loader for each in batch) == [*range(16)]
"""


def test_a_loader_still_works_in_scripts_without_ranks(tmp_path: Path, ranks: Ranks) -> None:
    (tmp_path / "files.py").write_text(_LOADED)
    (tmp_path / "count.py").write_text(_COUNTED)
    text = _BEFORE.replace("DataLoader(data, batch_size=args.", "loader_of(data, args.")
    (tmp_path / "train.py").write_text(f"from files import loader_of\n{text}")
    plan = answered(SINGLE, tmp_path / "train.py", batch_size="divide")
    assert plan.is_complete
    for before, after in plan.files:
        Path(before.path).write_text(after.text)
    files, script = ((tmp_path / name).read_text() for name in ("files.py", "train.py"))
    assert files.endswith(
        "    return DataLoader(\n"
        "        data,\n"
        "        batch_size=size // (dist.get_world_size() if dist.is_initialized() else 1),\n"
        "        shuffle=not dist.is_initialized(),\n"
        "        sampler=DistributedSampler(data) if dist.is_initialized() else None,\n"
        "    )\n"
    )
    assert "        loader.sampler.set_epoch(epoch)\n" in script
    again = answered(SINGLE, tmp_path / "train.py", batch_size="divide")
    assert not again.files and not again.of(Kept)
    found = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    for each, size in ((_COUNTED, 1), (script, 2)):
        arguments = ["--output", str(tmp_path / "model.pt")] if size > 1 else []
        run = ranks.run(found + each, world_size=size, arguments=arguments, process_group=False)
        assert not report(run)


def test_a_forward_that_clears_gradients_is_kept(tmp_path: Path) -> None:
    text = _BEFORE.replace("        return self.head(x)", "        self.zero_grad()\n" + _HEADED)
    (tmp_path / "train.py").write_text(text.replace("            model.zero_grad()\n", ""))
    (kept,) = answered(SINGLE, tmp_path / "train.py").of(Kept)
    assert isinstance(kept.found, Kept)
    assert kept.found.what == "`self.zero_grad()`"


_HEADED = "        return self.head(x)"
_ADDED_UP = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        self.zero_grad()
        return self.layer(x)


model = fully_shard(Net())
for step in (1, 2):
    model(torch.ones(1, 4)).sum().backward()
    grad = model.layer.weight.grad.full_tensor()
    assert torch.equal(grad, torch.full((4, 4), float(step))), "cleared"
"""


def test_gradients_add_up_that_a_forward_clears(ranks: Ranks) -> None:
    assert not report(ranks.run(_ADDED_UP))


def test_the_groups_of_an_optimizer_are_read_without_a_gather(tmp_path: Path) -> None:
    line = 'rate = optimizer.state_dict()["param_groups"][0]["lr"]'
    text = _BEFORE.replace("optimizer.step()\n", f"optimizer.step()\n            {line}\n")
    after = migrated(tmp_path, text, batch_size="divide")
    assert f"            optimizer.step()\n            {line}\n" in after


_NORM = """\
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4))
        self.layer = nn.Linear(4, 4)
        self.register_buffer("ready", torch.zeros(1))

    def start(self, x):
        with torch.no_grad():
            CHANGE
            self.ready += 1

    def forward(self, x):
        if not self.ready:
            self.start(x)
        return self.layer(x) + self.bias


"""
_CHANGED = {
    "self.bias.data.copy_(x.mean(0))": True,
    "self.bias.copy_(x.mean(0))": True,
    "self.bias.data = x.mean(0)": True,
    "self.layer.weight.data.mul_(0.5)": True,
    'weight = getattr(self.layer, f"wei{"ght"}"); weight.data = weight.data * 2': True,
    "self.ready.data.copy_(torch.ones(1))": False,
    "self.ready.mul_(2)": False,
    "self.bias.requires_grad_(True)": False,
}


@pytest.mark.parametrize("change", _CHANGED)
def test_parameters_that_a_forward_changes_are_kept(tmp_path: Path, change: str) -> None:
    norm = _NORM.replace("CHANGE", change)
    text = _BEFORE.replace("class Net", f"{norm}class Net")
    text = text.replace("self.head = nn.Linear(4, 2)", "self.head = nn.Linear(4, 2)\n" + _NORMS)
    text = text.replace("return self.head(x)", "return self.head(self.norm(x))")
    (tmp_path / "train.py").write_text(text)
    found = [each.found for each in answered(SINGLE, tmp_path / "train.py").of(Kept)]
    assert [each.reason for each in found if isinstance(each, Kept)] == [INSIDE] * _CHANGED[change]


_NORMS = "        self.norm = Norm()"


_LOG = """\
class Log(SummaryWriter):
    def __init__(self, folder):
        super().__init__(folder)


"""


def test_a_class_derived_from_a_writer_logs_on_one_rank(tmp_path: Path) -> None:
    text = f"from torch.utils.tensorboard import SummaryWriter\n{_BEFORE}"
    text = text.replace("class Net", f"{_LOG}class Net")
    text = text.replace(
        "    torch.manual_seed(0)\n", '    torch.manual_seed(0)\n    log = Log("a")\n'
    )
    after = migrated(tmp_path, text, batch_size="divide")
    assert "super().__init__(folder if dist.get_rank() == 0 else tempfile.mkdtemp())" in after
