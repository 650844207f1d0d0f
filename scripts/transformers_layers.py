"""Write the names of the layers that the models of transformers are made of.

python scripts/transformers_layers.py WHEELS

WHEELS is a folder of wheels of transformers (`pip download --no-deps transformers==…`), one for
each minor release. The table `src/fsdplint/knowledge/transformers_layers.csv` has the classes in
any of them that are called layers, blocks or stages. A test compares it with the installed release.
"""

from __future__ import annotations

import csv
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parent.parent / "src/fsdplint/knowledge/transformers_layers.csv"
HEADER = ("name", "releases")
# Not of TensorFlow and Flax, which FSDP does not shard.
_MODELING = re.compile(r"transformers/models/.*/modeling_(?!tf_|flax_)\w+\.py")
_LAYER = re.compile(r"^class (\w+(?:Layer|Block|Stage)s?)\b", re.MULTILINE)


def main(wheels: Path) -> None:
    """Write the table."""
    names: set[str] = set()
    releases: list[str] = []
    for wheel in sorted(wheels.glob("transformers-*.whl"), key=_release):
        releases.append(".".join(map(str, _release(wheel))))
        with zipfile.ZipFile(wheel) as archive:
            modeling = (name for name in archive.namelist() if _MODELING.fullmatch(name))
            names.update(*(defined(archive.read(name).decode()) for name in modeling))
    rows = [HEADER, ("transformers", " ".join(releases)), *((name, "") for name in sorted(names))]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def defined(text: str) -> Iterator[str]:
    """Yield the layers that a modeling file defines."""
    return (found[1] for found in _LAYER.finditer(text))


def _release(wheel: Path) -> tuple[int, int]:
    major, minor = wheel.name.split("-")[1].split(".")[:2]
    return int(major), int(minor)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
