"""Compare the public names of PyTorch's distributed packages with what fsdplint knows of them.

python scripts/drift.py [--update]

The table `src/fsdplint/knowledge/torch_api.csv` has a row for each public name of each release of
PyTorch with FSDP2 on the registry: the first release that has it, the last, and what changed of its
parameters. Without `--update`, the exit status is 1 if the registry has a release that the table
lacks, or if a name of the table is neither known to fsdplint nor listed in `scripts/drift.toml` as
one that it need not know, with the reason. With it, the releases are read and the table is written.

`--update` needs `pip install griffe aiohttp fsspec`.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import re
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
KNOWLEDGE = ROOT / "src/fsdplint/knowledge"
TABLE = KNOWLEDGE / "torch_api.csv"
IRRELEVANT = ROOT / "scripts/drift.toml"
REGISTRY = "https://pypi.org/simple/torch/"
# The first release with FSDP2.
OLDEST = Version("2.4.0")
HEADER = ("name", "first", "last", "changed")

# A name, with its parameters as they are written; "" for what is not called.
Names = Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """A public name, or, in the first row, the releases that the table is for.

    Attributes:
        first: the first release that has it.
        last: the last, "" if the newest has it.
        changed: by release, what came to its parameters and what went.
    """

    name: str
    first: str
    last: str
    changed: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare PyTorch's public names with fsdplint's.")
    parser.add_argument("--update", action="store_true", help="rewrite the table from the wheels")
    wheels = published()
    if parser.parse_args(arguments).update:
        from torch_names import public_names  # it needs more packages than the comparison does

        write(rows({version: public_names(wheels[version]) for version in sorted(wheels)}))
    table = read()
    problems = [
        *late(table, max(wheels)),
        *unaccounted(table, known_words(), irrelevant_names()),
    ]
    print(*problems, sep="\n", file=sys.stderr)
    return bool(problems)


def published() -> dict[Version, str]:
    """Return the address of a wheel of each release."""
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(REGISTRY, headers=accept)) as answer:
        files = json.load(answer)["files"]
    wheels = {}
    for file in files:
        if file["filename"].endswith("_x86_64.whl") and "linux" in file["filename"]:
            wheels[Version(file["filename"].split("-")[1])] = file["url"]
    return {version: url for version, url in wheels.items() if version >= OLDEST}


def rows(releases: Mapping[Version, Names]) -> Iterator[Row]:
    """Yield the rows of the table: first the releases that it is for, then one of each name."""
    newest = max(releases)
    yield Row("torch", str(min(releases)), str(newest), "")
    for name in sorted({name for names in releases.values() for name in names}):
        having = [version for version in releases if name in releases[version]]
        last = "" if having[-1] == newest else str(having[-1])
        yield Row(name, str(having[0]), last, "; ".join(_changes(name, having, releases)))


def _changes(
    name: str, having: Sequence[Version], releases: Mapping[Version, Names]
) -> Iterator[str]:
    """Yield what came and went, as ``2.9.0 +mesh=None -device``."""
    for before, after in pairwise(having):
        old, new = (_split(releases[version][name]) for version in (before, after))
        changes = [f"+{each}" for each in new if each not in old]
        changes += [f"-{each}" for each in old if each not in new]
        if changes:
            yield " ".join([str(after), *changes])


def _split(parameters: str) -> list[str]:
    return [each for each in re.split(r", (?![^(\[]*[)\]])", parameters) if each != "*"]


def write(found: Iterator[Row]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(map(astuple, found))


def read() -> list[Row]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [Row(*cells) for cells in list(csv.reader(file))[1:]]


def late(table: Sequence[Row], newest: Version) -> Iterator[str]:
    """Yield what is wrong if the registry has a release that the table was not written for."""
    if newest > Version(table[0].last):
        last = table[0].last
        yield f"torch {newest} is released, but the table ends with {last}; run with --update"


def unaccounted(
    table: Sequence[Row], known: Set[str], irrelevant: Mapping[str, str]
) -> Iterator[str]:
    """Yield the names that are neither known nor listed as irrelevant, and entries of no use."""
    used = set()
    for row in table[1:]:
        entry = next((each for each in irrelevant if fnmatchcase(row.name, each)), None)
        used.add(entry)
        if entry is None and row.name.rpartition(".")[2] not in known:
            since = f"since {row.first}" + (row.last and f" to {row.last}")
            yield f"{row.name} ({since}) is neither in knowledge/ nor in scripts/drift.toml"
    for entry in irrelevant:
        if entry not in used:
            yield f"scripts/drift.toml: `{entry}` matches no name"


def known_words() -> frozenset[str]:
    """Return the words of all texts in fsdplint's knowledge, but for the lists of star imports."""
    words: set[str] = set()
    for path in sorted(KNOWLEDGE.glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree) if path.name != "star_imports.py" else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(re.findall(r"\w+", node.value))
    return frozenset(words)


def irrelevant_names() -> dict[str, str]:
    """Return the patterns of names that fsdplint need not know, with the reason."""
    groups = tomllib.loads(IRRELEVANT.read_text("utf-8"))["irrelevant"]
    return {
        f"torch.distributed.{name}": each["because"] for each in groups for name in each["names"]
    }


if __name__ == "__main__":
    sys.exit(main())
