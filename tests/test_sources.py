"""Files whose text is not held, as in a large tree, are seen as those that are."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint import check as checking
from fsdplint import sources
from fsdplint.check import check
from fsdplint.files import disk
from fsdplint.outcome import Outcome, State
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING
from fsdplint.sources import Sources

PROJECTS = sorted(p for p in (Path(__file__).parent / "fixtures/projects").iterdir() if p.is_dir())


@pytest.fixture
def none_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MAX_HELD", 0)
    monkeypatch.setattr(checking, "_MAX_PARSED", -1)


def told(outcome: Outcome) -> tuple[object, ...]:
    return outcome.findings, outcome.failures, outcome.partly, outcome.accounts


@pytest.mark.parametrize("root", PROJECTS, ids=lambda path: path.name)
def test_a_run_that_holds_no_text_ends_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_MAX_PARSED", -1)
    before = told(check([root], defaults(EVERYTHING)))
    monkeypatch.setattr(sources, "_MAX_HELD", 0)
    assert told(check([root], defaults(EVERYTHING))) == before


@pytest.mark.usefixtures("none_held")
def test_text_that_says_nothing_of_sharding_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("def area(radius):\n    return 3 * radius**2\n")
    (tmp_path / "silent.py").write_text("x = 1  # fsdplint: ignore[direct-forward] -- none\n")
    (tmp_path / "shard.py").write_text("from torch.distributed.fsdp import fully_shard\n")
    outcome = check([tmp_path], defaults(EVERYTHING))
    assert sorted(Path(path).name for path in outcome.sources) == ["shard.py", "silent.py"]
    assert [(Path(f.span.path).name, f.rule) for f in outcome.findings] == [
        ("silent.py", "unused-suppression")
    ]


@pytest.mark.usefixtures("none_held")
def test_a_given_file_that_is_not_python_is_told_with_its_text(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def area(radius:\n")
    outcome = check([broken], defaults(EVERYTHING))
    assert [finding.rule for finding in outcome.findings] == ["invalid-syntax"]
    assert list(outcome.sources) == [broken.as_posix()]


@pytest.mark.usefixtures("none_held")
def test_a_file_that_is_changed_meanwhile_is_told_and_not_mixed(tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text("x = 1\n")
    with disk.Notes() as notes:
        read = Sources()
        assert read.text(plain) == "x = 1\n"
        plain.write_text("x = 2\n")
        assert read.text(plain) is None
        assert read.hold(plain.as_posix()) is None
    assert read.failures == []
    assert [error.reason for error in read.lost] == ["was changed while it was checked"]
    assert not notes.repeatable


@pytest.mark.usefixtures("none_held")
def test_an_inspection_has_the_text_of_all_that_it_shows(tmp_path: Path) -> None:
    (tmp_path / "build.py").write_text("from torch import nn\n\nmodel = nn.Linear(8, 8)\n")
    text = "from torch.distributed.fsdp import fully_shard\nfrom build import model\n"
    (tmp_path / "train.py").write_text(f"{text}fully_shard(model)\n")
    _, outcome = checking.inspect(tmp_path / "train.py")
    assert {"build.py", "train.py"} <= {Path(path).name for path in outcome.sources}


@pytest.mark.usefixtures("none_held")
def test_a_file_beside_the_given_one_that_goes_meanwhile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("from torch import nn\n\nmodel = nn.Linear(8, 8)\n")
    text = "from torch.distributed.fsdp import fully_shard\nfrom helper import model\n"
    train = tmp_path / "train.py"
    train.write_text(f"{text}fully_shard(model)\nmodel.forward(1)\n")
    note = checking._note

    def without_helper(*args: object) -> None:
        helper.unlink()
        note(*args)  # type: ignore[arg-type]  # what it is called with

    monkeypatch.setattr(checking, "_note", without_helper)
    outcome = check([train], defaults(EVERYTHING))
    (error,) = outcome.failures
    assert (error.path, error.reason) == (helper.as_posix(), "was changed while it was checked")


@pytest.mark.usefixtures("none_held")
def test_a_run_tells_of_a_file_that_is_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("import shard\n")
    (tmp_path / "shard.py").write_text("from torch.distributed.fsdp import fully_shard\n")
    found = checking._findings

    def changing(*args: object) -> object:
        helper.write_text("import shard\nx = 2\n")
        return found(*args)  # type: ignore[arg-type]  # what it is called with

    monkeypatch.setattr(checking, "_findings", changing)
    outcome = check([tmp_path], defaults(EVERYTHING))
    (error,) = outcome.failures
    assert (error.path, error.reason) == (helper.as_posix(), "was changed while it was checked")
    (account,) = outcome.ended(State.FAILED)
    assert account.path == helper.as_posix()
