"""What each write of a checkpoint holds, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch_release
from verifier import Verifier

from fsdplint.verify.clauses.saves import saves
from fsdplint.verify.events import Ended, Part, Save, State
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.saved_files import Stored
from fsdplint.verify.verdict import Verdict

HEAD = """
import io, pickle
from pathlib import Path
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, get_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.two(self.one(x).relu())

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)

def train(model):
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    return optimizer
"""
FSDP2 = f"""{HEAD}
model = Net().cuda()
fully_shard(model.one)
fully_shard(model)
optimizer = train(model)
sharded = model.state_dict()
everything = StateDictOptions(full_state_dict=True, cpu_offload=True)
gathered = {{name: tensor.full_tensor() for name, tensor in sharded.items()}}
offloaded, moments = get_state_dict(model, optimizer, options=everything)

class Trainer:
    def state_dict(self):
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))

    def load_state_dict(self, state):
        pass

torch.save(offloaded, "offloaded-by-all.pt")
torch.save(sharded, "by-all.pt")
torch.save(gathered, "gathered-by-all.pt")
torch.save(sharded, f"part-{{rank}}.pt")
dcp.save({{"trainer": Trainer(), "step": 1}}, checkpoint_id="checkpoint")
dcp.async_save({{"model": sharded}}, checkpoint_id="later").result()
if {torch_release.SAVES_ALONE}:
    dcp.save(sharded, checkpoint_id=f"own-{{rank}}", no_dist=True)
    if rank == 0:
        dcp.save(sharded, checkpoint_id="alone", no_dist=True)
if rank == 0:
    torch.save(sharded, Path("path.pt"))
    torch.save({{"net": {{"module." + name: t for name, t in gathered.items()}}}}, "prefixed.pt")
    torch.save({{name: t.to_local() for name, t in sharded.items()}}, "local.pt")
    torch.save({{"model": offloaded, "optimizer": moments}}, "both.pt")
    torch.save(optimizer.state_dict(), "moments.pt")
    torch.save({{"two.weight": gathered["two.weight"]}}, "partial.pt")
    torch.save({{"generator": torch.get_rng_state()}}, "random.pt")
    for name in "one", "two":
        part = {{key: t for key, t in gathered.items() if key.startswith(name)}}
        torch.save(part, f"{{name}}.pt")
    with open("pickled.pkl", "wb") as file:
        pickle.dump(gathered, file)
    with open("opened.pt", "wb") as file:
        torch.save(gathered, file)
    torch.save(gathered, io.BytesIO())
"""
FSDP1 = f"""{HEAD}
model = FSDP(Net(), device_id=torch.cuda.current_device())
optimizer = train(model)
whole = model.state_dict()
if rank == 0:
    torch.save(whole, "whole.pt")
    torch.save(optimizer.state_dict(), "moments.pt")
with FSDP.state_dict_type(model, torch.distributed.fsdp.StateDictType.SHARDED_STATE_DICT):
    sharded = model.state_dict()
torch.save(sharded, f"sharded-{{rank}}.pt")
if rank == 0:
    torch.save(sharded, "sharded.pt")
"""


def run_of(script: str, verifier: Verifier) -> Run:
    run = verifier.observe(script)
    assert [rank.ended and rank.ended.how for rank in run.ranks] == ["script"] * 2, run
    return run


@pytest.fixture(scope="module")
def fsdp2(verifier: Verifier) -> Run:
    return run_of(FSDP2, verifier)


@pytest.fixture(scope="module")
def fsdp1(verifier: Verifier) -> Run:
    return run_of(FSDP1, verifier)


def verdict(run: Run, *paths: str) -> Verdict:
    """Judges the run as if it had saved nothing but `paths`."""
    ranks = []
    for rank in run.ranks:
        kept = (e for e in rank.events if not isinstance(e, Save) or e.path in paths)
        ranks.append(replace(rank, events=tuple(kept)))
    assert {save.path for rank in ranks for save in rank.of(Save)} == set(paths)
    return saves.judge(replace(run, ranks=tuple(ranks)))


MODEL = "76 of 76 elements of `Net`"
MOMENTS = "152 of 152 elements of the optimizer state"
WHOLE = "loads into an unsharded `Net`: 4 of 4 parameters of `Net`, 76 elements"
ALONE = "holds only the shards of rank 0:"
HALF = "38 of 76 elements of `Net`"
HALF_MOMENTS = "76 of 152 elements of the optimizer state"


def saved_alone(paths: str, figures: str) -> list[tuple[str, str]]:
    """A case of ranks that save without the others, where torch lets them."""
    return [(paths, figures)] if torch_release.SAVES_ALONE else []


@pytest.mark.parametrize(
    ("paths", "figures"),
    [
        ("part-0.pt part-1.pt", f"`part-0.pt`, `part-1.pt`: shards of 2 ranks, {MODEL}"),
        ("checkpoint", f"`checkpoint`: shards of 2 ranks, {MODEL}; {MOMENTS}"),
        ("later", f"`later`: shards of 2 ranks, {MODEL}"),
        *saved_alone("own-0 own-1", f"`own-0`, `own-1`: shards of 2 ranks, {MODEL}"),
        ("gathered-by-all.pt", f"`gathered-by-all.pt` {WHOLE}"),
        ("prefixed.pt", f"`prefixed.pt` {WHOLE}"),
        ("both.pt", f"`both.pt` {WHOLE}; the optimizer state, 152 elements"),
        ("one.pt two.pt", f"`one.pt`, `two.pt` {WHOLE.replace('loads', 'load')}"),
        ("pickled.pkl", f"`pickled.pkl` {WHOLE}"),
        ("opened.pt", f"`opened.pt` {WHOLE}"),
        ("", f"an in-memory buffer {WHOLE}"),
    ],
)
def test_what_holds_the_whole_is_confirmed(fsdp2: Run, paths: str, figures: str) -> None:
    found = verdict(fsdp2, *paths.split() or [""])
    assert (found.status.value, found.figures) == ("confirmed", figures)


@pytest.mark.parametrize(
    ("path", "figures"),
    [
        ("path.pt", f"`path.pt` {ALONE} {HALF}"),
        ("part-0.pt", f"`part-0.pt` {ALONE} {HALF}"),
        ("local.pt", f"`local.pt` {ALONE} {HALF}"),
        *saved_alone("alone", f"`alone` {ALONE} {HALF}"),
        ("moments.pt", f"`moments.pt` {ALONE} {HALF_MOMENTS}"),
        ("by-all.pt", f"ranks 0, 1 write `by-all.pt`, so only one rank's shards survive: {HALF}"),
    ],
)
def test_slices_alone_are_violated(fsdp2: Run, path: str, figures: str) -> None:
    found = verdict(fsdp2, path)
    assert (found.status.value, found.figures) == ("violated", figures)
    assert [place.path for place in found.places] == ["train.py"]


def test_an_empty_state_dict_over_a_whole_one_is_violated(fsdp2: Run) -> None:
    found = verdict(fsdp2, "offloaded-by-all.pt")
    stored = fsdp2.saved["offloaded-by-all.pt"]
    # Two ranks that write one file at a time may also leave one that nobody can read.
    stays = "" if stored.broken else f" ({stored.tensors} in this run)"
    assert found.status.value == "violated"
    assert found.figures == (
        "several ranks write `offloaded-by-all.pt` (4 tensors on rank 0, 0 tensors on rank 1), "
        f"and only the last write survives{stays}"
    )


@pytest.mark.parametrize(
    ("path", "figures"),
    [
        ("partial.pt", "only partial states are saved: 1 of 4 parameters of `Net`, 32 elements"),
        ("random.pt", "no save holds a model's or an optimizer's state"),
    ],
)
def test_a_part_on_purpose_is_no_verdict(fsdp2: Run, path: str, figures: str) -> None:
    found = verdict(fsdp2, path)
    assert (found.status.value, found.figures) == ("not exercised", figures)


def test_fsdp1_gathers_its_model_and_not_its_optimizer(fsdp1: Run) -> None:
    whole, moments = verdict(fsdp1, "whole.pt"), verdict(fsdp1, "moments.pt")
    assert (whole.status.value, whole.figures) == (
        "confirmed",
        f"`whole.pt` {WHOLE}",
    )
    assert (moments.status.value, moments.figures) == (
        "violated",
        f"`moments.pt` {ALONE} {HALF_MOMENTS}",
    )


def test_fsdp1s_sharded_state_dict_is_slices(fsdp1: Run) -> None:
    alone, all_ranks = verdict(fsdp1, "sharded.pt"), verdict(fsdp1, "sharded-0.pt", "sharded-1.pt")
    assert (alone.status.value, alone.figures) == (
        "violated",
        f"`sharded.pt` {ALONE} {HALF}",
    )
    assert all_ranks.status.value == "confirmed"


def test_slices_and_whole_files_on_disk_are_counted(fsdp2: Run) -> None:
    read = ("part-0.pt", "both.pt", "moments.pt", "opened.pt", "random.pt")
    assert [fsdp2.saved[path] for path in read] == [
        Stored(tensors) for tensors in (4, 16, 12, 4, 1)
    ]
    assert "checkpoint" not in fsdp2.saved


def test_without_a_save_the_reason_is_said(verifier: Verifier) -> None:
    script = FSDP2[: FSDP2.index("sharded =")]
    reasons = []
    for steps in (1, None):
        found = verifier(script, steps=steps).verdicts
        reasons += [(v.status.value, v.figures) for v in found if v.clause == "saves"]
    assert reasons == [
        (
            "not exercised",
            "no save in the first 1 step; use `--steps all` to run the script to its end",
        ),
        ("not exercised", "the script saves nothing"),
    ]


SAFETENSORS = """
import json, struct

def save_file(tensors, filename, metadata=None):
    header = json.dumps({name: {} for name in tensors}).encode()
    with open(filename, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
"""
"""As much of safetensors as a run needs."""


def test_safetensors_files_are_read_back(verifier: Verifier, tmp_path: Path) -> None:
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").touch()
    (tmp_path / "safetensors" / "torch.py").write_text(SAFETENSORS, "utf-8")
    setup = FSDP2[: FSDP2.index("class Trainer")]
    save = "from safetensors.torch import save_file\nsave_file(gathered, 'model.safetensors')"
    (tmp_path / "train.py").write_text(f"{setup}\n{save}", "utf-8")
    run = verifier.observe(tmp_path / "train.py")
    assert run.saved == {"model.safetensors": Stored(4)}
    assert verdict(run, "model.safetensors").figures == f"`model.safetensors` {WHOLE}"


def test_a_model_that_cannot_be_pickled_is_violated(verifier: Verifier) -> None:
    script = FSDP2[: FSDP2.index("sharded =")] + 'torch.save(model, "model.pt")\n'
    result = verifier(script, steps=None)
    assert [found.clause for found in result.violated] == ["saves"]
    assert result.violated[0].figures.startswith("`torch.save` cannot write shards to `model.pt`")


def slices(position: int, ranks: tuple[int, ...], of: int, path: str) -> Save:
    part = Part(ranks, (position,), (of,), 50, 100)
    state = State("model", "Net", 1, (), 0, 0, (part,))
    return Save("torch.save", path, False, 1, (state,), 2, None)


def made(saved: dict[int, Save], **ended: Ended) -> Run:
    """Builds a run of four ranks from what they saved."""
    ranks = []
    for rank in range(4):
        events = [saved[rank]] if rank in saved else []
        ranks.append(RankRun(rank, (*events, ended.get(f"rank{rank}", Ended("script", 3))), (), ""))
    return Run(tuple(ranks))


def test_one_replica_of_hsdp_holds_the_whole() -> None:
    every = (0, 1, 2, 3)
    saved = {rank: slices(rank, every, 2, f"{rank}.pt") for rank in (0, 1)}
    assert saves.judge(made(saved)).status.value == "confirmed"


def test_copies_of_one_part_are_not_the_whole() -> None:
    every = (0, 1, 2, 3)
    saved = {rank: slices(0, every, 2, f"{rank}.pt") for rank in (0, 2)}
    found = saves.judge(made(saved))
    assert (found.status.value, found.figures) == (
        "violated",
        "`0.pt`, `2.pt` hold only the shards of ranks 0, 2: 50 of 100 elements of `Net`",
    )


def test_a_rank_that_crashed_before_its_save_proves_nothing() -> None:
    saved = {0: slices(0, (0, 1), 2, "0.pt")}
    crashed = made(saved, rank1=Ended("crash", 2, "OSError", "disk full"))
    assert saves.judge(crashed).status.value == "not exercised"
    assert saves.judge(made(saved)).status.value == "violated"


def test_a_file_that_lost_tensors_on_disk_is_violated(fsdp2: Run) -> None:
    for stored, figures in (
        (Stored(3), "`both.pt` holds 3 of the 16 tensors written to it"),
        (Stored(0, "BadZipFile: no"), "`both.pt` cannot be read back: BadZipFile: no"),
    ):
        found = verdict(replace(fsdp2, saved={"both.pt": stored}), "both.pt")
        assert (found.status.value, found.figures) == ("violated", figures)


AVERAGED = f"""{HEAD}
model = fully_shard(Net().cuda())
average = {{name: p.detach()COPY for name, p in model.named_parameters()}}
optimizer = train(model)
"""
SAVED = 'dcp.save({"model": model.state_dict(), "ema": average}, checkpoint_id="last")'
SWAPPED = """
for name, p in model.named_parameters():
    p.data.copy_(average[name])
dcp.save({"ema": model.state_dict()}, checkpoint_id="last")
"""
SPARSE = """
ids = torch.eye(3).to_sparse()
torch.save({"ids": ids, "model": gathered}, f"{rank}.pt")
"""
LIVE = "shares the memory of the trained parameters, so it averages nothing"


@pytest.mark.parametrize(
    ("copy", "saved", "figures"),
    [
        ("", SAVED, f"`ema` in `last` {LIVE}"),
        ("", 'torch.save(average, f"ema{rank}.pt")', f"`ema0.pt` in `ema0.pt` {LIVE}"),
        (".clone()", SAVED, ""),
        ("", 'dcp.save({"model": model.state_dict()}, checkpoint_id="with_ema")', ""),
        (".clone()", SWAPPED, ""),
        ("", 'dcp.save({"schema": average}, checkpoint_id="last")', ""),
    ],
)
def test_an_average_that_is_the_parameters_themselves(
    verifier: Verifier, copy: str, saved: str, figures: str
) -> None:
    result = verifier(f"{AVERAGED.replace('COPY', copy)}{saved}\n", steps=None)
    assert result.failure == ""
    assert [v.figures for v in result.violated if v.clause == "saves"] == [figures] * bool(figures)


def test_a_path_by_rank_is_no_checkpoint_of_all(verifier: Verifier) -> None:
    saved = 'dcp.save({"model": model.state_dict()}, checkpoint_id=f"last-{rank}")'
    result = verifier(
        f"{HEAD}model = fully_shard(Net().cuda())\ntrain(model)\n{saved}\n", steps=None
    )
    (verdict,) = result.violated
    assert verdict.figures == "`last-0` holds only the shards of rank 0: 38 of 76 elements of `Net`"
    assert verdict.fix == "pass the same checkpoint path on every rank"


def test_a_sparse_tensor_leaves_the_rest_judged(verifier: Verifier) -> None:
    result = verifier(f"{FSDP2}{SPARSE}", steps=None)
    (verdict,) = (verdict for verdict in result.verdicts if verdict.clause == "saves")
    assert "could not be observed" not in verdict.figures
