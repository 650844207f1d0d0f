"""Outside `verify`, nothing imports, evaluates or unpickles what the user has written."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import fsdplint

SOURCE = Path(fsdplint.__file__).parent
RUNNING = frozenset({"eval", "exec", "__import__", "import_module", "run_path", "run_module"})
MODULES = frozenset(
    {
        "dill",
        "importlib",
        "imp",
        "marshal",
        "pickle",
        "runpy",
        "shelve",
        "subprocess",
        "torch",
        "yaml",
    }
)

# Modules of our own: that of a command, of a report, and of a rule. Where LibCST is installed is
# looked up without importing it; other processes run `parallel.py` of the frontend. The reader of
# flight recorder dumps unpickles no class and no function. That of checkpoints unpickles only the
# classes of PyTorch's metadata, and the rest with `weights_only`. Of YAML the nodes are composed,
# and of these plain values constructed by PyYAML's safe constructor.
OWN = [
    ("cache/ir_pack.py", "importlib"),
    *[("checkpoints/convert.py", "torch")] * 2,
    ("checkpoints/files.py", "pickle"),
    *[("checkpoints/files.py", "torch")] * 9,
    ("checkpoints/names.py", "torch"),
    ("cli/main.py", "importlib"),
    ("cli/main.py", "import_module"),
    ("cli/migrate.py", "importlib"),
    ("cli/migrate.py", "import_module"),
    ("configs/document.py", "yaml"),
    ("engine/frontend/parallel.py", "subprocess"),
    ("engine/frontend/parallel.py", "subprocess"),
    ("pages/flight_recorder.py", "pickle"),
    ("report/__init__.py", "importlib"),
    ("report/__init__.py", "import_module"),
    ("rule.py", "importlib"),
    ("rule.py", "import_module"),
]


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [(node.module or "").split(".")[0]]
    return []


def called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr if function.attr in RUNNING - {"eval", "exec"} else ""
    return function.id if isinstance(function, ast.Name) else ""


def offences(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        yield from (name for name in imported(node) if name in MODULES)
        if called(node) in RUNNING:
            yield called(node)


def test_the_search_sees_what_would_run() -> None:
    text = "import pickle\nfrom importlib import x\neval(a)\nb.import_module(a)\nmodel.eval()\n"
    assert sorted(offences(text)) == ["eval", "import_module", "importlib", "pickle"]


def test_nothing_runs_outside_verify() -> None:
    found = [
        (path.relative_to(SOURCE).as_posix(), name)
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith("verify/")
        for name in offences(path.read_text("utf-8"))
    ]
    assert found == OWN


SCRIPT = b"""\
from torch.distributed.fsdp import fully_shard

model = fully_shard(build())
loss = model.forward(batch)
"""
HOSTILE = 'raise SystemExit(f"{__name__} ran")\n'
INSTALLED = Path(sys.executable).with_name("fsdplint")
MODULE = (sys.executable, "-m", "fsdplint")
SAFE = (sys.executable, "-P", "-m", "fsdplint")


def loaded_before_any_module() -> set[str]:
    """What Python itself imports for ``-m``, from the working directory too."""
    code = "import runpy, sys; print(*sys.modules)"
    command = [sys.executable, "-I", "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ((str(INSTALLED),), set()),
        (MODULE, loaded_before_any_module() | {"fsdplint"}),
        *([(SAFE, set[str]())] if sys.version_info >= (3, 11) else []),
    ],
    ids=["installed", "module", "safe"][: 2 + (sys.version_info >= (3, 11))],
)
def test_no_module_in_the_working_directory_runs(
    tmp_path: Path, command: tuple[str, ...], allowed: set[str]
) -> None:
    clean, hostile = tmp_path / "clean", tmp_path / "hostile"
    for folder in (clean, hostile):
        folder.mkdir()
        (folder / "script.py").write_bytes(SCRIPT)
        (folder / "pyproject.toml").write_text('[tool.fsdplint]\nselect = ["ALL"]\n')
    names = {*sys.stdlib_module_names, *packages_distributions(), "fsdplint", "sitecustomize"}
    for name in names - allowed:
        (hostile / f"{name}.py").write_text(HOSTILE)
        (hostile / name).mkdir()
        (hostile / name / "__init__.py").write_text(HOSTILE)

    def ran(folder: Path) -> tuple[int, str, str]:
        arguments = ("check", "--output-format=sarif", "script.py")
        done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    code, out, err = ran(clean)
    assert (code, err, out.count('"ruleId":"FSD302"')) == (1, "", 1)
    assert ran(hostile) == (code, out, err)
