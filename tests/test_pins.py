"""The releases of PyTorch that a project's requirements admit."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.files.pins import pinned
from fsdplint.knowledge.tensors import clips_by_parts
from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.settings.config import groups_for, settings_for

LOCKED = """\
[[package]]
name = "torch"
version = "{version}"
source = {{ registry = "https://pypi.org/simple" }}
resolution-markers = [
    "{marker}",
]
"""
FILES = {
    ("uv.lock", '[[package]]\nname = "torch"\nversion = "2.7.1"\n'): "==2.7.1",
    ("poetry.lock", 'name = "torch"\nversion = "2.7.1+cpu"\n'): "==2.7.1",
    ("pyproject.toml", 'dependencies = ["numpy", "torch>=2.6,<3"]\n'): ">=2.6,<3",
    ("pyproject.toml", "dependencies = ['torch ~=2.6.0; sys_platform == \"linux\"']\n"): "~=2.6.0",
    (
        "pyproject.toml",
        "dependencies = [\n"
        "    \"torch~=2.6.0; sys_platform != 'darwin' or platform_machine != 'x86_64'\",\n"
        "    \"torch~=2.2.2; sys_platform == 'darwin' and platform_machine == 'x86_64'\",\n"
        "]\n",
    ): "~=2.6.0",
    (
        "pyproject.toml",
        "all = ['torch>=2.5; python_version < \"4\"', 'x; sys_platform == \"darwin\"']\n",
    ): ">=2.5",
    ("pyproject.toml", "a = ['torch>=2.5', 'x; sys_platform == \"darwin\"']\n"): ">=2.5",
    (
        "pyproject.toml",
        'a = [\'torch==2.5.0; sys_platform == "darwin" or python_version < "3.12"\']\n',
    ): "==2.5.0",
    ("requirements.txt", "torch==2.2.2 ; platform_system == 'Darwin'\ntorch>=2.6\n"): ">=2.6",
    (
        "uv.lock",
        f"""\
{LOCKED.format(version="2.2.2", marker="platform_machine == 'x86_64' and sys_platform == 'darwin'")}
{LOCKED.format(version="2.6.0", marker="sys_platform != 'darwin'")}
{LOCKED.format(version="2.7.0", marker="sys_platform == 'darwin' or python_version > '3.12'")}
""",
    ): ">=2.6,<=2.7",
    ("pyproject.toml", 'torch = "^2.4"\n'): ">=2.4,<3",
    ("pyproject.toml", 'torch = {version = "2.5.1", optional = true}\n'): "==2.5.1",
    ("pyproject.toml", 'cpu = ["torch==2.6.0"]\ncu = ["torch==2.8.0"]\n'): ">=2.6,<=2.8",
    ("requirements.txt", "numpy\ntorch==2.5.1+cu121  # for the cluster\n"): "==2.5.1",
    ("requirements.txt", "torch>=2.4, <2.7\r\n"): ">=2.4,<2.7",
    ("requirements.txt", "torch>=2.4,!=2.5.0\n"): ">=2.4",
    ("environment.yml", "dependencies:\n  - pytorch=2.5\n"): "==2.5.*",
    ("environment.yml", "  - pip:\n    - torch==2.5.1\n"): "==2.5.1",
}
SILENT = {
    ("requirements.txt", "torch\ntorchvision==0.20.1\n"),
    ("requirements.txt", "# torch==2.5.1\n"),
    ("requirements.txt", "torch>=2.9.0.dev20250801\n"),
    ("requirements.txt", "torch>=2.9,<2.6\n"),
    ("requirements.txt", "torch>=2.9.0.dev20250801,<3\n"),
    ("requirements.txt", "torch<2.7\n"),
    ("pyproject.toml", 'dependencies = ["torchvision>=0.20", "torch"]\n'),
    ("pyproject.toml", "\udc80"),
    ("requirements.txt", "torch==2.2.2; sys_platform == 'darwin'\n"),
    ("uv.lock", 'name = "torchaudio"\nversion = "2.7.1"\n'),
}


def write(folder: Path, name: str, text: str) -> None:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(("file", "expected"), FILES.items(), ids=lambda each: str(each)[:40])
def test_requirements_say_the_releases(
    file: tuple[str, str], expected: str, tmp_path: Path
) -> None:
    write(tmp_path, *file)
    found = pinned(tmp_path, "torch")
    assert found == TorchRange.parse(expected)
    assert found.source == file[0]


@pytest.mark.parametrize("file", sorted(SILENT), ids=lambda each: str(each)[:40])
def test_others_say_nothing(file: tuple[str, str], tmp_path: Path) -> None:
    write(tmp_path, *file)
    assert pinned(tmp_path, "torch") is None


def test_what_is_locked_counts_before_what_is_admitted(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", 'dependencies = ["torch>=2.4"]\n')
    write(tmp_path, "uv.lock", 'name = "torch"\nversion = "2.9.0"\n')
    assert pinned(tmp_path, "torch") == TorchRange.parse("==2.9.0")


def test_the_search_ends_at_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "requirements.txt", "torch==2.5.1\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    assert pinned(inner, "torch") == TorchRange.parse("==2.5.1")
    (inner / ".git").mkdir()
    assert pinned(inner, "torch") is None


def test_the_setting_counts_before_the_requirements(tmp_path: Path) -> None:
    write(tmp_path, "requirements.txt", "torch==2.5.1\n")
    paths = [str(tmp_path)]
    assert settings_for(paths, None, False).target_torch == TorchRange.parse("==2.5.1")
    assert settings_for(paths, None, True).target_torch == TorchRange()
    write(tmp_path, "fsdplint.toml", 'target-torch = ">=2.6"\n')
    (group,) = groups_for(paths, None, False)
    assert group.settings.target_torch == TorchRange.parse(">=2.6")


def test_an_import_that_the_requirements_are_too_old_for(tmp_path: Path) -> None:
    write(tmp_path, "requirements.txt", "torch==2.5.1\n")
    script = tmp_path / "train.py"
    script.write_text(
        "from torch import nn\nfrom torch.distributed.fsdp import fully_shard\n\n"
        "fully_shard(nn.Linear(8, 8))\n"
    )
    (finding,) = check([str(script)], settings_for([str(script)], None, False)).findings
    assert finding.rule == "old-import-path"
    assert finding.message == (
        "`torch.distributed.fsdp.fully_shard` does not exist before torch 2.6: the import fails on "
        "the older releases that `requirements.txt` admits"
    )


def test_the_oldest_release_alone_does_not_say_which_is_run(tmp_path: Path) -> None:
    write(tmp_path, "requirements.txt", "torch>=2.4\n")
    found = pinned(tmp_path, "torch")
    assert found is not None
    assert not clips_by_parts(found)
    assert clips_by_parts(TorchRange.parse(">=2.4"))
