"""Whether findings are the same without the scan, from the cache and by several processes.

    python -m benchmarks.speed.identical FOLDER…

Each folder is checked by a new process with an empty cache, again from that cache, with nothing
left of it but what files were lowered to, without a cache, with processes that lower ahead however
little there is, and with every file taken for one that shards; the last may take long. What these
runs find is compared as JSON, evidence and fixes included. It exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_CHECK = "from fsdplint.cli.main import main; main()"
# In the place of the scan: every file is a unit.
_EVERY = """
from fsdplint.engine import program
from fsdplint.engine.project.reachability import mark_reachability

def every(project, files, focus=None):
    units = [unit for path in files if (unit := project.unit(path)) is not None]
    mark_reachability(project, units)
    return units

program.related_units = every
"""
# In the place of the few that pay: a process for every few files.
_AHEAD = """
from fsdplint.engine.frontend import parallel

parallel._cores = lambda: 5
parallel._CHARACTERS_EACH = 1
"""


def found(folder: Path, code: str, options: tuple[str, ...], variables: Mapping[str, str]) -> str:
    """The findings in a folder, as text that is the same for the same findings."""
    command = (sys.executable, "-c", code, "check", "--isolated", "--preview", *options)
    arguments = ("--select", "ALL", "--output-format", "json", str(folder.resolve()))
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            (*command, *arguments),
            cwd=elsewhere,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
    try:
        findings = json.loads(done.stdout)["findings"]
    except ValueError:
        raise SystemExit(f"{folder}: {done.stderr}") from None
    return "\n".join(sorted(json.dumps(finding, sort_keys=True) for finding in findings))


def _in_an_empty_cache(folder: Path, code: str) -> str:
    with tempfile.TemporaryDirectory() as cache:
        return found(folder, code, (), {"FSDPLINT_CACHE_DIR": cache})


def differences(folder: Path) -> dict[str, set[str]]:
    """The findings that come or go in each of the other ways to check a folder."""
    with tempfile.TemporaryDirectory() as cache:
        variables = {"FSDPLINT_CACHE_DIR": cache}
        usual = found(folder, _CHECK, (), variables)
        print(f"{folder}: {len(usual.splitlines())} findings", flush=True)
        others = {"from the cache": found(folder, _CHECK, (), variables)}
        for run in Path(cache).glob("*.run"):
            run.unlink()
        others |= {
            "from what was lowered": found(folder, _CHECK, (), variables),
            "by several processes": _in_an_empty_cache(folder, _AHEAD + _CHECK),
            "without a cache": found(folder, _CHECK, ("--no-cache",), {}),
            "without the scan": found(folder, _EVERY + _CHECK, ("--no-cache",), {}),
        }
    return {
        way: set(usual.splitlines()) ^ set(text.splitlines())
        for way, text in others.items()
        if text != usual
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    different = False
    for folder in parser.parse_args().folders:
        for way, findings in differences(folder).items():
            different = True
            print(f"{folder}: {len(findings)} differ {way}")
            print(*(f"  {finding[:300]}" for finding in sorted(findings)), sep="\n", flush=True)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
