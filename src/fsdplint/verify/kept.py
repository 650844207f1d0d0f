"""What a run that saves keeps for those that resume, in one folder: files, named by the step."""

from __future__ import annotations

from pathlib import Path


def mark(folder: Path, step: int, optimizer: bool) -> None:
    """Leave word of a save after so many steps, with an optimizer's state or without."""
    (folder / f"{step}.{'whole' if optimizer else 'model'}").touch()


def chosen(folder: Path) -> int | None:
    """Return the step of the save to resume from: the first with an optimizer's state, or else
    the first; None without a save."""
    for kind in ("whole", "model"):
        steps = [int(file.stem) for file in folder.glob(f"*.{kind}")]
        if steps:
            return min(steps)
    return None


def files(folder: Path, step: int) -> Path:
    """Return where the working directory is as it was then."""
    return folder / f"files-{step}"


def state_file(folder: Path, step: int, rank: int) -> Path:
    """Return where a rank's state is."""
    return folder / f"{rank}.{step}.state"


def state_files(folder: Path, step: int) -> list[Path]:
    """Return the states of all ranks that have kept one."""
    return sorted(folder.glob(f"*.{step}.state"))
