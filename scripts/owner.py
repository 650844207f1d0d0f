"""Write the name of the repository's owner wherever the project gives its own address.

python scripts/owner.py NAME
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?"
# As a repository, as what a workflow uses, and as the site that GitHub serves.
_ADDRESS = re.compile(
    rf"(?P<before>github\.com/|uses: |//)(?P<owner>{_NAME})(?=(?:\.github\.io)?/fsdplint\b)"
)


def main(arguments: list[str] | None = None) -> int:
    """Write the name; the exit status is 2 if it cannot be the name of an owner on GitHub."""
    parser = argparse.ArgumentParser(description="Set the owner of the repository.")
    parser.add_argument("name", help="user or organization on GitHub")
    name = parser.parse_args(arguments).name
    if not re.fullmatch(_NAME, name):
        print(f"owner: {name!r} is not a name on GitHub", file=sys.stderr)
        return 2
    for path in texts(ROOT):
        text = path.read_bytes().decode()
        changed = renamed(text, name)
        if changed != text:
            path.write_bytes(changed.encode())
            print(path.relative_to(ROOT).as_posix())
    return 0


def texts(root: Path) -> list[Path]:
    """Return the files of the repository that can hold its address: no fixture, no picture."""
    command = ["git", "ls-files", ":!tests/fixtures", ":!benchmarks", ":!*.png"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return [root / name for name in listed.stdout.splitlines() if (root / name).is_file()]


def owners(text: str) -> set[str]:
    """Return the owners in the addresses of fsdplint that ``text`` has."""
    return {found["owner"] for found in _ADDRESS.finditer(text)}


def renamed(text: str, name: str) -> str:
    """Return ``text`` with the owner ``name`` in the addresses of fsdplint."""
    return _ADDRESS.sub(lambda found: f"{found['before']}{name}", text)


if __name__ == "__main__":
    sys.exit(main())
