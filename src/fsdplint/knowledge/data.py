"""What feeds a training loop."""

from __future__ import annotations

import re

from fsdplint.knowledge.names import KEYWORD_ONLY

DATA = "torch.utils.data"
DATA_LOADERS = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torchdata.stateful_dataloader.StatefulDataLoader",
    }
)
DISTRIBUTED_SAMPLERS = frozenset({"torch.utils.data.DistributedSampler"})
# Functions and classes that draw by numpy's numbers unless they get a `random_state`.
SPLITS = frozenset(
    f"sklearn.model_selection.{name}"
    for name in ("train_test_split", "ShuffleSplit", "StratifiedShuffleSplit", "GroupShuffleSplit")
)
RANDOM_SPLIT = frozenset({"torch.utils.data.random_split"})
BATCH_SAMPLERS = frozenset({"torch.utils.data.BatchSampler"})
KEEPS_EPOCH = frozenset({"epoch", "set_epoch"})  # of a distributed sampler

_SAMPLER = "torch.utils.data.Sampler"

# Attributes that hold an argument of the constructor, with its place there and the class of what
# they hold where it is None or not given. Source: torch.utils.data.DataLoader and BatchSampler,
# torch 2.4 to 2.13; a loader refuses to set them later.
ATTRIBUTES_BY_ARGUMENT = {
    ("torch.utils.data.BatchSampler", "sampler"): (0, _SAMPLER),
    **{(loader, "dataset"): (0, "torch.utils.data.Dataset") for loader in DATA_LOADERS},
    **{(loader, "sampler"): (3, _SAMPLER) for loader in DATA_LOADERS},
    **{(loader, "batch_sampler"): (4, _SAMPLER) for loader in DATA_LOADERS},
}

# Functions, by last name, that give what they are given one by one, and those that do so in its
# order; and those that count.
ONE_BY_ONE = frozenset({"enumerate", "tqdm", "track"})
IN_ORDER = ONE_BY_ONE | {"list", "tuple", "iter"}
COUNTS = frozenset({"range", "trange", "count"})

# Functions, by last name, that write what they download to its final place. Those of torch.hub and
# Hugging Face write elsewhere first, or lock.
DOWNLOADS = (
    *("download_url", "download_and_extract_archive", "download_file_from_google_drive"),
    "urlretrieve",
)

# Functions and methods, by last name, whose numbers are mostly sizes of tensors.
SHAPED = frozenset(
    {
        *("arange", "empty", "expand", "eye", "full", "new_full", "new_ones", "new_zeros"),
        *("normal", "ones", "rand", "randint", "randn", "repeat", "reshape", "view", "zeros"),
    }
)

# Datasets of libraries that give the same samples, in the same places, to every process.
_DATASETS = frozenset(
    {
        "torch.utils.data.ConcatDataset",
        "torch.utils.data.StackDataset",
        "torch.utils.data.Subset",
        "torch.utils.data.TensorDataset",
    }
)
# Functions of Hugging Face's `datasets` that load rows, and methods by which rows make other rows
# by their arguments alone: neither asks for the rank, whatever the loader (datasets 5.2, by a run).
ROWS = "datasets.Dataset"
LOADS_ROWS = frozenset(
    f"datasets.{module}{name}"
    for module in ("", "load.")
    for name in ("load_dataset", "load_from_disk")
)
KEEPS_ROWS = frozenset(
    {
        "cast_column",
        "remove_columns",
        "rename_column",
        "rename_columns",
        "select",
        "select_columns",
        "skip",
        "take",
        "with_format",
    }
)
# Those that call a function, and those that draw, with the place of the seed: without one, each
# process draws on its own.
MAPS_ROWS = frozenset({"filter", "map"})
DRAWS_ROWS = {"shuffle": 0, "train_test_split": KEYWORD_ONLY}
ROW_METHODS = KEEPS_ROWS | MAPS_ROWS | DRAWS_ROWS.keys()
_TOKENIZER = re.compile(r"(transformers|tokenizers|tiktoken|sentencepiece)\.")

_ITERATES = re.compile(r"builtins\.|tqdm(\.|$)|itertools\.|rich\.progress\.|__len__$|__iter__$")

# Words by which data may differ between ranks after all, or is shared among them on purpose.
_BY_RANK = re.compile(
    r"rank|world|replica|shard|split_dataset|process_index|num_processes|node|\bdp\b|_dp|dp_",
    re.IGNORECASE,
)
_BY_PLACE = re.compile(r"islice|%|::")
_BY_CHANCE = re.compile(r"rand|shuffle|sample\(|seed|generator|uuid|time\(", re.IGNORECASE)
_SEED = re.compile(r"manual_seed|set_seed|seed_everything")
_DRAWS_BY_SEED = re.compile(r"torch\.rand\w*|\w*seed\w*", re.IGNORECASE)
_DIVIDED = re.compile(
    r"chunk\(|tensor_split|scatter|\.split\(|broadcast|\[[^\]\n]*(rank|world)", re.IGNORECASE
)


def is_fixed_dataset(name: str) -> bool:
    """Whether a library's dataset, by canonical name, is the same in every process."""
    images = name.startswith("torchvision.datasets.") and not name.endswith("FakeData")
    return images or name in _DATASETS


def is_tokenizer(cls: str) -> bool:
    return _TOKENIZER.match(cls) is not None


def only_iterates(name: str) -> bool:
    """Whether a function or method given a loader or sampler does no more than go through it."""
    return _ITERATES.match(name) is not None or name in DATA_LOADERS | BATCH_SAMPLERS


def may_differ(text: str) -> bool:
    """Whether the words of a dataset hint at samples that depend on the process."""
    return _BY_RANK.search(text) is not None or _BY_CHANCE.search(text) is not None


def picks(text: str) -> bool:
    """Whether the words of an iterable may leave out elements by their place."""
    return _BY_PLACE.search(text) is not None


def draws_by_seed(text: str) -> bool:
    """Whether the words of a constructor set a seed first, and draw by nothing else behind it."""
    seed, others = _SEED.search(text), _DRAWS_BY_SEED.sub("", text)
    drawn = [each.start() for each in re.finditer(r"torch\.rand", text)]
    return seed is not None and seed.start() < min(drawn, default=0) and not may_differ(others)


def mentions_ranks(text: str) -> bool:
    """Whether the words of a call hint at a part of the data for each rank."""
    return _BY_RANK.search(text) is not None


def divides(text: str) -> bool:
    """Whether the words of a loop hint at batches that ranks divide among themselves."""
    return _DIVIDED.search(text) is not None
