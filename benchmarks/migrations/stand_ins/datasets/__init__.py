"""A small `datasets`: one text for every name, without downloads."""

_LINES = [f"one two three four five {number % 7} six seven" for number in range(256)]


class Dataset:
    """Rows as columns, as `datasets` holds them."""

    def __init__(self, columns):
        self._columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def __getitem__(self, index):
        return {name: values[index] for name, values in self._columns.items()}

    def map(self, function, batched=False, remove_columns=(), **_):
        assert batched
        return Dataset(dict(function(self._columns)))

    def set_format(self, kind):
        assert kind == "pt"
        import torch

        self._columns = {name: torch.tensor(each) for name, each in self._columns.items()}


class DatasetDict(dict):
    @property
    def column_names(self):
        return {name: part.column_names for name, part in self.items()}

    def map(self, function, remove_columns=(), **options):
        return DatasetDict({name: part.map(function, **options) for name, part in self.items()})


def load_dataset(path, name=None, split=None, **_):
    columns = {"text": _LINES}
    if "alpaca" in path:
        columns = dict.fromkeys(("instruction", "input", "output"), _LINES)
    parts = {each: Dataset(columns) for each in ("train", "validation", "test")}
    return DatasetDict(parts) if split is None else parts[split.partition("[")[0]]


def load_from_disk(path):
    return Dataset({"text": _LINES})
