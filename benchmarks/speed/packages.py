"""The packages that are checked: pinned wheels from PyPI, and the Python files of torch."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

PINS = Path(__file__).with_name("packages.txt")


def pinned() -> dict[str, str]:
    """The line that pins each package, with its hash, by the package's name."""
    lines = PINS.read_text().splitlines()
    return {line.partition("==")[0]: line for line in lines}


def fetched(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The packages unpacked below ``folder``, each in a folder with its name and version.

    Raises:
        subprocess.CalledProcessError: pip cannot get one, or it is not what is pinned.
    """
    pins = pinned()
    return {
        name: _torch(folder) if name == "torch" else _wheel(folder, pins[name]) for name in names
    }


def _wheel(folder: Path, pin: str) -> Path:
    name, _, rest = pin.partition("==")
    target = folder / f"{name}-{rest.split()[0]}"
    if not target.exists():
        wheels = folder / "wheels" / name
        wheels.mkdir(parents=True, exist_ok=True)
        wanted = wheels / "wanted.txt"
        wanted.write_text(f"{pin}\n")
        options = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--quiet")
        pip = (sys.executable, "-m", "pip", "download", *options)
        subprocess.run([*pip, "--dest", str(wheels), "--requirement", str(wanted)], check=True)
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            _whole(target, archive.extractall)
    return target


def _torch(folder: Path) -> Path:
    """The Python files of the installed torch: its wheel is a gigabyte of other things."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed")
    source = Path(spec.origin).parent
    target = folder / f"torch-{version('torch')}"

    def copy(to: Path) -> None:
        for file in sorted(source.rglob("*.py")):
            place = to / "torch" / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)

    if not target.exists():
        _whole(target, copy)
    return target


def _whole(target: Path, fill: Callable[[Path], None]) -> None:
    """Fills a folder that is only there once it is filled."""
    unfinished = target.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    fill(unfinished)
    unfinished.rename(target)
