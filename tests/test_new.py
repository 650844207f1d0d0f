"""`fsdplint new`: its projects have no findings, train and resume, and are written whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fsdplint.cli.main import cli
from fsdplint.new.render import Features, render
from fsdplint.new.write import create
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Status
from fsdplint.verify.warm_launcher import Warm

EVERY = [Features(*flags) for flags in product((False, True), repeat=5)]
POSSIBLE = [each for each in EVERY if not (each.accelerate and (each.tp or each.meta))]
SMALL = ("--dim", "16", "--depth", "2", "--heads", "2", "--length", "8", "--save-every", "3")


def name(features: Features) -> str:
    """Its flags, as the name of a project."""
    given = zip(Features.__slots__, astuple(features), strict=True)
    return "-".join(["new", *(flag for flag, is_given in given if is_given)])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project of each kind."""
    folder = tmp_path_factory.mktemp("projects")
    for features in POSSIBLE:
        create(folder / name(features), render(name(features), features))
    return folder


@pytest.mark.parametrize("features", POSSIBLE, ids=name)
def test_no_rule_finds_anything(projects: Path, features: Features) -> None:
    project = projects / name(features)
    result = run("check", str(project), "--preview", "--pedantic", "--strict")
    files = len([*project.rglob("*.py"), *project.glob("fsdp.yaml")])
    assert result.output == f"No findings in {files} files (1 without sharding).\n"
    assert result.return_value == 0


def test_ruff_finds_nothing_and_nothing_to_format(projects: Path) -> None:
    for command in (["check"], ["format", "--diff"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", str(projects)]
        result = subprocess.run(ruff, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout


def test_no_mark_of_the_templates_is_left(projects: Path) -> None:
    texts = {path: path.read_text("utf-8") for path in projects.rglob("*") if path.is_file()}
    assert len(texts) > 11 * len(POSSIBLE)
    assert [path for path, text in texts.items() if "#:" in text or "{{" in text] == []
    assert [path for path, text in texts.items() if "\n\n\n\n" in text or "\n\n" in text[-2:]] == []


@pytest.mark.parametrize(
    ("features", "file", "line", "changed", "rule"),
    [
        ("", "parallel.py", "    fully_shard(model, mesh=data, mp_policy=policy)\n", "", "FSD202"),
        ("tp", "data.py", "        sampler.set_epoch(epoch)\n", "", "FSD802"),
        (
            *("accelerate", "train.py", "            accelerator.save_state"),
            *("            if accelerator.is_main_process: accelerator.save_state", "FSD601"),
        ),
        ("accelerate hsdp", "fsdp.yaml", "dp_shard_size: 2", "dp_shard_size: 3", "FSD926"),
    ],
)
def test_a_mistake_in_a_project_is_found(
    tmp_path: Path, features: str, file: str, line: str, changed: str, rule: str
) -> None:
    files = render("broken", Features(**dict.fromkeys(features.split(), True)))
    assert line in files[file]
    create(tmp_path / "broken", {**files, file: files[file].replace(line, changed)})
    output = run("check", str(tmp_path / "broken"), "--output-format", "concise").output
    assert [entry.split(": ")[1].split()[0] for entry in output.splitlines()[:-1]] == [rule]


@pytest.mark.parametrize(
    ("features", "ranks"),
    [(Features(), 2), (Features(tp=True, hsdp=True, meta=True, dcp=True), 2)],
    ids=lambda value: name(value) if isinstance(value, Features) else None,
)
def test_ranks_train_and_resume(projects: Path, warm: Warm, features: Features, ranks: int) -> None:
    expect_verified(projects / name(features), warm, ranks)


def test_ranks_train_and_resume_with_accelerate(
    projects: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = Features(dcp=True, accelerate=True)
    project = projects / name(features)
    for variable, value in launched(project / "fsdp.yaml"):
        monkeypatch.setenv(variable, value)
    expect_verified(project, warm, 2)


def launched(config: Path) -> Iterator[tuple[str, str]]:
    """The variables that `accelerate launch` sets for the settings in a file."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    parser: Any = launch_command_parser()
    options = ["--config_file", str(config), "--num_processes", "1", "train.py"]
    arguments = _validate_launch_command(parser.parse_args(options))[0]
    for variable, value in prepare_multi_gpu_env(arguments).items():
        if os.environ.get(variable) != value:
            yield variable, value


def expect_verified(project: Path, warm: Warm, ranks: int) -> None:
    resuming = {"resume": (ranks,), "resume_arguments": ("--resume",)}
    request = Request("train.py", SMALL, ranks, 3, "cpu", **resuming)
    found = verify(request, project, launcher=warm)
    assert found.failure == ""
    statuses = {verdict.clause: verdict.status for verdict in found.verdicts}
    assert Status.VIOLATED not in statuses.values(), found.verdicts
    exercised = {clause for clause, status in statuses.items() if status is Status.CONFIRMED}
    assert exercised >= {"blocks", "coverage", "optimizer", "gradients", "saves", "resume"}


@pytest.mark.parametrize("features", [each for each in EVERY if each not in POSSIBLE], ids=name)
def test_what_accelerate_cannot_do_is_refused(tmp_path: Path, features: Features) -> None:
    flags = [f"--{flag}" for flag in name(features).split("-")[1:]]
    result = run("new", str(tmp_path / "name"), *flags)
    first = "tp" if features.tp else "meta"
    assert str(result.exception).startswith(
        f"--accelerate cannot be combined with --{first}: accelerate 1.15 "
    )
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("folder", ["a b", "-a", "a-", "é", "torch", "Pre.Commit"])
def test_a_name_that_no_project_can_have_is_refused(tmp_path: Path, folder: str) -> None:
    result = run("new", "--", str(tmp_path / folder))
    assert "name of a p" in str(result.exception)
    assert [*tmp_path.iterdir()] == []


def test_what_is_created_is_listed_with_the_next_commands(tmp_path: Path) -> None:
    result = run("new", str(tmp_path / "deep" / "name"), "--accelerate")
    files = render("name", Features(accelerate=True))
    first, *lines = result.output.splitlines()
    assert first == f"Created {tmp_path / 'deep' / 'name'} with {len(files)} files:"
    assert lines[: len(files) + 1] == [*(f"  {path}" for path in sorted(files)), "Next:"]
    assert lines[-1] == "  accelerate launch --config_file fsdp.yaml train.py"
    folder = tmp_path / "deep" / "name"
    written = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    texts = {where: path.read_text("utf-8") for where, path in written.items() if path.is_file()}
    assert texts == files
    assert 'name = "name"\n' in texts["pyproject.toml"]
    assert [path.name for path in folder.parent.iterdir()] == ["name"]


def test_an_empty_folder_is_filled_and_no_other_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name").mkdir()
    monkeypatch.chdir(tmp_path / "name")
    assert run("new", ".").return_value == 0
    assert Path("train.py").read_text("utf-8") == render("name", Features())["train.py"]
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to("missing")
    for occupied in (".", "../name", "../file", "../link"):
        result = run("new", occupied, "--dcp")
        assert str(result.exception).endswith("exists and is not an empty folder"), occupied
    assert "TrainState" not in Path("train.py").read_text("utf-8")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("is_there", [False, True])
def test_nothing_is_left_of_a_project_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if is_there:
        (tmp_path / "name").mkdir()
    rename, moved = Path.rename, []

    def refuse(self: Path, target: Path) -> Path:
        moved.append(self)
        if not is_there or len(moved) == 3:
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="disk full"):
        create(tmp_path / "name", render("name", Features()))
    assert len(moved) == (3 if is_there else 1)
    assert [*tmp_path.rglob("*")] == ([tmp_path / "name"] if is_there else [])
