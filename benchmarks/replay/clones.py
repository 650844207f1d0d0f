"""Files of public repositories at the commits that a table names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# What a check reads; weights, pictures and data stay where they are.
_READ = (b".py", b".pyi", b".ipynb", b".toml", b".gitignore")
_CHECKOUT = ("checkout", "--force", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul")


def clone(folder: Path, repo: str, origin: str) -> Path | None:
    """The git directory of a repository; cloned without its files' contents if it is not there."""
    place = folder / repo.replace("/", "+")
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["git", "clone", "--quiet", "--bare", "--filter=blob:none", origin + repo, place]
        if subprocess.run(command, check=False).returncode:
            return None
    return place / ".git" if (place / ".git").is_dir() else place


def files_of(place: Path, commit: str, into: Path) -> bool:
    """Write what a check reads of a commit; return whether there is such a commit.

    A clone may lack a large notebook, which is left out.
    """
    git = ["git", f"--git-dir={place}", "-c", "core.quotePath=off"]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", "--name-only", commit], capture_output=True, check=False
    )
    if listed.returncode:
        return False
    wanted = [name for name in listed.stdout.split(b"\0") if name.endswith(_READ)]
    subprocess.run(
        [*git, f"--work-tree={into}", *_CHECKOUT, commit],
        input=b"\0".join(b":(literal)" + name for name in wanted),
        env={**os.environ, "GIT_INDEX_FILE": str(into / ".git-index"), "GIT_LFS_SKIP_SMUDGE": "1"},
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return True
