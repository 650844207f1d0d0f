from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_selection import PREVIEW, RULES, STABLE

from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.report import REPORTS
from fsdplint.settings import rule_selection
from fsdplint.settings.config import (
    ConfigError,
    Settings,
    find_config,
    load_settings,
    select_rules,
)
from fsdplint.settings.rule_selection import OptIn

ALL = frozenset(rule.name for rule in RULES)
ALL_PREVIEW = frozenset(rule.name for rule in PREVIEW)


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_selection, "RULES", RULES)


@pytest.fixture
def preview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_selection, "RULES", PREVIEW)


def load(directory: Path, text: str, name: str = "fsdplint.toml") -> Settings:
    file = directory / name
    file.write_text(text)
    return load_settings(file)


def test_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Settings(select=ALL)


def test_every_key(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        [tool.fsdplint]
        select = ["FSD3"]
        extend-select = ["unused-suppression"]
        ignore = ["direct-forward"]
        exclude = ["/third_party"]
        target-torch = ">=2.6,<2.14"
        output-format = "json"
        [tool.fsdplint.per-file-ignores]
        "tests/*" = ["FSD301"]
        """,
        "pyproject.toml",
    )
    assert settings.select == {
        "invalid-syntax",
        "optimizer-before-sharding",
        "unused-suppression",
    }
    assert settings.target_torch == TorchRange((2, 6, 0), (2, 14, 0))
    assert settings.output_format == "json"
    assert settings.exclude[0].decide(os.fspath(tmp_path / "third_party"), True) is True
    assert settings.enabled(os.fspath(tmp_path / "tests/a.py")) == {
        "invalid-syntax",
        "unused-suppression",
    }
    assert settings.enabled(os.fspath(tmp_path / "a.py")) == settings.select
    assert settings.enabled("/elsewhere/tests/a.py") == settings.select


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selct = []", "selct: unknown key; did you mean 'select'?"),
        ("zzz = 1", "zzz: unknown key"),
        (
            'ignore = ["direct-foward"]',
            "ignore: unknown rule 'direct-foward'; did you mean 'direct-forward'?",
        ),
        ('select = "ALL"', "select: expected a list of strings"),
        ("preview = 1", "preview: expected true or false"),
        ("pedantic = 1", "pedantic: expected true or false"),
        ("strict = 1", "strict: expected true or false"),
        (
            'fail-on = "waring"',
            "fail-on: expected one of error, warning, note; did you mean 'warning'?",
        ),
        ("fail-on = []", "fail-on: expected one of error, warning, note"),
        ("exclude = [1]", "exclude: expected a list of strings"),
        ("target-torch = 2.6", 'target-torch: expected a string such as ">=2.6,<2.14"'),
        (
            'target-torch = "2.6"',
            "target-torch: '2.6' is not a version specifier such as \">=2.6\"",
        ),
        (
            'output-format = "jsn"',
            f"output-format: expected one of {', '.join(REPORTS)}; did you mean 'json'?",
        ),
        (
            "per-file-ignores = []",
            "per-file-ignores: expected a table of patterns, each with a list of rules",
        ),
        (
            '[per-file-ignores]\n"a.py" = ["nope"]',
            "per-file-ignores.'a.py': unknown rule 'nope'; `fsdplint rules` lists them",
        ),
        ("select = [", "not valid TOML"),
    ],
)
def test_mistakes_are_one_line_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'fsdplint.toml'}: {message}")
    assert "\n" not in str(caught.value)


def test_undecodable_settings(tmp_path: Path) -> None:
    (tmp_path / "fsdplint.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_settings(tmp_path / "fsdplint.toml")


def test_a_table_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tool\.fsdplint: expected a table"):
        load(tmp_path, "[tool]\nfsdplint = 1", "pyproject.toml")


def test_the_nearest_settings_upward(tmp_path: Path) -> None:
    deep = tmp_path / "a/b/c"
    deep.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.fsdplint]\n")
    (tmp_path / "a/pyproject.toml").write_text("[tool.ruff]\n")
    assert find_config(deep) == tmp_path / "pyproject.toml"
    (tmp_path / "a/fsdplint.toml").write_text("")
    (tmp_path / "a/pyproject.toml").write_text("[tool.fsdplint]\n")
    assert find_config(deep) == tmp_path / "a/fsdplint.toml"
    assert find_config(tmp_path) == tmp_path / "pyproject.toml"


@pytest.mark.parametrize("name", ["fsdplint.toml", "pyproject.toml"])
@pytest.mark.parametrize("worktree", [True, False])
def test_no_settings_above_the_repository(tmp_path: Path, name: str, worktree: bool) -> None:
    inside = tmp_path / "repository/src"
    inside.mkdir(parents=True)
    (tmp_path / name).write_text("[tool.fsdplint]\n" if name == "pyproject.toml" else "")
    assert find_config(inside) == tmp_path / name
    git = inside.parent / ".git"
    git.write_text("gitdir: /elsewhere") if worktree else git.mkdir()
    assert find_config(inside) is None
    (inside.parent / name).write_text("[tool.fsdplint]\n" if name == "pyproject.toml" else "")
    assert find_config(inside) == inside.parent / name


def test_broken_settings_above_the_repository_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "repository/.git").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[")
    assert find_config(tmp_path / "repository") is None


def test_the_command_line_selects_last() -> None:
    settings = Settings(select=frozenset({"unused-suppression"}))
    chosen = select_rules(settings, select=["FSD3"], ignore=["FSD301"])
    assert chosen.select == {"direct-forward", "invalid-syntax"}
    extended = select_rules(settings, extend_select=["direct-forward"])
    assert extended.select == {"direct-forward", "unused-suppression"}


@pytest.mark.usefixtures("preview")
@pytest.mark.parametrize(
    ("text", "option", "names"),
    [
        ("", False, STABLE),
        ("", True, ALL_PREVIEW),
        ("preview = true", False, ALL_PREVIEW),
        ('preview = true\nignore = ["FSD4"]', False, ALL_PREVIEW - {"all-in-preview"}),
        ('ignore = ["FSD4"]', False, STABLE),
        ('extend-select = ["all-in-preview"]', False, STABLE | {"all-in-preview"}),
        ('select = ["FSD303"]', False, {"some-in-preview", "invalid-syntax"}),
    ],
)
def test_preview_rules_are_chosen(tmp_path: Path, text: str, option: bool, names: set[str]) -> None:
    file = tmp_path / "fsdplint.toml"
    file.write_text(text)
    assert load_settings(file, OptIn(preview=option)).select == names


@pytest.mark.usefixtures("preview")
@pytest.mark.parametrize(("on", "names"), [(False, STABLE), (True, ALL_PREVIEW)])
def test_the_command_line_selects_by_whether_preview_is_on(on: bool, names: set[str]) -> None:
    chosen = select_rules(Settings(opt_in=OptIn(preview=on)), select=["ALL"])
    assert chosen.select == names


@pytest.mark.parametrize("name", ["shared.toml", "fsdplint.toml", "other-pyproject.toml"])
def test_the_table_may_be_in_any_toml(tmp_path: Path, name: str) -> None:
    text = '[project]\nname = "x"\n[tool.fsdplint]\nselect = ["direct-forward"]\n'
    assert load(tmp_path, text, name).select == {"direct-forward", "invalid-syntax"}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "[tool.fsdplint]\nselct = []\n", name)
    hint = "unknown key; did you mean 'select'?"
    assert str(caught.value) == f"{tmp_path / name}: selct: {hint}"


def test_only_ignoring_hides_that_a_file_does_not_parse(tmp_path: Path) -> None:
    assert load(tmp_path, 'select = ["FSD301"]').select == {
        "invalid-syntax",
        "optimizer-before-sharding",
    }
    assert load(tmp_path, 'select = ["FSD301"]\nignore = ["FSD001"]').select == {
        "optimizer-before-sharding"
    }
