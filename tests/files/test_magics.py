from __future__ import annotations

import pytest

from fsdplint.files.notebook import mask


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("pip install x\n", "#ip install x\n"),
        ("cd ~/data\n", "#d ~/data\n"),
        ("pip = 3\n", "pip = 3\n"),
        ("ls[0]\n", "ls[0]\n"),
        ("cat is None\n", "cat is None\n"),
    ],
)
def test_a_magic_needs_no_percent_sign_at_the_start_of_a_line(line: str, masked: str) -> None:
    assert mask(line) == masked
