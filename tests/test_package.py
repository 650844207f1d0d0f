"""The wheel holds what the checkout does: the typed package, pages and templates."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fsdplint import __version__
from fsdplint.pages import page
from fsdplint.rule import Rule
from fsdplint.rules import RULES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return zipfile.Path(built)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_page_is_in_the_wheel(wheel: zipfile.Path, rule: Rule) -> None:
    shipped = wheel / "fsdplint" / "rules" / f"{rule.name}.md"
    assert shipped.read_text("utf-8") == page(rule.name)


def test_no_other_page_is_in_the_wheel(wheel: zipfile.Path) -> None:
    shipped = {path.name for path in (wheel / "fsdplint" / "rules").iterdir()}
    pages = {name for name in shipped if name.endswith(".md")}
    assert pages == {f"{rule.name}.md" for rule in RULES} | {"README.md"}


def test_every_template_is_in_the_wheel(wheel: zipfile.Path) -> None:
    source = ROOT / "src" / "fsdplint" / "new" / "templates"
    templates = {path.relative_to(source).as_posix() for path in source.rglob("*.tmpl")}
    inside = "fsdplint/new/templates/"
    files = (each for each in wheel.root.namelist() if not each.endswith("/"))
    shipped = {each.removeprefix(inside) for each in files if inside in each}
    assert shipped == templates
    assert "both/.github/workflows/ci.yml.tmpl" in templates


def test_the_package_is_typed_and_licensed(wheel: zipfile.Path) -> None:
    assert (wheel / "fsdplint" / "py.typed").is_file()
    licenses = [n for n in wheel.root.namelist() if n.endswith("licenses/LICENSE")]
    assert len(licenses) == 1


def test_the_description_links_to_the_repository(wheel: zipfile.Path) -> None:
    (metadata,) = (name for name in wheel.root.namelist() if name.endswith("/METADATA"))
    description = wheel.root.read(metadata).decode()
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []
    assert any(link.endswith("/raw/main/docs/finding.svg") for link in links)
    assert f"\nVersion: {__version__}\n" in description


def test_a_page_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no page for rule 'no-such-rule'"):
        page("no-such-rule")


def test_a_run_without_sharding_imports_no_parser(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import math\n")
    code = (
        "import sys; from fsdplint.cli.main import cli; "
        "cli.main(['check', '.'], standalone_mode=False); "
        "print([name for name in sys.modules if name.startswith(('libcst', 'sarif_om', 'torch'))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"
