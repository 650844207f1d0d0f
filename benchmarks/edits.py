"""What the language server keeps between edits changes no result.

    python -m benchmarks.edits FOLDER… [--edits 1000] [--seed 0]

Edits a random file of a random project in memory: a line is removed, repeated, moved or commented
out. After each edit, the analysis that has seen all edits before has to find exactly what a new one
finds. Prints the edits after which they differ, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdplint.outcome import Outcome
from fsdplint.server.analysis import Analysis, Choices, as_file


@dataclass(frozen=True, slots=True)
class Difference:
    """An edit after which the two analyses differ: the file and its text."""

    file: str
    text: str


def differences(folders: Sequence[Path], edits: int, seed: int) -> Iterator[Difference]:
    """Yield the edits after which a warm analysis does not find what a cold one does."""
    chance = random.Random(seed)
    projects = [(folder, Analysis(folder.as_posix()), dict(_texts(folder))) for folder in folders]
    for _ in range(edits):
        folder, warm, texts = chance.choice(projects)
        file = chance.choice(sorted(texts))
        texts[file] = edited(texts[file], chance)
        found = (_findings(each, texts) for each in (warm, Analysis(folder.as_posix())))
        if next(found) != next(found):
            yield Difference(file, texts[file])


def edited(text: str, chance: random.Random) -> str:
    """Return ``text`` with one line removed, repeated, moved or commented out."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return text + "x = 1\n"
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.choice(("remove", "repeat", "move", "comment")):
        case "remove":
            del lines[at]
        case "repeat":
            lines.insert(at, lines[at])
        case "move":
            lines.insert(to, lines.pop(at))
        case "comment":
            lines[at] = f"# {lines[at]}"
    return "".join(lines)


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.resolve().rglob("*.py")):
        yield file.as_posix(), file.read_text("utf-8")


def _findings(analysis: Analysis, texts: dict[str, str]) -> object:
    buffers = {path: as_file(path, text) for path, text in texts.items()}
    outcome: Outcome = analysis.check(sorted(texts), Choices(preview=True), buffers)
    return outcome.findings, outcome.failures, outcome.partly, outcome.accounts


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare warm analyses with cold ones.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = list(differences(given.folders, given.edits, given.seed))
    for each in found:
        print(f"{each.file}: differs after this edit\n{each.text}")
    print(f"{given.edits} edits of {len(given.folders)} projects: {len(found)} differ")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
