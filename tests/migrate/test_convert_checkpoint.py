"""Checkpoints that FSDP1 and DDP wrote on real ranks load under FSDP2, exactly."""

from __future__ import annotations

import argparse
import hashlib
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from ranks import Ranks, report
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from fsdplint.cli.migrate_checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

# What all programs below train: tied weights, a buffer, and weights of the same shapes.
MODEL = """
import sys
import torch
import torch.distributed as dist
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.last = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.register_buffer("scale", torch.full((1,), 0.5))

    def forward(self, x):
        return x + self.last(self.first(self.norm(x)).relu() * self.scale)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(13, 6)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(6, 13, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.blocks(self.embedding(x)))

def build(seed=0):
    torch.manual_seed(seed)
    return Net()

def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)

def by_dimensions(model):
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.ndim == n]} for n in (2, 1)]

def train(model, optimizer, first):
    for step in range(first, first + 3):
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(13, (4, 5), generator=generator).chunk(2)[dist.get_rank() % 2]
        nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""

# Three steps under DDP and FSDP1, which both leave the same weights and moments on two ranks.
# `truth.pt` has them as DDP's own tensors, and the weights after three steps more.
WRITE = (
    MODEL
    + """
import copy
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

folder, rank = sys.argv[1], dist.get_rank()

def write(name, state):
    if rank == 0:
        torch.save(state, f"{folder}/{name}.pt")

def ddp(arguments):
    model = nn.parallel.DistributedDataParallel(build())
    optimizer = adamw(arguments(model))
    train(model, optimizer, 0)
    return model, optimizer

model, optimizer = ddp(by_dimensions)
state = model.module.state_dict()
names = {p: name for name, p in model.module.named_parameters()}
moments = {names[p]: entry for p, entry in optimizer.state.items()}
truth = copy.deepcopy({"model": state, "moments": moments})
compiled = torch.compile(model).state_dict()
write("ddp", {"state_dict": compiled, "optimizer": optimizer.state_dict(), "epoch": 3})
train(model, optimizer, 3)
write("truth", {**truth, "later": model.module.state_dict()})
model, optimizer = ddp(lambda model: model.named_parameters())
write("named", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})

def fsdp1(use_orig_params):
    model = FSDP(
        build(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=use_orig_params,
    )
    optimizer = adamw(model.parameters())
    train(model, optimizer, 0)
    return model, optimizer

def state_of(model, optimizer, kind, *configs):
    with FSDP.state_dict_type(model, kind, *configs):
        return {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}

FULL = StateDictType.FULL_STATE_DICT, FullStateDictConfig()
flat, original = fsdp1(False), fsdp1(True)
write("flat", state_of(*flat, *FULL))
write("original", state_of(*original, *FULL, FullOptimStateDictConfig(offload_to_cpu=False)))
write("lost", state_of(*original, *FULL))
write("raw", {"model": state_of(*flat, *FULL)["model"], "optim": flat[1].state_dict()})
sharded = state_of(*original, StateDictType.SHARDED_STATE_DICT)
dcp.save({**sharded, "epoch": 3}, checkpoint_id=f"{folder}/sharded")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
write("shards", fully_shard(build(), mesh=mesh).state_dict())
write("local", state_of(*flat, StateDictType.LOCAL_STATE_DICT)["model"])
checkpoint_wrapper.apply_activation_checkpointing(
    original[0], check_fn=lambda module: isinstance(module, Block)
)
with FSDP.summon_full_params(original[0]):
    write("wrapped", dict(original[0].named_parameters()))
"""
)

LOAD = (
    MODEL
    + """
import torch.distributed.checkpoint as dcp
from pathlib import Path
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict,
    set_model_state_dict, set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FULL = StateDictOptions(full_state_dict=True)

def equal(found, wanted):
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, value in wanted.items():
        equal(found[name], value) if isinstance(value, dict) else torch.testing.assert_close(
            found[name], value, rtol=0, atol=0, msg=lambda text: f"{name}: {text}"
        )

truth = torch.load(sys.argv[1], weights_only=True)
for path, model_key, optimizer_key in zip(*[iter(sys.argv[2:])] * 3):
    model = build(seed=1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh)
    named = model.named_parameters() if "named" in path else model.parameters()
    optimizer = adamw(by_dimensions(model) if "ddp" in path else named)
    if Path(path).is_dir():
        state = {
            model_key: get_model_state_dict(model),
            optimizer_key: get_optimizer_state_dict(model, optimizer),
            "epoch": 0,
        }
        if "flat" in path:
            del state["epoch"]
        dcp.load(state, checkpoint_id=path)
        assert state.get("epoch", 3) == 3
        set_model_state_dict(model, state[model_key])
        set_optimizer_state_dict(model, optimizer, state[optimizer_key])
    else:
        state = torch.load(path, weights_only=True)
        set_model_state_dict(model, state[model_key], options=FULL)
        set_optimizer_state_dict(model, optimizer, state[optimizer_key], options=FULL)
    equal(get_model_state_dict(model, options=FULL), truth["model"])
    equal(get_optimizer_state_dict(model, optimizer, options=FULL)["state"], truth["moments"])
    if dist.get_world_size() == 2:
        train(model, optimizer, 3)
        equal(get_model_state_dict(model, options=FULL), truth["later"])
"""
)


@pytest.fixture(scope="module")
def written(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with a checkpoint in each layout."""
    folder = tmp_path_factory.mktemp("written")
    assert report(ranks.run(WRITE, arguments=[str(folder)])) == ""
    return folder


def migrate(old: Path, new: Path, *options: str) -> Result:
    return CliRunner().invoke(checkpoint, [str(old), str(new), *options])


def refusal(old: Path, new: Path, *options: str) -> str:
    """Return the error of a conversion, which has left nothing behind."""
    result = migrate(old, new, *options)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert list(new.parent.glob(f"*{new.name}*")) == []
    return result.output.removeprefix(f"Error: {old}: ").strip()


CONVERTED = [
    ("flat.pt", "model", "optim", "torch", ()),
    ("flat.pt", "model", "optim", "dcp", ()),
    ("original.pt", "model", "optim", "torch", ()),
    ("sharded", "model", "optim", "torch", ()),
    ("sharded", "model", "optim", "dcp", ()),
    ("ddp.pt", "state_dict", "optimizer", "dcp", ("--in-model-order",)),
    ("ddp.pt", "state_dict", "optimizer", "torch", ("--parameter-names",)),
    ("named.pt", "model", "optimizer", "torch", ()),
    ("named.pt", "model", "optimizer", "dcp", ()),
]
# The order of the groups that `by_dimensions` makes.
DDP_NAMES = [
    "embedding.weight",
    *(f"blocks.{n}.{layer}.weight" for n in (0, 1) for layer in ("first", "last")),
    *(
        f"blocks.{n}.{name}"
        for n in (0, 1)
        for name in ("norm.weight", "norm.bias", "first.bias", "last.bias")
    ),
]


def digest(path: Path) -> dict[str, str]:
    files = path.rglob("*") if path.is_dir() else [path]
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.is_file()}


@pytest.fixture(scope="module")
def converted(written: Path) -> list[str]:
    """Return, for each conversion, the new checkpoint and the keys of its model and optimizer."""
    before = digest(written)
    names = written / "names.txt"
    names.write_text("\n".join(DDP_NAMES), "utf-8")
    found = []
    for file, model, optimizer, layout, options in CONVERTED:
        new = written / f"new-{file.removesuffix('.pt')}-{layout}"
        given = (*options, str(names)) if options[-1:] == ("--parameter-names",) else options
        result = migrate(written / file, new, "--format", layout, *given)
        assert result.exit_code == 0, result.output
        found += [str(new), model, optimizer]
    assert before.items() <= digest(written).items()
    return found


@pytest.mark.parametrize("world_size", [2, 4])
def test_fsdp2_loads_weights_and_moments_exactly_and_trains_on(
    ranks: Ranks, written: Path, converted: Sequence[str], world_size: int
) -> None:
    arguments = [str(written / "truth.pt"), *converted]
    assert report(ranks.run(LOAD, world_size=world_size, arguments=arguments)) == ""


def test_unconverted_state_of_fsdp1_counts_its_steps_wrongly(ranks: Ranks, written: Path) -> None:
    arguments = [str(written / "truth.pt"), str(written / "flat.pt"), "model", "optim"]
    assert "not equal" in report(ranks.run(LOAD, arguments=arguments))


def test_report_says_what_was_read_and_changed(written: Path, tmp_path: Path) -> None:
    old, new = written / "ddp.pt", tmp_path / "new"
    assert migrate(old, new, "--in-model-order").output.splitlines() == [
        f"Read {old}",
        "  state_dict: model, 16 tensors; took wrappers out of 16 names: "
        "_orig_mod.module.embedding.weight is now embedding.weight",
        "  optimizer: optimizer state of 13 parameters in 2 groups, by number before",
        "  epoch: as it was",
        f"Wrote {new}, a torch.distributed.checkpoint folder",
    ]
    old = written / "flat.pt"
    assert migrate(old, tmp_path / "flat.pt", "--format", "torch").output.splitlines()[2:] == [
        "  optim: optimizer state of 13 parameters in 1 group, by name; separated 10 tensors that "
        "parameters shared",
        f"Wrote {tmp_path / 'flat.pt'}, a torch.save file",
    ]


def test_names_of_wrappers_are_taken_out(written: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.pt"
    assert (
        "_checkpoint_wrapped_module"
        in migrate(written / "wrapped.pt", new, "--format", "torch").output
    )
    truth = torch.load(written / "truth.pt", weights_only=True)["model"]
    found = torch.load(new, weights_only=True)
    assert sorted(found) == sorted({*truth} - {"blocks.0.scale", "blocks.1.scale", "head.weight"})
    for name, weight in found.items():
        assert torch.equal(weight, truth[name])


SHARDS = (
    "holds one rank's shards. Load it with the old code on as many ranks as wrote it, and save it "
    "there under StateDictType.FULL_STATE_DICT or with torch.distributed.checkpoint"
)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("local.pt", (), SHARDS),
        ("shards.pt", (), SHARDS),
        (
            "lost.pt",
            (),
            "the optimizer's exp_avg and exp_avg_sq are one tensor, so one of them is lost. FSDP1 "
            "does that on CPU ranks with use_orig_params=True: save it again with "
            "offload_to_cpu=False, or pass --model-only to leave the optimizer out",
        ),
        (
            "raw.pt",
            ("--in-model-order",),
            "the optimizer state of parameter 0 has the shape (39,), which no parameter of the "
            "model has. FSDP1's optimizer.state_dict() holds one rank's flattened shards: save "
            "FSDP.optim_state_dict(model, optimizer) instead. --model-only leaves the optimizer "
            "out",
        ),
        (
            "ddp.pt",
            (),
            "the optimizer state numbers the parameters, and their shapes do not show which is "
            "which. If the optimizer was built from model.parameters(), or each of its groups has "
            "a part of them in the same order, pass --in-model-order. Otherwise list the "
            "optimizer's parameter names, one a line and in its order, in a file for "
            "--parameter-names",
        ),
    ],
)
def test_what_is_lost_or_not_known_is_refused(
    written: Path, tmp_path: Path, file: str, options: tuple[str, ...], message: str
) -> None:
    assert refusal(written / file, tmp_path / "new", *options) == message


def test_model_only_leaves_out_an_optimizer_that_cannot_be_converted(
    written: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.pt"
    result = migrate(written / "lost.pt", new, "--format", "torch", "--model-only")
    assert "  optim: optimizer state, left out" in result.output.splitlines()
    truth = torch.load(written / "truth.pt", weights_only=True)["model"]
    found = torch.load(new, weights_only=True)
    assert found.keys() == {"model"}
    assert found["model"].keys() == truth.keys()
    assert all(torch.equal(found["model"][name], truth[name]) for name in truth)


def numbered(shapes: Sequence[int], groups: Sequence[Sequence[int]]) -> dict[str, object]:
    """Return an optimizer's state dict with moments of these shapes."""
    state = {
        n: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(s)} for n, s in enumerate(shapes)
    }
    return {"state": state, "param_groups": [{"lr": 0.1, "params": [*group]} for group in groups]}


NORM = {
    "0.weight": torch.rand(4),
    "0.running_mean": torch.rand(4),
    "0.running_var": torch.rand(4),
    "0.num_batches_tracked": torch.tensor(1),
}


@pytest.mark.parametrize(
    ("model", "optimizer", "options", "expected"),
    [
        # The shapes alone show it, in whatever order.
        ({"a": torch.rand(2), "b": torch.rand(3)}, numbered([3, 2], [[0], [1]]), (), ["b", "a"]),
        # Statistics are not parameters.
        (NORM, numbered([4], [[0]]), (), ["0.weight"]),
        (
            {"a": torch.rand(2), "b": torch.rand(2), "c": torch.rand(3)},
            numbered([2, 2], [[0, 1]]),
            ("--in-model-order",),
            ["a", "b"],
        ),
        # A frozen one among equals may be any of them.
        (
            {"a": torch.rand(2), "b": torch.rand(2), "c": torch.rand(2)},
            numbered([2, 2], [[0, 1]]),
            ("--in-model-order",),
            "the shapes of the optimizer state fit more than one part of the model in this order",
        ),
        (
            {"a": torch.rand(3), "b": torch.rand(2)},
            numbered([2, 3], [[0, 1]]),
            ("--in-model-order",),
            "the shapes of the optimizer state fit no part of the model in this order",
        ),
        (
            {"a": torch.rand(2)},
            numbered([2, 2], [[0], [1]]),
            ("--in-model-order",),
            "the shapes fit two groups to the same parameter",
        ),
        (
            {"a": torch.rand(2)},
            numbered([2], [[0]]),
            ("b",),
            "no parameter of the model is named b",
        ),
        (
            {"a": torch.rand(2), "b": torch.rand(3)},
            numbered([2, 3], [[0, 1]]),
            ("b\na",),
            "the optimizer state of parameter 0 has the shape (2,), but b has (3,)",
        ),
        (
            {"a": torch.rand(2)},
            numbered([2], [[0]]),
            ("a\nb",),
            "the optimizer's parameters are 1, but 2 different names are given",
        ),
    ],
)
def test_numbers_get_names_only_where_these_are_known(
    tmp_path: Path,
    model: dict[str, torch.Tensor],
    optimizer: dict[str, object],
    options: tuple[str, ...],
    expected: list[str] | str,
) -> None:
    old, new, names = tmp_path / "old.pt", tmp_path / "new.pt", tmp_path / "names.txt"
    torch.save({"model": model, "optimizer": optimizer}, old)
    if options and not options[0].startswith("--"):
        names.write_text(options[0], "utf-8")
        options = ("--parameter-names", str(names))
    if isinstance(expected, str):
        assert refusal(old, new, *options).startswith(expected)
        return
    assert migrate(old, new, "--format", "torch", *options).exit_code == 0
    groups = torch.load(new, weights_only=True)["optimizer"]["param_groups"]
    assert [name for group in groups for name in group["params"]] == expected


@pytest.mark.parametrize(("listed", "name"), [(["module.a"], "module.a"), ([], "a")])
def test_ddp_is_not_mistaken_for_an_attribute_of_its_name(
    tmp_path: Path, listed: list[str], name: str
) -> None:
    state = {name: {"exp_avg": torch.rand(2)} for name in listed}
    optimizer = {"state": state, "param_groups": [{"lr": 0.1, "params": listed}]}
    old, new = tmp_path / "old.pt", tmp_path / "new.pt"
    torch.save({"model": {"module.a": torch.rand(2)}, "optim": optimizer}, old)
    assert migrate(old, new, "--format", "torch").exit_code == 0
    found = torch.load(new, weights_only=True)
    assert [*found["model"]] == [name]
    assert [*found["optim"]["state"]] == listed


class Code:
    """Unpickled, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self) -> tuple[object, ...]:
        return open, (self.file, "w")


def folder(path: Path, state: dict[str, object]) -> Path:
    save(state, storage_writer=FileSystemWriter(path))
    return path


def changed(path: Path, pattern: str, data: bytes) -> Path:
    next(path.glob(pattern)).write_bytes(data)
    return path


RUNS_CODE = "holds objects that only code restores, which is never run"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("code in a file", f"{RUNS_CODE}: io.open. If you"),
        ("code in a folder", f"{RUNS_CODE}: io.open. If you"),
        ("code in metadata", ".metadata names io.open, which may run code"),
        ("namespace", f"{RUNS_CODE}: argparse.Namespace. If you"),
        ("list", "holds a list instead of a state dict"),
        ("numbers", "holds no state dict of a model or an optimizer to convert"),
        ("text", f"{RUNS_CODE}, or it is damaged or no checkpoint. If you"),
        ("truncated", "cannot be read: RuntimeError: "),
        ("no metadata", "has no file .metadata, so it is not a folder of "),
        ("damaged metadata", "cannot be read: EOFError: Ran out of input"),
        ("damaged shards", "cannot be read: "),
        ("flattened", SHARDS),
        ("collision", "two names are the same without the names of wrappers"),
    ],
)
def test_bad_checkpoints_are_refused_and_no_code_runs(
    tmp_path: Path, case: str, message: str
) -> None:
    mark, old = tmp_path / "mark", tmp_path / "old"
    weights = {"a": torch.rand(2)}
    saved: dict[str, object] = {
        "code in a file": {"model": weights, "args": Code(mark)},
        "namespace": {"model": weights, "args": argparse.Namespace(lr=1)},
        "list": [weights],
        "numbers": {"epoch": 1},
        "flattened": {"blocks.0._fsdp_wrapped_module._flat_param": torch.rand(2)},
        "collision": {"_orig_mod.a": torch.rand(2), "a": torch.rand(2)},
    }
    if case in saved:
        torch.save(saved[case], old)
    elif case == "text":
        old.write_text("model: none", "utf-8")
    elif case == "truncated":
        torch.save(weights, old)
        old.write_bytes(old.read_bytes()[:-200])
    elif case == "no metadata":
        old.mkdir()
    elif case == "code in a folder":
        folder(old, {"model": weights, "args": Code(mark)})
    else:
        pattern = "*.distcp" if case == "damaged shards" else ".metadata"
        data = pickle.dumps(Code(mark)) if case == "code in metadata" else b""
        changed(folder(old, {"model": weights}), pattern, data)
    assert refusal(old, tmp_path / "new").startswith(message)
    assert not mark.exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", {"a": torch.rand(2)}), tmp_path / "new"
    new.mkdir()
    inside, missing = old / "new", tmp_path / "missing" / "new"
    assert [migrate(old, path).output for path in (new, inside, missing)] == [
        f"Error: {new} exists; give a path where nothing is\n",
        f"Error: {inside} is in {old}, which is never changed\n",
        f"Error: {missing.parent} is not a folder\n",
    ]


@pytest.mark.parametrize("layout", ["dcp", "torch"])
def test_nothing_is_left_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    old = folder(tmp_path / "old", {"a": torch.rand(2)})

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fails)
    result = migrate(old, tmp_path / "new", "--format", layout)
    assert isinstance(result.exception, OSError)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_without_pytorch_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsdplint.checkpoints.convert", None)
    assert migrate(tmp_path, tmp_path / "new").output.startswith(
        "Error: migrate checkpoint requires PyTorch 2.6 or newer: pip install 'fsdplint[verify]' ("
    )
