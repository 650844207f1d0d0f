"""Write which settings in `fsdp_config` have an effect, as each release of accelerate shows.

python scripts/accelerate_settings.py WHEELS

WHEELS is a folder of accelerate's wheels (`pip download --no-deps accelerate==…`), one for each
minor release. The table `src/fsdplint/knowledge/accelerate_settings.csv` has a row for each
setting, version of FSDP and range of releases: whether it has an effect, and which words it takes.
A test compares the rows for the installed release.
"""

from __future__ import annotations

import csv
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "src/fsdplint/knowledge/accelerate_settings.csv"
HEADER = ("name", "fsdp_version", "since", "until", "effect", "takes")

_FORM = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 2
machine_rank: 0
fsdp_config:
"""
# In one of these each setting shows that has an effect at all.
_CONTEXTS = (
    {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_activation_checkpointing": "true"},
    {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": "50"},
)
_NAMES = {
    "fsdp_version": ("1", "2"),
    "fsdp_sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP"),
    "fsdp_backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST"),
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "NO_WRAP"),
    "fsdp_transformer_layer_cls_to_wrap": ("Block", "Linear"),
    "fsdp_min_num_params": ("50", "100000"),
    "fsdp_state_dict_type": ("FULL_STATE_DICT", "SHARDED_STATE_DICT"),
    "fsdp_ignored_modules": ("embed", "head"),
}
"""Two values that differ in effect; of other settings these are true and false."""
WORDS = (
    *("true", "false", "null", "'yes'", "'none'", "0", "1", "2", "3", "4", "5", "6", "1e8"),
    *("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"),
    *("_HYBRID_SHARD_ZERO2", "BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    *("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    *("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT", "Linear"),
)
ANY = "Linear"
"""The word that stands for every other; what takes it takes anything."""

Row = tuple[str, int, bool, str]
"""A setting, the version of FSDP, whether it has an effect, and the words that it takes."""


def config(settings: Mapping[str, str]) -> str:
    """Return a config file with these settings."""
    return _FORM + "".join(f"  {name}: {value}\n" for name, value in settings.items())


def measured() -> Iterator[Row]:
    """Yield what the installed release of accelerate does with each setting.

    Raises:
        RuntimeError: it does not run here.
    """
    for context in _contexts(1):
        if _fails(_effect(config(context))):
            raise RuntimeError(_effect(config(context)))
    for name in sorted(_candidates()):
        for version in (1, 2):
            found = _has_effect(name, version)
            yield name, version, found, " ".join(_taken(name, version))


def _candidates() -> set[str]:
    """Return what may be a setting: options, what the launcher reads, fields of the plugin."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils import launch

    options = {action.dest for action in launch_command_parser()._actions}
    fields = FullyShardedDataParallelPlugin.__dataclass_fields__
    own = {f"fsdp_{name.removeprefix('fsdp_')}" for name in fields}
    read = re.findall(r"\bfsdp_\w+", inspect.getsource(launch))
    return {name for name in {*options, *own, *read} if re.fullmatch(r"fsdp_[a-z_]+", name)}


@functools.cache
def _effect(text: str) -> str:
    from accelerate_effect import effect

    return json.dumps(effect(text), sort_keys=True)


def _fails(result: str) -> bool:
    return result.startswith('{"error"')


def _has_effect(name: str, version: int) -> bool:
    for context in _contexts(version):
        others = {key: value for key, value in context.items() if key != name}
        values = _NAMES.get(name, ("true", "false"))
        if name == "fsdp_reshard_after_forward" and version == 1:
            values = ("FULL_SHARD", "SHARD_GRAD_OP")
        results = [_effect(config(others))]
        results += [_effect(config({**others, name: value})) for value in values]
        if len(set(results)) > 1 and not all(map(_fails, results)):
            return True
    return False


def _contexts(version: int) -> Iterator[dict[str, str]]:
    for context in _CONTEXTS:
        yield {"fsdp_version": str(version), **context}


def _taken(name: str, version: int) -> list[str]:
    """Return the words that a setting takes, in capitals; none if it takes any word."""
    taken: list[str] = []
    # Only where blocks are wrapped by size is the size read.
    contexts = list(_contexts(version))[name == "fsdp_min_num_params" :]
    for word in WORDS:
        made = (config({**context, name: word}) for context in contexts)
        if not all(_fails(_effect(text)) for text in made):
            if word == ANY:
                return []
            taken.append(word.strip("'").upper())
    return taken


def main(arguments: list[str] | None = None) -> int:
    """Measure every wheel and write the table."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    return measure(Path(folder), "accelerate", "accelerate_settings", TABLE)


def measure(folder: Path, package: str, module: str, table: Path) -> int:
    """Write a table from what `measured` of a module yields with each wheel of a package."""
    found: dict[str, list[Row]] = {}
    for wheel in sorted(folder.glob(f"{package}-*.whl"), key=_release_of):
        release = ".".join(wheel.name.split("-")[1].split(".")[:2])
        try:
            found[release] = _measured_in_wheel(wheel, module)
            print(f"{release}: {sum(row[2] for row in found[release])} rows", file=sys.stderr)
        except subprocess.CalledProcessError as error:
            print(f"{release} does not run: {error.stderr.splitlines()[-1]}", file=sys.stderr)
    if not found:
        return 1
    write(table, package, found)
    return 0


def write(table: Path, package: str, found: Mapping[str, list[Row]]) -> None:
    """Write a table from the rows of each release of a package, the oldest first."""
    releases = list(found)
    rows: dict[tuple[str, int], dict[str, tuple[bool, str]]] = {}
    for release, measured in found.items():
        for name, version, effect, takes in measured:
            rows.setdefault((name, version), {})[release] = (effect, takes)
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerow((package, "", releases[0], "", "", " ".join(releases)))
        for (name, version), of_releases in sorted(rows.items()):
            writer.writerows(_ranges(name, version, releases, of_releases))


def _measured_in_wheel(wheel: Path, module: str) -> list[Row]:
    """Return what `measured` of a module of these scripts yields, with the package in a wheel.

    Raises:
        CalledProcessError: it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        return measured_in([folder], module)


def measured_in(folders: list[str], module: str) -> list[Row]:
    """Return what `measured` of a module of these scripts yields, with the packages in folders.

    Raises:
        CalledProcessError: it fails.
    """
    code = f"import json, {module} as s; print(json.dumps([*s.measured()]))"
    path = os.pathsep.join((*folders, str(ROOT / "scripts")))
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return [(row[0], row[1], row[2], row[3]) for row in json.loads(made.stdout.splitlines()[-1])]


def _release_of(wheel: Path) -> tuple[int, ...]:
    """Return the release that a wheel is of."""
    return tuple(map(int, wheel.name.split("-")[1].split(".")))


def _ranges(
    name: str, version: int, releases: list[str], found: Mapping[str, tuple[bool, str]]
) -> Iterator[tuple[str, int, str, str, str, str]]:
    """Yield a row for each run of releases in which a setting does the same, if it does a thing."""
    nothing = (False, "")
    runs: list[tuple[str, tuple[bool, str]]] = []
    for release in releases:
        does = found.get(release, nothing)
        if not runs or runs[-1][1] != does:
            runs.append((release, does))
    ends = [since for since, _ in runs[1:]] + [""]
    for (since, does), until in zip(runs, ends, strict=True):
        if does != nothing:
            yield name, version, since, until, "yes" if does[0] else "no", does[1]


if __name__ == "__main__":
    sys.exit(main())
