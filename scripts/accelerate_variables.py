"""Write which variables of the environment have an effect, as each release of accelerate shows.

python scripts/accelerate_variables.py WHEELS

WHEELS is a folder of accelerate's wheels, one for each minor release. The table
`src/fsdplint/knowledge/accelerate_variables.csv` has a row for each variable, version of FSDP and
range of releases: whether it has an effect under torchrun with FSDP turned on. In the rows that
begin with `accelerate launch` it is set where that runs, which sets variables by itself: the word
is what it sets with no option but `--use_fsdp`. The row of the switch has the words that turn FSDP
on. A test compares the rows for the installed release.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import accelerate_settings as settings

TABLE = settings.ROOT / "src/fsdplint/knowledge/accelerate_variables.csv"
SWITCH = "ACCELERATE_USE_FSDP"
LAUNCHED = "accelerate launch "
# Words that somebody may take for true.
_TRUE = ("true", "True", "TRUE", "1", "yes", "on")
_CONTEXTS = (
    {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_ACTIVATION_CHECKPOINTING": "true"},
    {"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP", "FSDP_MIN_NUM_PARAMS": "50"},
)
# A setting whose variable has another name.
_VALUES = {
    "FSDP_TRANSFORMER_CLS_TO_WRAP": ("Block", "Linear"),
    "FSDP_RESHARD_AFTER_FORWARD": ("true", "false", "FULL_SHARD", "SHARD_GRAD_OP"),
}


def measured() -> Iterator[settings.Row]:
    """Yield what the installed release of accelerate does with each variable."""
    on = " ".join(word for word in _TRUE if "calls" in json.loads(_effect(_key({SWITCH: word}))))
    sets = _default()
    for version in (1, 2):
        yield SWITCH, version, True, on
        for name in sorted(_candidates()):
            yield name, version, _has_effect(name, version), ""
            yield f"{LAUNCHED}{name}", version, _passes_launcher(name, version), sets.get(name, "")


def _candidates() -> set[str]:
    """Return what may be a variable: of settings, fields of the plugin, and what code names."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils import launch

    fields = FullyShardedDataParallelPlugin.__dataclass_fields__
    code = inspect.getsource(FullyShardedDataParallelPlugin.__post_init__)
    named = re.findall(r"prefix \+ \"([A-Z_]+)\"", code)
    read = re.findall(r"\bFSDP_[A-Z_]+\b", code + inspect.getsource(launch))
    own = {f"FSDP_{name.removeprefix('fsdp_')}".upper() for name in (*fields, *named)}
    return {*own, *read, *map(str.upper, settings._candidates())}


@functools.cache
def _effect(variables: tuple[tuple[str, str], ...]) -> str:
    from accelerate_effect import effect_of_variables

    return json.dumps(effect_of_variables(dict(variables)), sort_keys=True)


@functools.cache
def _launched(version: int, variables: tuple[tuple[str, str], ...]) -> str:
    from accelerate_effect import effect

    text = settings.config({"fsdp_version": str(version)})
    return json.dumps(effect(text, variables=dict(variables)), sort_keys=True)


def _default() -> Mapping[str, str]:
    from accelerate_effect import handed_on

    found = handed_on(("--use_fsdp",)).items()
    return {name: value.upper() for name, value in found if name.startswith("FSDP_")}


def _key(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(variables.items()))


def _values(name: str) -> tuple[str, ...]:
    return _VALUES.get(name) or settings._NAMES.get(name.lower(), ("true", "false"))


def _has_effect(name: str, version: int) -> bool:
    for context in _CONTEXTS:
        others = {SWITCH: "true", "FSDP_VERSION": str(version), **context}
        others.pop(name, None)
        results = [_effect(_key(others))]
        results += [_effect(_key({**others, name: value})) for value in _values(name)]
        if len(set(results)) > 1 and not all(map(settings._fails, results)):
            return True
    return False


def _passes_launcher(name: str, version: int) -> bool:
    for context in _CONTEXTS:
        others = {key: value for key, value in context.items() if key != name}
        results = {_launched(version, _key(others))}
        results |= {_launched(version, _key({**others, name: value})) for value in _values(name)}
        if len(results) > 1:
            return True
    return False


def main(arguments: list[str] | None = None) -> int:
    """Measure every wheel and write the table."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    return settings.measure(Path(folder), "accelerate", "accelerate_variables", TABLE)


if __name__ == "__main__":
    sys.exit(main())
