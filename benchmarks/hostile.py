"""Files and command lines that make linters crash, hang, or say that all is well.

`python -m benchmarks.hostile` runs fsdplint and ruff, if it is there, on each of them in a folder
of its own and prints what they say side by side. Both have one thing to find in ``good.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

# For ruff an unused import, for fsdplint a comment that silences nothing.
GOOD = b"import os  # fsdplint: ignore[direct-forward]\n"
FIXED = b"import os\n"
# What makes a file worth a parse.
SHARDS = b"from torch.distributed.fsdp import fully_shard\n"

Files = Mapping[str, bytes]
Make = Callable[[Path], None]

_NESTED = "too deeply nested to parse"
_LARGE = "too large to parse"
_DEEP = "too many nested parentheses"
_IRRELEVANT = ("irrelevant", "not part of a program that shards")
_UNPARSED = ("irrelevant", "not part of a program that shards, so not parsed")
_CHECKED = ("checked", None)


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        files: what there is beside ``good.py``.
        make: what else is done in the folder.
        arguments: those of ``check``.
        code: the exit code.
        found: the rules of the findings, by file.
        ends: the state and the reason of each file but ``good.py``.
        said: a part of standard error, or nothing if it is empty.
        ruff: ruff's arguments, where they are others.
    """

    files: Files = field(default_factory=dict)
    make: Make = lambda _: None
    arguments: tuple[str, ...] = (".",)
    code: int = 1
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ends: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    said: str = ""
    good: bool = True
    ruff: tuple[str, ...] | None = None


def _syntax(text: bytes, line: int, message: str) -> Case:
    return Case(
        {"a.py": text},
        found={"a.py": ("invalid-syntax",)},
        ends={"a.py": ("failed", f"line {line} is not valid Python: {message}")},
    )


def _unread(data: bytes, reason: str, state: str = "failed", name: str = "a.py") -> Case:
    return Case({name: data}, code=2, ends={name: (state, reason)}, said=f"{name}: {reason}")


def _skipped(text: bytes, reason: str) -> Case:
    return _unread(SHARDS + text, reason, "skipped")


def _plain(data: bytes) -> Case:
    return Case({"a.py": SHARDS + data}, ends={"a.py": _CHECKED})


def _link(target: str, name: str) -> Make:
    return lambda folder: (folder / name).symlink_to(target)


def _sparse(name: str) -> Make:
    def make(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(2_000_000_000)

    return make


def _refused(option: str, make: Make, said: str) -> Case:
    """A file other than those to be checked, which ``option`` names."""
    return Case(make=make, arguments=(option, "."), code=2, said=said, good=False)


def _notebook(**more: object) -> bytes:
    cell = {"cell_type": "code", "source": ["x = 1\n"], "outputs": [], "metadata": {}}
    whole = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | more
    return json.dumps({key: value for key, value in whole.items() if value is not None}).encode()


def _config(text: str, said: str, **more: object) -> Case:
    return Case({"fsdplint.toml": text.encode()}, code=2, said=said, good=False, **more)  # type: ignore[arg-type]


CASES: Mapping[str, Case] = {
    "syntax error": _syntax(b"x = (\n", 1, "'(' was never closed"),
    "Python 2": _syntax(
        b"print 'x'\n", 1, "Missing parentheses in call to 'print'. Did you mean print(...)?"
    ),
    "syntax error, its rule ignored": Case(
        {"a.py": b"x = (\n"},
        arguments=("--ignore=FSD001", "."),
        code=2,
        ends={"a.py": ("failed", "line 1 is not valid Python: '(' was never closed")},
        said="a.py: line 1 is not valid Python: '(' was never closed",
        ruff=("--ignore=E999", "."),
    ),
    "newer syntax": Case({"a.py": b"type A = int\n"}, ends={"a.py": _IRRELEVANT}),
    "byte order mark": _plain(b""),
    "CRLF": _plain(b"x = 1\r\n"),
    "mixed line ends": _plain(b"x = 1\r\ny = 2\rz = 3\n"),
    "no final newline": _plain(b"x = 1"),
    "lone carriage returns": _plain(b"x = 1\ry = 2\r"),
    "latin-1 with a cookie": Case(
        {"a.py": b"# coding: latin-1\nx = '\xe9'\n"}, ends={"a.py": _IRRELEVANT}
    ),
    "invalid UTF-8": _unread(
        b"x = '\xff'\n", "line 1 is not utf-8 (byte 0xff): invalid start byte"
    ),
    "unknown encoding": _unread(b"# coding: no\n", "unknown encoding: no"),
    "NUL byte": _unread(b"x = '\0'\n", "not Python source: it contains a NUL byte"),
    "300 nested brackets": _syntax(SHARDS + b"(" * 300 + b")" * 300, 2, _DEEP),
    "3,000 nested brackets": _syntax(SHARDS + b"(" * 3000 + b")" * 3000, 2, _DEEP),
    "200 nested calls": _plain(b"f(" * 190 + b")" * 190),
    "20,000-term sum": _skipped(b"x = " + b"a + " * 20_000 + b"a\n", _NESTED),
    "20,000 attributes": _skipped(b"x = a" + b".b" * 20_000 + b"\n", _NESTED),
    "20,000 calls in a chain": _skipped(b"x = a" + b"()" * 20_000 + b"\n", _NESTED),
    "20,000 equalities": _skipped(b"x = a" + b" == a" * 20_000 + b"\n", _NESTED),
    "20,000 lambdas": _skipped(b"x = " + b"lambda a, b=(1, 2), *c: " * 20_000 + b"a\n", _NESTED),
    "20,000 words in a format string": _skipped(
        b"x = f'{a" + b" and a" * 20_000 + b"}'\n", _NESTED
    ),
    "300,000 fields in a format string": _skipped(b"x = f'" + b"{b}" * 300_000 + b"'\n", _LARGE),
    "1,000 nested functions": _skipped(
        b"".join(b" " * depth + b"def f():\n" for depth in range(1000)) + b" " * 1000 + b"pass\n",
        _LARGE,
    ),
    "nested format string": replace(
        _skipped(
            b"x = f'" + b"{a:" * 20_000 + b"}" * 20_000 + b"'\n",
            _NESTED,
        ),
        found={"a.py": ("invalid-syntax",)},
    ),
    "200,000 assignments in one": _skipped(b"x = " * 200_000 + b"a\n", _LARGE),
    "3,000 elif": _skipped(b"if x:\n  y\n" + b"elif z:\n  y\n" * 3000, _NESTED),
    "3,000 cases": _skipped(b"match x:\n" + b"  case 1: y\n" * 3000, _NESTED),
    "nested pattern": _skipped(
        b"match x:\n  case " + b"[" * 150 + b"a" + b"]" * 150 + b": pass\n",
        _NESTED,
    ),
    "3.6 MB of data": _skipped(b"x = [\n" + b"1, 2, 3,\n" * 400_000 + b"]\n", _LARGE),
    "3.6 MB of other data": Case(
        {"a.py": b"x = [\n" + b"1, 2, 3,\n" * 400_000 + b"]\n"},
        ends={"a.py": _UNPARSED},
    ),
    "2 GB": Case(
        make=_sparse("a.py"),
        code=2,
        ends={"a.py": ("skipped", "larger than 50 MB")},
        said="50 MB",
    ),
    "symlink loop": Case(make=_link(".", "loop")),
    "link to itself": Case(
        make=_link("a.py", "a.py"),
        code=2,
        ends={"a.py": ("failed", "Too many levels of symbolic links")},
        said="a.py: Too many levels of symbolic links",
    ),
    "broken symlink": Case(
        make=_link("gone", "a.py"),
        code=2,
        ends={"a.py": ("failed", "No such file or directory")},
        said="a.py: No such file or directory",
    ),
    "a file and a link to it": Case(make=_link("good.py", "a.py"), arguments=("good.py", "a.py")),
    "named pipe": Case(
        make=lambda folder: os.mkfifo(folder / "a.py"),
        ends={"a.py": ("skipped", "a named pipe, not a regular file")},
    ),
    "named pipe that is given": Case(
        make=lambda folder: os.mkfifo(folder / "a.py"),
        arguments=("a.py", "good.py"),
        code=2,
        ends={"a.py": ("failed", "a named pipe, not a regular file")},
        said="a.py: a named pipe, not a regular file",
    ),
    "device": Case(
        make=_link("/dev/zero", "a.py"), ends={"a.py": ("skipped", "a device, not a regular file")}
    ),
    "missing path": Case(
        arguments=("good.py", "goood.py"),
        code=2,
        said="goood.py: no such file or folder; did you mean 'good.py'?",
    ),
    "folder without Python": Case(
        make=lambda folder: (folder / "empty").mkdir(),
        arguments=("empty",),
        code=2,
        said="empty: contains no Python file to check",
        good=False,
    ),
    "misspelt rule": Case(
        arguments=("--select=direct-foward", "."),
        code=2,
        said="unknown rule 'direct-foward'; did you mean 'direct-forward'?",
        good=False,
        ruff=("--select=F40l", "."),
    ),
    "misspelt rule in a comment": Case(
        {"a.py": b"x = 1  # fsdplint: ignore[direct-foward]\n"},
        found={"a.py": ("unused-suppression",)},
        ends={"a.py": _IRRELEVANT},
    ),
    "unknown key in the settings": _config(
        'selct = ["FSD3"]\n',
        "fsdplint.toml: selct: unknown key; did you mean 'select'?",
        ruff=("--config=fsdplint.toml", "."),
    ),
    "deeply nested settings": _config(
        f"select = {'[' * 100_000}{']' * 100_000}\n", "fsdplint.toml: too deeply nested"
    ),
    "deep key of the settings": _config(
        f"{'a.' * 400_000}a = 1\n", "fsdplint.toml: too deeply nested"
    ),
    "2 GB of settings": _refused(
        "--no-cache", _sparse("pyproject.toml"), "pyproject.toml: larger than 1 MB"
    ),
    "a device for settings": _refused(
        "--config=/dev/zero", lambda _: None, "/dev/zero: a device, not a regular file"
    ),
    "a pipe for settings": _refused(
        "--config=a.toml",
        lambda folder: os.mkfifo(folder / "a.toml"),
        "a.toml: a named pipe, not a regular file",
    ),
    "a folder for settings": _refused(
        "--config=.", lambda _: None, ".: a folder, not a regular file"
    ),
    "settings with a device for a baseline": _config(
        'baseline = "/dev/zero"\n', "/dev/zero: a device, not a regular file"
    ),
    "a pipe for a baseline": _refused(
        "--baseline=a.json",
        lambda folder: os.mkfifo(folder / "a.json"),
        "a.json: a named pipe, not a regular file",
    ),
    "2 GB of baseline": _refused(
        "--baseline=a.json", _sparse("a.json"), "a.json: larger than 20 MB"
    ),
    "unknown format": Case(
        arguments=("--output-format=xml", "."), code=2, said="'xml'", good=False
    ),
    "undecodable file, other rules, --fix": Case(
        {"a.py": b"x = '\xff'\n"},
        arguments=("--select=FSD3", "--fix", "."),
        code=2,
        ends={"a.py": ("failed", "line 1 is not utf-8 (byte 0xff): invalid start byte")},
        said="a.py: line 1 is not utf-8",
        good=False,
        ruff=("--select=F401", "--fix", "."),
    ),
    "no fix under --diff": Case(
        {"a.py": b"x = 1  # fsdplint: ignore[nope]\n"},
        arguments=("--diff", "a.py"),
        found={"a.py": ("unused-suppression",)},
        ends={"a.py": _IRRELEVANT},
        said="unused-suppression is not fixed: ",
        good=False,
        ruff=("--select=F841", "--diff", "."),
    ),
    "notebook": Case({"a.ipynb": _notebook()}, ends={"a.ipynb": _UNPARSED}),
    "notebook of nbformat 3": _unread(
        _notebook(cells=None, worksheets=[], nbformat=3),
        "not a Jupyter notebook: no cells",
        name="a.ipynb",
    ),
    "notebook that is cut off": _unread(
        _notebook()[:-20], "not a Jupyter notebook: the JSON is incomplete", name="a.ipynb"
    ),
    "stale baseline": Case(
        {
            "known.json": b'{"version": 1, "findings": [{"path": "good.py",'
            b' "rule": "direct-forward", "code": "gone()"}]}'
        },
        arguments=("--baseline=known.json", "."),
        said="known.json: 1 finding no longer exists",
    ),
    "no such baseline": Case(
        arguments=("--baseline=gone.json", "."),
        code=2,
        said="gone.json: No such file or directory",
        good=False,
    ),
    "escapes in a name": Case(
        {"a\x1b]0;evil\x07.py": SHARDS}, ends={"a\x1b]0;evil\x07.py": _CHECKED}
    ),
}


def build(case: Case, folder: Path) -> None:
    """Put what ``case`` has into an empty ``folder``."""
    (folder / "good.py").write_bytes(GOOD)
    for name, data in case.files.items():
        (folder / name).write_bytes(data)
    case.make(folder)


def _ran(command: list[str], case: Case) -> str:
    """The exit code, the seconds and the last line that a command in a case's folder says."""
    with tempfile.TemporaryDirectory() as name:
        build(case, Path(name))
        began = time.monotonic()
        try:
            done = subprocess.run(command, cwd=name, capture_output=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return "stopped after 60 s"
        seconds = time.monotonic() - began
        lines = (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()
        last = "".join(c if c.isprintable() else "?" for c in lines[-1][:100]) if lines else ""
        return f"{done.returncode} ({seconds:.1f} s): {last}".replace("|", "\\|")


def main() -> None:
    """Print the table as Markdown."""
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    print("| case | fsdplint | ruff |\n|---|---|---|")
    for name, case in CASES.items():
        own = [sys.executable, "-m", "fsdplint", "check", "--output-format=concise"]
        theirs = [ruff or "ruff", "check", "--isolated", "--no-cache", "--output-format=concise"]
        if any(argument.startswith("--config") for argument in case.ruff or ()):
            theirs.remove("--isolated")
        given = [*(case.ruff or [a for a in case.arguments if not a.startswith("-")])]
        other = _ran([*theirs, *given], case) if ruff else "not installed"
        print(f"| {name} | {_ran([*own, *case.arguments], case)} | {other} |", flush=True)


if __name__ == "__main__":
    main()
