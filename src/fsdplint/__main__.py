"""``python -m fsdplint``."""

from fsdplint.cli import main

main()
