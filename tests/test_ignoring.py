"""Comments that are written for findings are honoured where they land, and change nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.files.file import SourceFile, from_bytes
from fsdplint.fixes.apply import fixed
from fsdplint.outcome import Changes, Outcome
from fsdplint.settings.config import defaults
from fsdplint.suppression.add_ignore import with_comments

HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
"""
SAID = "# fsdplint: ignore[direct-forward] -- legacy"


def adopted(data: bytes) -> Changes:
    """What adding comments to a file of these bytes comes to."""
    source = from_bytes(data, "train.py")

    def recheck(overlay: Mapping[str, SourceFile]) -> Outcome:
        files = {source.path: source, **overlay}
        return check([source.path], defaults(), files, alone=True)

    return fixed(recheck({}), recheck, False, lambda found: with_comments(found, "legacy"))


def commented(body: str) -> str:
    """The body with its comments; nothing is left to report, and a second time nothing is added."""
    changes = adopted((HEAD + body).encode())
    assert (changes.outcome.findings, changes.notes) == ((), ())
    ((_, after),) = changes.files
    assert after.text.startswith(HEAD)
    assert adopted(after.encode()).files == ()
    return after.text.removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = model.forward(1)\n", f"x = model.forward(1)  {SAID}\n"),
        ("x = model.forward(1)", f"x = model.forward(1)  {SAID}"),
        ("x = model.forward(1)  # why\n", f"x = model.forward(1)  # why  {SAID}\n"),
        ("x = model.forward(\n    1\n)\ny\n", f"x = model.forward(\n    1\n)  {SAID}\ny\n"),
        ("x = (  # a\n    model.forward(1)\n)\n", f"x = (  # a\n    model.forward(1)\n)  {SAID}\n"),
        ("x = 1 + \\\n  model.forward(1)\n", f"x = 1 + \\\n  model.forward(1)  {SAID}\n"),
        ("x = model.forward('''\n# a\n''')\n", f"x = model.forward('''\n# a\n''')  {SAID}\n"),
        ('x = """\n""", model.forward("#")\n', f'x = """\n""", model.forward("#")  {SAID}\n'),
        ("if model.forward(1):\n    pass\n", f"if model.forward(1):  {SAID}\n    pass\n"),
        ("if x:\n\ty = model.forward(1)\n", f"if x:\n\ty = model.forward(1)  {SAID}\n"),
        ("x = model.forward(1); y = 2\n", f"x = model.forward(1); y = 2  {SAID}\n"),
        ("x = model.forward(model.forward(1))\n", f"x = model.forward(model.forward(1))  {SAID}\n"),
        ("x = model.forward(1)  # noqa: E501\n", f"x = model.forward(1)  # noqa: E501  {SAID}\n"),
    ],
)
def test_where_comments_land(before: str, after: str) -> None:
    assert commented(before) == after


def test_a_comment_of_ours_has_the_new_one_above_it() -> None:
    old = "    with model.no_sync(): model.forward(1)  # fsdplint: ignore[FSD303] -- old\n"
    assert commented(f"if x:\n{old}") == f"if x:\n    {SAID}\n{old}"


def test_all_rules_of_a_statement_are_in_one_comment() -> None:
    before = "with model.no_sync(): y = model.forward(1)\n"
    names = "no-sync-under-fsdp2, direct-forward"
    assert commented(before) == f"{before[:-1]}  # fsdplint: ignore[{names}] -- legacy\n"


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_bytes_stay(newline: str) -> None:
    text = HEAD + "\fx = model.forward('é')\ny = model.forward('é')"
    bom = b"\xef\xbb\xbf"
    data = bom + text.replace("\n", newline).encode()
    ((_, after),) = adopted(data).files
    expected = text.replace("\ny", f"  {SAID}\ny") + f"  {SAID}"
    assert after.encode() == bom + expected.replace("\n", newline).encode()


def test_what_no_comment_may_silence_is_left() -> None:
    changes = adopted(b"x = 1  # fsdplint: ignore[direct-forward]\n")
    assert changes.files == ()
    assert [finding.rule for finding in changes.outcome.findings] == ["unused-suppression"]
    assert [f.rule for f in adopted(b"fully_shard(\n").outcome.findings] == ["invalid-syntax"]


def test_every_fixture_can_be_adopted() -> None:
    scripts = Path(__file__).parent / "fixtures/scripts"
    for folder in sorted(scripts.iterdir()):
        path = min(folder.glob("*.py"))
        changes = adopted(path.read_bytes())
        assert (changes.outcome.findings, changes.notes) == ((), ()), path
