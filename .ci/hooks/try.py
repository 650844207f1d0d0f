"""Runs the hooks in WORK/hooks, by the pre-commit beside Python, on a repository in WORK/made.

usage: try.py WORK
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SHARD = """\
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model)
"""
TRAIN = """\
import torch
from lib.shard import shard

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
shard(model)
"""
BUILD = """\
import torch


def build(model):
    return torch.optim.AdamW(model.parameters())
"""
CALLER = """\
import torch
from lib.build import build
from lib.shard import shard

model = torch.nn.Linear(8, 8)
optimizer = build(model)
shard(model)
"""
BYPASS = """\
import torch
from lib.shard import shard

model = torch.nn.Linear(8, 8)
shard(model)
loss = model.forward(torch.ones(8)).sum()
"""
CALL = BYPASS.replace(".forward(", "(")
IDLE = "x = 1  # fsdplint: ignore[direct-forward]\n"
CLEAN = "x = 1\n"
SPACED = "with spaces/tête à tête, 'x'.py"
MANY = 320
# So long that the names of the many files do not fit into one command.
DEEP = f"many/{'d' * 220}/{'e' * 220}"


def notebook(code: str) -> str:
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": "a",
        "metadata": {},
        "outputs": [],
        "source": code.splitlines(keepends=True),
    }
    whole = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


FILES = {
    "clean.py": CLEAN,
    "types.pyi": "x: int\n",
    "README.md": "model.forward\n",
    "data.json": "{}\n",
    "lib/shard.py": SHARD,
    "lib/build.py": BUILD,
    "call.py": CALLER,
    "train.py": TRAIN,
    "bypass.py": BYPASS,
    "analysis.ipynb": notebook(BYPASS),
    SPACED: BYPASS,
    "launch": "#!/usr/bin/env python3\n" + IDLE,
    "pyproject.toml": '[tool.fsdplint]\nexclude = ["/vendored"]\n',
    "vendored/old.py": IDLE,
    "quiet/pyproject.toml": '[tool.fsdplint]\nignore = ["unused-suppression"]\n',
    "quiet/idle.py": IDLE,
    "gone.py": IDLE,
}
UNSAFE = {"train.py:5:13 FSD301", "lib/build.py:5:12 FSD301"}
SAFE = {
    "bypass.py:6:8 FSD302",
    "analysis.ipynb:cell 1:6:8 FSD302",
    f"{SPACED}:6:8 FSD302",
    "launch:2:8 FSD002",
}
FIXED = {
    "bypass.py": CALL,
    "analysis.ipynb": notebook(CALL),
    SPACED: CALL,
    "launch": FILES["launch"].replace(IDLE, CLEAN),
}
FINDING = re.compile(r"^(\S.*:\d+:\d+): (FSD\d+) ", re.MULTILINE)
SUMMARY = re.compile(r"^(?:No findings|Found \d+ findings?) in \d+ files?\b", re.MULTILINE)


class Made:
    """The repository, and pre-commit in it."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.root = work / "made"
        self.pre_commit = Path(sys.executable).with_name("pre-commit")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PRE_COMMIT"))},
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a"),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@example.com"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PRE_COMMIT_HOME": str(work / "home"),
            "PIP_CACHE_DIR": str(work / "pip"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "FORCE_COLOR"):
            self.environment.pop(name, None)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "core.quotePath=false", *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--no-verify", "--message", "change")

    def changed(self) -> set[str]:
        return set(self.git("diff", "--name-only", "-z").split("\0")) - {""}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.pre_commit, *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, title: str, *arguments: str) -> tuple[int, str]:
        began = time.monotonic()
        process = self.start(*arguments)
        output, _ = process.communicate()
        print(f"{time.monotonic() - began:6.2f} s  {title}", flush=True)
        return process.returncode, output

    @contextmanager
    def untouched(self) -> Iterator[None]:
        def state() -> dict[str, tuple[int, bytes]]:
            files = (self.root / name for name in self.git("ls-files", "-z").split("\0") if name)
            return {str(f): (f.lstat().st_mtime_ns, f.read_bytes()) for f in files}

        before = state()
        yield
        expect("what was touched", dict(before.items() ^ state().items()).keys(), set())


def expect(what: str, seen: object, wanted: object, output: str = "") -> None:
    if seen != wanted:
        sys.exit(f"{output}\ntry.py: {what}: {seen!r}\ninstead of {wanted!r}")


def judge(ran: tuple[int, str], code: int, findings: set[str]) -> str:
    """The output, if pre-commit ended as it has to, with these findings and each of them once."""
    returned, output = ran
    seen = [" ".join(found) for found in FINDING.findall(output)]
    expect("findings", sorted(seen), sorted(findings), output)
    expect("exit status", returned, code, output)
    return output


def skipped(output: str) -> bool:
    return re.search(r"\(no files to check\)Skipped$", output, re.MULTILINE) is not None


def try_repo(made: Made) -> subprocess.Popen[str]:
    """Both hooks by `try-repo`, which installs anew each time; the installation of the store."""
    hooks = str(made.work / "hooks")
    given = ["train.py", "clean.py", SPACED, "analysis.ipynb", "gone.py", "link.py", "data.json"]
    ran = made.run(
        "try-repo fsdplint --files, cold: nothing installed or downloaded",
        *("try-repo", hooks, "fsdplint", "--files", *given),
    )
    wanted = {f for f in UNSAFE | SAFE if f.startswith(tuple(given))}
    judge(ran, 1, wanted)
    installing = made.start("install-hooks")
    ran = made.run(
        "try-repo fsdplint-fix --all-files, everything downloaded, beside another installation",
        *("try-repo", hooks, "fsdplint-fix", "--all-files"),
    )
    output = judge(ran, 1, UNSAFE)
    expect("said", "files were modified by this hook" in output, True, output)
    expect("fixed", made.changed(), set(FIXED))
    for name, text in FIXED.items():
        expect(name, (made.root / name).read_text("utf-8"), text)
    return installing


def second_fix(made: Made) -> None:
    with made.untouched():
        judge(
            made.run(
                "fsdplint-fix on 4 fixed files, warm", "run", "fsdplint-fix", "--files", *FIXED
            ),
            0,
            set(),
        )
        judge(
            made.run("fsdplint-fix --all-files again", "run", "fsdplint-fix", "--all-files"),
            1,
            UNSAFE,
        )


def checks(made: Made) -> None:
    def run(title: str, *arguments: str) -> tuple[int, str]:
        return made.run(f"fsdplint {title}", "run", "fsdplint", *arguments)

    with made.untouched():
        judge(run("--all-files, 12 files", "--all-files"), 1, UNSAFE | SAFE)
        judge(run("on 1 clean file", "--files", "clean.py"), 0, set())
        one = {"lib/build.py:5:12 FSD301"}
        judge(run("on a caller of what it spoils", "--files", "call.py"), 1, one)
        judge(run("on what a caller spoils", "--files", "lib/build.py"), 1, one)
        output = judge(run("on what is not checked", "--files", "README.md"), 0, set())
        expect("skipped", skipped(output), True, output)
        output = judge(run("on JSON without settings", "--files", "data.json"), 0, set())
        expect("skipped", skipped(output), False, output)
        output = judge(run("on excluded files", "--files", "vendored/old.py"), 0, set())
        expect("skipped", skipped(output), False, output)
        judge(run("with settings below", "--files", "quiet/idle.py"), 0, set())


def partly_staged(made: Made) -> None:
    """What is staged counts, in the files that are passed and in those around them."""
    made.write({"lib/shard.py": SHARD + "\n\nx = 1\n", "train.py": TRAIN + "x = 1\n"})
    made.git("add", "train.py", "lib/shard.py")
    later = {"lib/shard.py": "def shard(model):\n    pass\n", "train.py": CLEAN}
    made.write(later)
    ran = made.run("fsdplint on a partly staged commit", "run", "fsdplint")
    judge(ran, 1, {"train.py:5:13 FSD301"})
    for name, text in later.items():
        expect(name, (made.root / name).read_text("utf-8"), text)
    made.git("checkout", "--quiet", "HEAD", "--", *later)


def many(made: Made) -> None:
    """So many files that pre-commit passes them in batches, of which none sees the other's."""
    programs, bad = range(0, MANY, 4), range(0, MANY, 20)
    names = [f"{DEEP}/f{number:03}.py" for number in range(MANY)]
    made.write(dict.fromkeys(names, CLEAN) | {names[n]: CALL for n in programs})
    made.write({names[n]: BYPASS for n in bad})
    made.commit()
    found = {f"{names[n]}:6:8 FSD302" for n in bad}
    with made.untouched():
        ran = made.run(f"fsdplint --all-files, {MANY} more", "run", "fsdplint", "--all-files")
        output = judge(ran, 1, UNSAFE | found)
        expect("batches", len(SUMMARY.findall(output)), 2, output)
    ran = made.run(f"fsdplint-fix on {MANY}", "run", "fsdplint-fix", "--files", *names)
    output = judge(ran, 1, set())
    expect("batches", len(SUMMARY.findall(output)), 2, output)
    expect("fixed", made.changed(), {names[n] for n in bad})
    with made.untouched():
        ran = made.run("fsdplint-fix on them again", "run", "fsdplint-fix", "--files", *names)
        judge(ran, 0, set())


def main() -> None:
    made = Made(Path(sys.argv[1]).resolve())
    made.root.mkdir()
    made.git("init", "--quiet")
    made.write(FILES)
    (made.root / "launch").chmod(0o755)
    (made.root / "link.py").symlink_to("train.py")
    made.commit()
    (made.root / "gone.py").unlink()
    rev = subprocess.check_output(
        ["git", "-C", made.work / "hooks", "rev-parse", "HEAD"], text=True
    )
    hooks = [{"id": "fsdplint"}, {"id": "fsdplint-fix"}]
    repo = {"repo": str(made.work / "hooks"), "rev": rev.strip(), "hooks": hooks}
    made.write({".pre-commit-config.yaml": json.dumps({"repos": [repo]})})
    made.commit()

    installing = try_repo(made)
    output, _ = installing.communicate()
    expect("install-hooks", installing.returncode, 0, output)
    second_fix(made)
    made.git("checkout", "--quiet", "--", *FIXED)
    checks(made)
    partly_staged(made)
    made.git("rm", "--quiet", *FIXED)
    many(made)
    print("passed: the pre-commit hooks")


main()
