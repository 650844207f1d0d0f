"""What is tracked of weights and loaders, and the facts that are read from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import HEADER, objects_made, path_of, script

from fsdplint.check import check_text
from fsdplint.engine.facts.feeding import same_orders, shared_data
from fsdplint.engine.facts.weights import undefined_weights
from fsdplint.rules.rank_dependent_init import different_seeds, loaded_alone

FEED = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
model = fully_shard(nn.Linear(8, 8))
rows = TensorDataset(torch.load("rows.pt"))
"""


def test_uses_of_a_module_are_noted_once_its_weights_are_undefined(tmp_path: Path) -> None:
    trace = path_of(
        script(
            tmp_path,
            """
            model = nn.Linear(8, 8)
            model.train()
            fully_shard(model)
            model.to_empty(device="cuda")
            model.eval()
            for p in model.parameters():
                p.requires_grad = False
                p.data.normal_()
            load(model)
            """,
        )
    )
    assert [use.name for use in trace.uses] == ["eval", "parameters", "normal_", "?"]


def test_modules_know_the_device_they_are_built_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = objects_made(monkeypatch)
    path_of(
        script(
            tmp_path,
            """
            with torch.device("meta"):
                a = nn.Linear(8, 8)
            with torch.device("meta") if small else context():
                b = nn.Bilinear(8, 8, 8)
            c = fully_shard(nn.Embedding(8, 8))
            """,
        )
    )
    built = {}
    for each in made:
        name = getattr(each.cls, "name", "")
        if name.startswith("torch.nn."):
            built[name] = each.on_meta
    assert built == {
        "torch.nn.Linear": True,
        "torch.nn.Bilinear": None,
        "torch.nn.Embedding": False,
    }


def test_undefined_weights_need_a_forward(tmp_path: Path) -> None:
    empty = "model = fully_shard(nn.Linear(8, 8))\nmodel.to_empty(device='cuda')\n"
    assert not list(undefined_weights(script(tmp_path, empty)))
    (fact,) = undefined_weights(script(tmp_path, empty + "model(x)\n"))
    assert (fact.forward.name, fact.on_meta) == ("forward", False)


def test_the_last_seed_before_the_model_counts(tmp_path: Path) -> None:
    ranked = "torch.manual_seed(dist.get_rank())\n"
    model = "model = fully_shard(nn.Linear(8, 8))\nmodel(x)\n"
    (fact,) = different_seeds(script(tmp_path, "torch.manual_seed(0)\n" + ranked + model))
    assert fact.shard is fact.last
    assert not list(different_seeds(script(tmp_path, ranked + "torch.manual_seed(0)\n" + model)))
    assert not list(different_seeds(script(tmp_path, model + ranked)))


META = """
torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
"""


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        ("torch.manual_seed(dist.get_rank())\nmodel = FSDP(model)\nmodel(x)\n", 1),
        ("torch.manual_seed(dist.get_rank())\nmodel = FSDP(model, **given)\nmodel(x)\n", 0),
        (
            "torch.manual_seed(dist.get_rank())\n"
            "model = FSDP(model, use_orig_params=kept)\nmodel(x)\n",
            1,
        ),
        (
            "torch.manual_seed(dist.get_rank())\n"
            "model = FSDP(model, sync_module_states=True)\nmodel(x)\n",
            0,
        ),
        (
            "torch.manual_seed(dist.get_rank())\n"
            "model = FSDP(model, param_init_fn=start)\nmodel(x)\n",
            0,
        ),
        (
            "torch.manual_seed(dist.get_rank())\nmodel = FSDP(model)\n"
            "model.load_state_dict(torch.load(path))\nmodel(x)\n",
            0,
        ),
        (
            "torch.manual_seed(dist.get_rank())\nmodel.to_empty(device='cuda')\n"
            "model = FSDP(model)\nmodel(x)\n",
            0,
        ),
        (
            "torch.manual_seed(dist.get_rank())\nfill(model)\nmodel = FSDP(model)\nmodel(x)\n",
            0,
        ),
        (
            "torch.manual_seed(dist.get_rank())\ntorch.manual_seed(1)\n"
            "model = FSDP(model)\nmodel(x)\n",
            0,
        ),
        ("model = FSDP(model)\ntorch.manual_seed(dist.get_rank())\nmodel(x)\n", 0),
        ("torch.manual_seed(dist.get_rank())\nfully_shard(model)\nmodel(x)\n", 0),
    ],
)
def test_the_seed_of_a_model_on_meta_is_the_one_when_fsdp1_gives_it_weights(
    tmp_path: Path, rest: str, found: int
) -> None:
    assert len(list(different_seeds(script(tmp_path, META + rest)))) == found


def test_a_conditional_value_is_decided_where_a_later_branch_needs_it(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        """
        torch.manual_seed(dist.get_rank())
        with torch.device("meta" if large else "cuda"):
            model = nn.Linear(8, 8)
        if large:
            model = FSDP(model)
        model(x)
        """,
    )
    (fact,) = different_seeds(program)
    assert fact.model.on_meta is True


def test_a_load_by_some_ranks_counts_unless_the_others_load_too(tmp_path: Path) -> None:
    alone = """
model = nn.Linear(8, 8)
if dist.get_rank() == 0:
    model.load_state_dict(torch.load("a.pt"))
"""
    other = "else:\n    model.load_state_dict(torch.load('b.pt'))\n"
    rest = "fully_shard(model)\nmodel(x)\n"
    assert len(list(loaded_alone(script(tmp_path, alone + rest)))) == 1
    assert not list(loaded_alone(script(tmp_path, alone + other + rest)))


def test_a_loader_is_followed_into_loops_and_generators(tmp_path: Path) -> None:
    feed = FEED + "loader = DataLoader(rows, batch_size=4)\n"
    loop = "for (batch,) in enumerate(loader):\n    model(batch).mean().backward()\n"
    generator = """
def batches():
    for batch in loader:
        yield batch.cuda()


stream = batches()
for step in range(10):
    model(next(stream)).mean().backward()
"""
    evaluation = "for (batch,) in loader:\n    model(batch)\n"
    assert len(list(shared_data(script(tmp_path, feed + loop)))) == 1
    assert len(list(shared_data(script(tmp_path, feed + generator)))) == 1
    assert not list(shared_data(script(tmp_path, feed + evaluation)))


def test_epochs_are_the_loop_that_the_sampler_outlives(tmp_path: Path) -> None:
    made = "loader = DataLoader(rows, sampler=DistributedSampler(rows))\n"
    train = "for batch in loader:\n    model(batch).mean().backward()\n"

    def indented(text: str) -> str:
        return "".join(f"    {line}" for line in text.splitlines(keepends=True))

    epochs = "for epoch in range(n):\n"
    (fact,) = same_orders(script(tmp_path, FEED + made + epochs + indented(train)))
    assert fact.epochs is fact.training.epochs
    assert not list(same_orders(script(tmp_path, FEED + epochs + indented(made + train))))
    assert not list(same_orders(script(tmp_path, FEED + made + train)))


def test_words_of_a_dataset_are_read_where_lines_end_in_a_carriage_return() -> None:
    rows = """
class Rows(Dataset):
    def __init__(self, path):  # of one process
        self.rows = torch.load (path) [dist.get_rank()::2]

    def __getitem__(self, index):  # ranks and shards
        return self.rows[index]


dist.init_process_group("nccl")
model = fully_shard(nn.Linear(8, 8))
for batch in DataLoader(Rows("rows.pt")):
    model(batch).mean().backward()
"""
    imports = HEADER + "from torch.utils.data import DataLoader, Dataset\n"
    same = rows.replace("dist.get_rank()", "0")
    for newline in ("\n", "\r"):
        for text, found in ((rows, 0), (same, 1)):
            told = check_text((imports + text).replace("\n", newline))
            assert [f.rule for f in told].count("same-data-on-every-rank") == found


DRAWN = """
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, count=64, seed=7):
        {draws}

    def __getitem__(self, index):
        return self.rows[index]


def train(kind):
    model = nn.Linear(8, 8)
    rows = Rows({given})
    if kind == "ddp":
        loader = DataLoader(rows, sampler=DistributedSampler({divided}))
    else:
        model = FSDP(model)
        loader = DataLoader(rows, shuffle=True)
    for batch in loader:
        model(batch).mean().backward()


train(kind)
"""
SEEDED = "torch.manual_seed(seed); self.rows = torch.randn(count, 8)"


@pytest.mark.parametrize(
    ("draws", "given", "divided", "found"),
    [
        (SEEDED, "", "rows", 1),
        (SEEDED, "", "others", 0),  # nothing says that what is made up is to be divided
        (SEEDED, "seed=dist.get_rank()", "rows", 0),
        ("self.rows = torch.randn(count, 8)", "", "rows", 0),
        ("self.rows = torch.randn(count, 8); torch.manual_seed(seed)", "", "rows", 0),
        ("torch.manual_seed(seed); self.rows = np.random.rand(count, 8)", "", "rows", 0),
        (
            "torch.manual_seed(seed)\n        if count:\n            self.rows = torch.rand(8)",
            "",
            "rows",
            1,
        ),
        (
            "if count > 1:\n            torch.manual_seed(seed)\n        self.rows = torch.rand(8)",
            "count",
            "rows",
            0,
        ),
    ],
)
def test_rows_that_a_dataset_draws_by_its_own_seed_are_alike(
    tmp_path: Path, draws: str, given: str, divided: str, found: int
) -> None:
    text = DRAWN.format(draws=draws, given=given, divided=divided)
    assert len(list(shared_data(script(tmp_path, text)))) == found


LIBRARY_ROWS = """
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, IterableDataset


class Packed(IterableDataset):
    def __init__(self, rows, length, offset=0, **more):
        self.rows = {kept}
        self.length = length
        self.offset = offset

    def __iter__(self):
        for row in {walked}:
            yield row["ids"][self.offset:]


def upper(row):
    return {{"ids": row["ids"].upper()}}


def own(row):
    return row["id"] % dist.get_world_size() == dist.get_rank()


def make_loader(path, rank=0, seed=None):
    rows = load_dataset(path, streaming=True)["train"]
    rows = {rows}
    return DataLoader({dataset}, batch_size=4)


def main(args):
    model = FSDP(nn.Linear(8, 8))
    for batch in {loader}:
        model(batch).mean().backward()


main(parser.parse_args())
"""
WHOLE_ROWS = {
    "kept": "rows",
    "walked": "self.rows",
    "rows": "rows.shuffle(42 + rank)",
    "dataset": "Packed(rows, 8)",
    "loader": "make_loader(args.path)",
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, 1),
        ({"rows": "rows"}, 1),
        ({"rows": "rows.map(upper).filter(lambda row: row['ids']).take(100)"}, 1),
        ({"rows": "rows.shuffle(seed=42, buffer_size=1_000)"}, 1),
        ({"rows": "rows.train_test_split(0.1, seed=7)['train']"}, 1),
        ({"rows": "load_dataset(path, split='train')"}, 1),
        ({"dataset": "rows"}, 1),
        ({"walked": "enumerate(self.rows)"}, 1),
        ({"kept": "load_dataset(rows, streaming=True)", "dataset": "Packed(path, 8)"}, 1),
        # each rank its part, its order or its own rows
        ({"loader": "make_loader(args.path, dist.get_rank())"}, 0),
        ({"loader": "make_loader(args.path, args.rank)"}, 0),
        ({"rows": "rows.shuffle()"}, 0),
        ({"rows": "rows.shuffle(seed)"}, 0),
        ({"rows": "rows.train_test_split(0.1)['train']"}, 0),
        ({"rows": "rows.shard(num_shards=dist.get_world_size(), index=dist.get_rank())"}, 0),
        ({"rows": "rows.shard(4, 1)"}, 0),
        ({"rows": "split_dataset_by_node(rows, dist.get_rank(), dist.get_world_size())"}, 0),
        ({"rows": "rows.filter(own)"}, 0),
        ({"rows": "rows.filter(lambda row: row['id'] % 8 == dist.get_rank())"}, 0),
        ({"rows": "rows.skip(dist.get_rank())"}, 0),
        ({"rows": "load_dataset(path, data_files=files_of(path))"}, 0),
        ({"rows": "load_dataset(path, data_files=f'{dist.get_rank()}.txt')"}, 0),
        ({"rows": "load_dataset(path, **options)"}, 0),
        ({"rows": "rows.map(prepare)"}, 0),
        ({"rows": "rows if dist.get_rank() else load_dataset('other')"}, 0),
        ({"rows": "adapt(rows)"}, 0),
        ({"kept": "adapt(rows)"}, 0),
        ({"walked": "adapt(self.rows)"}, 0),
        ({"walked": "itertools.islice(self.rows, self.offset, None, 8)"}, 0),
        ({"walked": "self.rows if get_worker_info() else part(self.rows)"}, 0),
        ({"dataset": "Packed(rows, 8, offset=rank)", "loader": "make_loader('', RANK)"}, 0),
        ({"dataset": "Packed(rows, 8, other=make_stream(path))"}, 0),
        ({"dataset": "Packed(rows, 8, **options)"}, 0),
        ({"dataset": "adapt(Packed(rows, 8))"}, 0),
        ({"loader": "Accelerator().prepare(make_loader(args.path))"}, 0),
    ],
)
def test_rows_of_the_datasets_library_are_alike_until_something_divides_them(
    tmp_path: Path, change: dict[str, str], found: int
) -> None:
    text = LIBRARY_ROWS.format(**{**WHOLE_ROWS, **change})
    assert len(list(shared_data(script(tmp_path, text)))) == found


def test_rows_are_unknown_where_the_caller_of_their_function_is(tmp_path: Path) -> None:
    text = LIBRARY_ROWS.format(**WHOLE_ROWS).replace("main(parser.parse_args())", "")
    text = text.replace("def main(args)", "def main(args, rank=0)")
    text = text.replace("make_loader(args.path)", "make_loader(args.path, rank)")
    assert not list(shared_data(script(tmp_path, text)))
