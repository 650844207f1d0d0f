"""What to verify, and how: the settings that the parent and every rank share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

REQUEST_FILE = "request.json"
REQUEST_VARIABLE = "FSDPLINT_VERIFY"
"""The environment variable with the folder of a rank's request and records."""
RELEASE = "release"
"""The file that releases ended ranks. Until it exists, they hold their connections, so that the end
of one rank does not look like a network error to another."""
SURROUNDINGS = "up"
"""Inside the records' folder, what stands for the folders around the working directory."""
SCRATCH = f"{SURROUNDINGS}/up/cwd"
"""The scratch copy of the working directory, inside the records' folder."""


@dataclass(frozen=True, slots=True)
class Request:
    """One verification.

    Attributes:
        script: the script, relative to the working directory.
        arguments: what follows the script's name in its ``sys.argv``.
        ranks: processes on this node.
        steps: optimizer steps after which each rank is ended; None runs the script to its end.
        device: ``auto`` (CUDA where there is a device for each rank), ``cpu`` or ``cuda``.
        timeout: seconds after which ranks that still run are stopped.
        launcher: options handed through to ``torch.distributed.run``.
        reference: compare with a run of one process, in which nothing is sharded.
        capture: the folder for the recording of the sharded run.
        replay: the folder with that recording, in the unsharded run.
        directory: the working directory that the ranks have a copy of.
        resume: start again from the first save, on each of these numbers of ranks.
        resume_arguments: further arguments of the script in resumed runs.
        clauses: those to judge; all where none is named.
        shrink: build models that take a configuration with fewer layers and a smaller width.
        keep: the folder for the state at a save, in the run that saves.
        resumed: the folder to compare with, in a run that resumes.
        record: the folder for what a run computes and saves.
        origin: the folder with the record of a run of another version of the program, whose random
            numbers this run starts from.
        watched: the files, relative to the working directory, whose lines that run are noted.
    """

    script: str
    arguments: tuple[str, ...] = ()
    ranks: int = 2
    steps: int | None = 3
    device: str = "auto"
    timeout: float = 300.0
    launcher: tuple[str, ...] = ()
    reference: bool = False
    capture: str = ""
    replay: str = ""
    directory: str = ""
    resume: tuple[int, ...] = ()
    resume_arguments: tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()
    shrink: bool = False
    keep: str = ""
    resumed: str = ""
    record: str = ""
    origin: str = ""
    watched: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the request where ranks look for it."""
        (folder / REQUEST_FILE).write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> Request:
        """Read what `write` wrote."""
        fields = json.loads((folder / REQUEST_FILE).read_text("utf-8"))
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        return Request(**fields | lists)
