"""Write which settings in `parallelism_config` are read, as each release of accelerate shows.

python scripts/parallelism_settings.py WHEELS

WHEELS is a folder of accelerate's wheels, as for `accelerate_settings.py`. The table
`src/fsdplint/knowledge/parallelism_settings.csv` has a row for each setting that changes what the
launcher hands to the ranks, with the releases; those without any do not take the section. A test
compares the rows for the installed release.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from accelerate_settings import ROOT, Row, measure

TABLE = ROOT / "src/fsdplint/knowledge/parallelism_settings.csv"

_FORM = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 2
main_process_port: 0
fsdp_config:
  fsdp_version: 2
parallelism_config:
"""
_PREFIX = "parallelism_config_"
_VALUES = ("1", "2")
# The launcher hands other settings of the two on only with these.
_CONTEXTS = ({}, {f"{_PREFIX}cp_size": "2"}, {f"{_PREFIX}sp_size": "2"})


def measured() -> Iterator[Row]:
    """Yield what the installed release of accelerate does with each setting.

    Raises:
        RuntimeError: it does not take the section.
    """
    if _handed_on({f"{_PREFIX}tp_size": "1"}) is None:
        raise RuntimeError("no parallelism_config")
    for name in sorted(_candidates()):
        yield name, 2, _has_effect(name), ""


def _candidates() -> set[str]:
    """Return what may be a setting: options of the launcher, and what they are without a prefix."""
    from accelerate.commands.launch import launch_command_parser

    options = {action.dest for action in launch_command_parser()._actions}
    full = {name for name in options if name.startswith(_PREFIX)}
    return full | {name.removeprefix(_PREFIX) for name in full}


def _has_effect(name: str) -> bool:
    results = ([_handed_on({**given, name: value}) for value in _VALUES] for given in _CONTEXTS)
    return any(one != other for one, other in results)


def _handed_on(settings: dict[str, str]) -> dict[str, str] | None:
    """Return what the launcher puts into the environment for this, None if it refuses it."""
    from accelerate_effect import environment, launched

    lines = "".join(f"  {name}: {value}\n" for name, value in settings.items())
    with environment():
        try:
            launched(_FORM + lines)
        except Exception:  # whatever stops it is the result
            return None
        return {name: value for name, value in os.environ.items() if "PARALLELISM" in name}


def main(arguments: list[str] | None = None) -> int:
    """Measure every wheel and write the table."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    return measure(Path(folder), "accelerate", "parallelism_settings", TABLE)


if __name__ == "__main__":
    sys.exit(main())
