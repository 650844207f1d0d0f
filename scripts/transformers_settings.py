"""Write which settings of `TrainingArguments` have an effect, as transformers itself shows.

python scripts/transformers_settings.py RELEASE...

Each release, such as 5.24.0, is installed in a temporary folder; torch and accelerate are those of
the interpreter. In the table `src/fsdplint/knowledge/transformers_settings.csv` a row says in which
releases a setting of `fsdp_config` has an effect, and which words it takes. The version of FSDP is
what the setting `version` says, or 0 where `fsdp` does not turn FSDP on, but the environment of
`accelerate launch` does. Some names are no settings: `fsdp` has the values of the argument that
shard, with "+" between words, and names in brackets say what else holds; see `_others`. A test
compares the rows for the installed release.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from accelerate_settings import ANY, ROOT, WORDS, Row, measured_in, write

TABLE = ROOT / "src/fsdplint/knowledge/transformers_settings.csv"

# In one of these each setting shows that has an effect at all.
_SHARDING = (True, "full_shard auto_wrap")
_CONTEXTS: tuple[dict[str, object], ...] = (
    {},
    {"activation_checkpointing": True},
    {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 50},
)
_CLASSES = "transformer_layer_cls_to_wrap"
NAMES: dict[str, tuple[object, object]] = {
    "version": (1, 2),
    "sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP"),
    "backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST"),
    "backward_prefetch_policy": ("BACKWARD_PRE", "BACKWARD_POST"),
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "NO_WRAP"),
    _CLASSES: ("Block", "Linear"),
    "transformer_cls_names_to_wrap": ("Block", "Linear"),
    "min_num_params": (50, 100000),
    "state_dict_type": ("FULL_STATE_DICT", "SHARDED_STATE_DICT"),
    "ignored_modules": ("embed", "head"),
    "mixed_precision": ("bf16", "fp16"),
    "mixed_precision_policy": ("bf16", "fp16"),
}
"""Two values that differ in effect; of other settings these are true and false."""
_XLA = "xla"
OPTIONS = (
    *("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"),
    *("auto_wrap", "offload", "FULL_SHARD", "true"),
)


def measured() -> Iterator[Row]:
    """Yield what the installed release of transformers does with each setting.

    Raises:
        RuntimeError: it does not run here.
    """
    default = _effect(_SHARDING[0], "{}")
    if _fails(default):
        raise RuntimeError(default)
    for version in (1, 2):
        yield "(default)", version, json.loads(default)["version"] == version, ""
        for name, holds in _others(version):
            yield name, version, holds, ""
        yield "fsdp", version, True, " ".join(_accepted(version))
    for name in sorted(candidates()):
        for version in (0, 1, 2):
            found = name.startswith(_XLA) or _has_effect(name, version)
            words = _taken(name, version) if found and version else []
            yield name, version, found, " ".join(words)


def candidates() -> set[str]:
    """Return what may be a setting: fields of the plugin, and what transformers reads."""
    import transformers
    from accelerate import FullyShardedDataParallelPlugin

    own = {*FullyShardedDataParallelPlugin.__dataclass_fields__, *NAMES, "offload_params"}
    folder = Path(inspect.getfile(transformers)).parent
    files = ("trainer.py", "training_args.py", "integrations/tpu.py")
    text = "".join((folder / file).read_text("utf-8") for file in files if (folder / file).exists())
    # A loop over names reads some of them.
    calls = r"""fsdp_config(?:\.(?:get|setdefault)\(\s*|\[)["'](\w+)["']"""
    loops = re.findall(r"for param in (\[[^\]]+\]):\s+setattr\(fsdp_plugin", text)
    read = {*re.findall(calls, text), *itertools.chain(*map(ast.literal_eval, loops))}
    return {name.removeprefix("fsdp_") for name in {*own, *read}}


@functools.cache
def _effect(fsdp: str | bool | tuple[str, ...] | None, config: str, launched: bool = False) -> str:
    from transformers_effect import effect

    given = list(fsdp) if isinstance(fsdp, tuple) else fsdp
    return json.dumps(effect(given, json.loads(config), launched=launched), sort_keys=True)


def _with(version: int, fsdp: str | bool, config: dict[str, object]) -> str:
    """Return the effect of a config; of version 0, without `fsdp`."""
    if not version:
        return _effect(None, json.dumps(config), True)
    return _effect(fsdp, json.dumps({"version": version, **config}))


def _others(version: int) -> Iterator[tuple[str, bool]]:
    """Yield what holds, or does not, with a version of FSDP.

    "(strategy)": words of `fsdp` choose the strategy. "(wrap)": classes are wrapped without
    `auto_wrap` in `fsdp`. "(both)": a size and classes are taken together. "(prefix)": a name has
    the same effect with `fsdp_` in front, which it has in a JSON file in every release. "(list)": a
    list of words is refused if a text of them is.
    """
    strategies = {_with(version, fsdp, {}) for fsdp in ("full_shard", "shard_grad_op")}
    yield "(strategy)", len(strategies) > 1
    classes = {_with(version, "full_shard", {_CLASSES: cls}) for cls in NAMES[_CLASSES]}
    yield "(wrap)", len(classes) > 1
    both = _with(version, "full_shard auto_wrap", {_CLASSES: "Block", "min_num_params": 50})
    yield "(both)", not _fails(both)
    names = (_CLASSES, f"fsdp_{_CLASSES}")
    own = {_with(version, "full_shard auto_wrap", {name: "Linear"}) for name in names}
    yield "(prefix)", len(own) == 1
    yield "(list)", _fails(_effect(("full_shard", ANY), json.dumps({"version": version})))


def _fails(result: str) -> bool:
    return result.startswith('{"error"')


def _accepted(version: int) -> Iterator[str]:
    """Yield the values of `fsdp` that shard."""
    pairs = itertools.permutations(OPTIONS[:7], 2)
    for words in ((), *((word,) for word in OPTIONS), *pairs):
        value = " ".join(words) or True
        if "calls" in _effect(value, json.dumps({"version": version})):
            yield "+".join(words) or "True"


def _has_effect(name: str, version: int) -> bool:
    values = NAMES.get(name, (True, False))
    if name == "reshard_after_forward" and version == 1:
        values = ("full_shard", "shard_grad_op")
    for fsdp, context in itertools.product(_SHARDING, _CONTEXTS):
        others = {key: value for key, value in context.items() if key != name}
        results = [_with(version, fsdp, others)]
        results += [_with(version, fsdp, {**others, name: value}) for value in values]
        if len(set(results)) > 1 and not all(map(_fails, results)):
            return True
    return False


def _taken(name: str, version: int) -> list[str]:
    """Return the words that a setting takes; none if it takes any word.

    In capitals are also the values that YAML reads as something else than a text.
    """
    taken: list[str] = []
    # Only where blocks are wrapped by size is the size read.
    contexts = _CONTEXTS[2:] if name == "min_num_params" else _CONTEXTS
    for word in (*WORDS, *(word.lower() for word in WORDS if word.isupper())):
        value = yaml.safe_load(word)
        every = itertools.product(_SHARDING, contexts)
        if not all(_fails(_with(version, fsdp, {**given, name: value})) for fsdp, given in every):
            if word == ANY:
                return []
            taken.append(written(word, value))
    return taken


def written(word: str, value: object) -> str:
    """Return how the table has a word that YAML reads as ``value``."""
    if value is None:
        return "NONE"
    return str(value) if isinstance(value, str) else word.upper()


def main(arguments: list[str] | None = None) -> int:
    """Measure every release and write the table."""
    found: dict[str, list[Row]] = {}
    for version in sys.argv[1:] if arguments is None else arguments:
        release = ".".join(version.split(".")[:2])
        try:
            found[release] = _of_release(version)
            print(f"{release}: {sum(row[2] for row in found[release])} rows", file=sys.stderr)
        except subprocess.CalledProcessError as error:
            reason = (error.stderr or "it cannot be installed").strip().splitlines()[-1]
            print(f"{release} does not run: {reason}", file=sys.stderr)
    write(TABLE, "transformers", found)
    return 0


def _of_release(version: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        named = [f"transformers=={version}", "--target", folder]
        subprocess.run([*install, *named], check=True, stderr=subprocess.DEVNULL)
        return measured_in([folder], "transformers_settings")


if __name__ == "__main__":
    sys.exit(main())
