"""Write which settings of FSDP in axolotl's files have an effect, as axolotl itself shows.

python scripts/axolotl_settings.py SOURCES

SOURCES is a folder with the unpacked wheel or source distribution of each minor release, such as
`axolotl-0.19.0`. Each runs with the releases of transformers and accelerate that it requires, which
are installed in a temporary folder; torch, pydantic and addict are those of the interpreter. In the
table `src/fsdplint/knowledge/axolotl_settings.csv` a row says in which releases a setting of
`fsdp_config` has an effect, and which words it takes. Names in brackets are no settings; they say
what else holds, see `_others`, and `fsdp` has the values of the list that shard.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from accelerate_settings import ANY, ROOT, WORDS, Row, measured_in, write
from transformers_settings import NAMES, OPTIONS, candidates, written

TABLE = ROOT / "src/fsdplint/knowledge/axolotl_settings.csv"

_PREFIX = "fsdp_"
_LIST = ["full_shard", "auto_wrap"]
# In one of these each setting shows that has an effect at all.
_CONTEXTS: tuple[dict[str, object], ...] = (
    {},
    {"fsdp_offload_params": True},
    {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 50},
)
_VALUES: Mapping[str, tuple[object, object]] = {
    **NAMES,
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"),
    "final_state_dict_type": ("FULL_STATE_DICT", "SHARDED_STATE_DICT"),
}


def measured() -> Iterator[Row]:
    """Yield what a release of axolotl does with each setting.

    Raises:
        RuntimeError: it does not run here.
    """
    for version in (1, 2):
        first = _with(version, {})
        # The first releases know FSDP1 only.
        if _fails(first) and version == 1:
            raise RuntimeError(first)
        for name, holds in _others(version):
            yield name, version, holds, ""
        yield "fsdp", version, True, " ".join(_accepted(version))
    every = {*candidates(), *_own(), "limit_all_gathers"}
    for name, prefix, version in itertools.product(sorted(every), ("", _PREFIX), (1, 2)):
        if not name.startswith("xla"):
            found = _has_effect(name, prefix, version)
            taken = _taken(name, prefix, version) if found else []
            yield prefix + name, version, found, " ".join(taken)


def _own() -> set[str]:
    """Return what axolotl's code reads of `fsdp_config`."""
    import axolotl

    (folder,) = axolotl.__path__
    text = "".join(path.read_text("utf-8") for path in Path(folder).glob("utils/**/*.py"))
    read = re.findall(r"fsdp_config\.(\w+)|class FSDPConfig(?s:(.*?))\n\S", text)
    names = [name for name, _ in read] + re.findall(r"^    (\w+):", read[-1][1], re.MULTILINE)
    fields = (re.findall(r"^    (\w+):", body, re.MULTILINE) for _, body in read)
    every = {*names, *itertools.chain(*fields)} - {"", "items", "get", "pop"}
    return {name.removeprefix(_PREFIX) for name in every}


@functools.cache
def _effect(config: str) -> str:
    from axolotl_effect import effect

    return json.dumps(effect(json.loads(config)), sort_keys=True)


def _with(version: int, settings: Mapping[str, object], **top: object) -> str:
    """Return the effect of settings in `fsdp_config`; what ``top`` has as None is left out."""
    config = {"fsdp_version": version, **settings}
    given = {"fsdp": _LIST, "bf16": True, "fsdp_config": config, **top}
    return _effect(json.dumps({name: value for name, value in given.items() if value is not None}))


def _fails(result: str) -> bool:
    return result.startswith('{"error"')


def _shards(result: str) -> bool:
    return '"calls"' in result


def _others(version: int) -> Iterator[tuple[str, bool]]:
    """Yield what holds, or does not, with a version of FSDP.

    "(default)": it is the version if none is given, "(version)": `fsdp_version` beside
    `fsdp_config` chooses it, "(version alone)": without a section it shards, too.
    "(section)": `fsdp_config` shards without `fsdp`. "(list)": `fsdp` shards without `fsdp_config`.
    "(text)": `fsdp` may be no list. "(strategy)": words of `fsdp` choose the strategy.
    "(beside)": a setting beside `fsdp_config` has an effect, "(final)":
    `fsdp_final_state_dict_type` has. "(checkpointing)": `gradient_checkpointing` is taken together
    with `activation_checkpointing`. "(size)": a size has an effect without a policy. "(classes)":
    classes may be a list.
    """
    default = _with(version, {}, fsdp_config={"fsdp_offload_params": False})
    yield "(default)", json.loads(default).get("version") == version
    yield "(section)", _shards(_with(version, {"fsdp_offload_params": False}, fsdp=None))
    yield "(list)", _shards(_with(version, {}, fsdp_version=version, fsdp_config=None))
    strategies = {_with(version, {}, fsdp=[word]) for word in ("full_shard", "shard_grad_op")}
    yield "(strategy)", len(strategies) > 1
    config = {"fsdp_offload_params": False}
    chosen = _with(version, {}, fsdp_version=version, fsdp_config=config)
    yield "(version)", json.loads(chosen).get("version") == version
    alone = _with(version, {}, fsdp_version=version, fsdp=None, fsdp_config=None)
    yield "(version alone)", _shards(alone)
    types = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
    yield "(final)", len({_with(version, {}, fsdp_final_state_dict_type=t) for t in types}) > 1
    both = _with(version, {"fsdp_activation_checkpointing": True}, gradient_checkpointing=True)
    yield "(checkpointing)", not _fails(both)
    other = (_with(version, {}, fsdp=value) for value in ("full_shard auto_wrap", True))
    yield "(text)", any(map(_shards, other))
    beside = _with(version, {}, fsdp_offload_params=True, offload_params=True)
    yield "(beside)", beside != _with(version, {})
    sizes = {_with(version, {"fsdp_min_num_params": size}) for size in (50, 100000)}
    yield "(size)", len(sizes) > 1
    classes = {"fsdp_transformer_layer_cls_to_wrap": ["Block"]}
    yield "(classes)", not _fails(_with(version, classes))


def _accepted(version: int) -> Iterator[str]:
    """Yield the lists of `fsdp` that shard, with "+" between the words."""
    pairs = itertools.permutations(OPTIONS[:7], 2)
    for words in (*((word,) for word in OPTIONS), *pairs):
        if _shards(_with(version, {}, fsdp=list(words))):
            yield "+".join(words)


def _has_effect(name: str, prefix: str, version: int) -> bool:
    values = _VALUES.get(name, (True, False))
    for others in _contexts(name):
        results = [_with(version, others)]
        results += [_with(version, {**others, prefix + name: value}) for value in values]
        if len(set(results)) > 1 and not all(map(_fails, results)):
            return True
    return False


def _contexts(name: str) -> Iterator[dict[str, object]]:
    for context in _CONTEXTS:
        yield {key: value for key, value in context.items() if key != _PREFIX + name}


def _taken(name: str, prefix: str, version: int) -> list[str]:
    """Return the words that a setting takes; none if it takes any word.

    In capitals are also the values that YAML reads as something else than a text.
    """
    taken: list[str] = []
    # Only where blocks are wrapped by size is the size read.
    contexts = list(_contexts(name))[2 * (name == "min_num_params") :]
    for word in (*WORDS, *(word.lower() for word in WORDS if word.isupper())):
        value = yaml.safe_load(word)
        if not all(_fails(_with(version, {**each, prefix + name: value})) for each in contexts):
            if word == ANY:
                return []
            taken.append(written(word, value))
    return taken


def main(arguments: list[str] | None = None) -> int:
    """Measure every release and write the table."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    found: dict[str, list[Row]] = {}
    for source in sorted(Path(folder).glob("axolotl-*"), key=_version):
        release = ".".join(map(str, _version(source)[:2]))
        try:
            found[release] = _of_source(source)
            print(f"{release}: {sum(row[2] for row in found[release])} rows", file=sys.stderr)
        except subprocess.CalledProcessError as error:
            reason = (error.stderr or "it cannot be installed").strip().splitlines()[-1]
            print(f"{release} does not run: {reason}", file=sys.stderr)
    write(TABLE, "axolotl", found)
    return 0


def _version(source: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", source.name)))


def _of_source(source: Path) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        install(source, folder)
        (package,) = (path.parent.parent for path in source.glob("**/axolotl/train.py"))
        return measured_in([folder, str(package)], "axolotl_settings")


def install(source: Path, folder: str) -> None:
    """Install what a release requires of transformers and accelerate in a folder."""
    for name, options in (("transformers", ()), ("accelerate", ("--no-deps",))):
        named = f"{name}=={_required(source, name)}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *options]
        command += ["--target", folder, named]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def _required(source: Path, name: str) -> str:
    """Return the release of a package that the metadata of a release of axolotl names."""
    for pattern in ("*.dist-info/METADATA", "requirements.txt", "pyproject.toml"):
        for path in source.glob(pattern):
            found = re.search(rf"\b{name}\s*[=>]=\s*([\d.]+)", path.read_text("utf-8"))
            if found:
                return found[1]
    raise FileNotFoundError(f"{source} says no release of {name}")


if __name__ == "__main__":
    sys.exit(main())
