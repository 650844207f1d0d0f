from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pages
import pytest

ROOT = Path(__file__).parent.parent.parent


def scaffold() -> ModuleType:
    path = ROOT / "scripts" / "new_rule.py"
    spec = importlib.util.spec_from_file_location("new_rule", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


new_rule = scaffold()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src")
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    return tmp_path


def test_a_new_rule_has_a_page_and_a_module_and_is_listed(copy: Path) -> None:
    codes = {page.read_text("utf-8").split("\n")[0][-7:-1] for page in (copy / "rules").glob("*-*")}
    code = next(f"FSD{n}" for n in range(100, 999) if f"FSD{n}" not in codes)
    written = new_rule.start_rule(copy, "some-new-fault", code)
    assert [path.relative_to(copy).as_posix() for path in written] == [
        "rules/some-new-fault.md",
        "src/fsdplint/rules/some_new_fault.py",
    ]
    page = pages.read(written[0])
    assert (page.name, page.code, len(page.proofs)) == ("some-new-fault", code, 1)
    environment = {"PYTHONPATH": str(copy / "src")}
    tables = [sys.executable, str(copy / "scripts" / "rules.py")]
    done = subprocess.run(tables, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "some-new-fault is not in CHANGELOG.md\n")
    for table in ("rules/README.md", "src/fsdplint/rules/table.json"):
        assert (copy / table).read_text("utf-8").count(code) == 1
    ruff = [sys.executable, "-m", "ruff", "--config", str(ROOT / "pyproject.toml")]
    for check in (["check", "--quiet"], ["format", "--check", "--quiet"]):
        subprocess.run([*ruff[:3], *check, *ruff[3:], str(written[1])], check=True)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("Some-Fault", "FSD399", "'Some-Fault' is not kebab-case with two or more words"),
        ("fault", "FSD399", "'fault' is not kebab-case with two or more words"),
        ("some-fault", "FSD39", "'FSD39' is not FSD and three digits"),
        ("some-fault", "FSD302", "FSD302 is already taken"),
        ("direct-forward", "FSD399", "rule 'direct-forward' already exists"),
    ],
)
def test_what_is_no_new_rule_writes_nothing(copy: Path, name: str, code: str, message: str) -> None:
    before = sorted(copy.rglob("*"))
    with pytest.raises(new_rule.ScaffoldError) as caught:
        new_rule.start_rule(copy, name, code)
    assert str(caught.value) == message
    assert sorted(copy.rglob("*")) == before


def test_the_command_explains_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert new_rule.main(["direct-forward", "FSD399"]) == 2
    assert capsys.readouterr().err == "new_rule: rule 'direct-forward' already exists\n"
