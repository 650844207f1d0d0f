"""Has validators read the action and the workflow of docs/github.md, and both broken on purpose.

usage: validate.py WORK, where WORK holds language.cjs
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


class Kind(NamedTuple):
    """A file that GitHub reads: its place, its text, and what to put there to break it."""

    path: str
    schema: str
    text: str
    canaries: dict[str, tuple[str, str]]


def kinds() -> list[Kind]:
    page = (ROOT / "docs" / "github.md").read_text("utf-8")
    (workflow,) = re.findall(r"<!-- workflow -->\n```yaml\n(.*?)```", page, re.DOTALL)
    return [
        Kind(
            "action.yml",
            "vendor.github-actions",
            (ROOT / "action.yml").read_text("utf-8"),
            {
                "a runtime that there is not": ("using: composite", "using: composed"),
                "a key that there is not": ("  steps:", "  stages:"),
                "a step without a shell": ("      shell: bash\n", ""),
                "a colour that there is not": ("color: orange", "color: pink"),
            },
        ),
        Kind(
            ".github/workflows/fsdplint.yml",
            "vendor.github-workflows",
            workflow,
            {
                "a permission that there is not": ("security-events:", "security:"),
                "a level that there is not": ("security-events: write", "security-events: all"),
                "an event that there is not": ("pull_request:", "pull_requests:"),
                "a job without a runner": ("runs-on:", "runs-off:"),
                "a step that does nothing": ("- uses: actions/checkout", "- name: checkout"),
            },
        ),
        *(
            Kind(path.relative_to(ROOT).as_posix(), "vendor.github-workflows", text, {})
            for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
            for text in [path.read_text("utf-8")]
        ),
    ]


class Validators:
    """SchemaStore's schemas, and GitHub's language service for editors."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def complaints(self, kind: Kind, text: str) -> dict[str, str]:
        """What each validator finds wrong."""
        file = self.work / "read" / kind.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        checker = Path(sys.executable).with_name("check-jsonschema")
        return {
            "SchemaStore": _said(checker, "--quiet", "--builtin-schema", kind.schema, file),
            "GitHub": _said("node", self.work / "language.cjs", file),
        }


def _said(*command: str | Path) -> str:
    """What a command says is wrong: its output, or that it failed."""
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return (ended.stdout + ended.stderr).strip() or ("failed" if ended.returncode else "")


def validate(validators: Validators) -> None:
    """Read all.

    Raises:
        AssertionError: a validator finds something wrong, or no validator does in what is broken.
    """
    action, workflow, *own = kinds()
    for kind in (action, workflow, *own):
        complaints = validators.complaints(kind, kind.text)
        assert not any(complaints.values()), (kind.path, complaints)
        print(f"{kind.path}: valid to {' and '.join(complaints)}", flush=True)
        for name, (whole, broken) in kind.canaries.items():
            assert whole in kind.text, name
            complaints = validators.complaints(kind, kind.text.replace(whole, broken, 1))
            found = [validator for validator, said in complaints.items() if said]
            assert found, (kind.path, name)
            print(f"  {name}: found by {' and '.join(found)}", flush=True)
    _expect_inputs_known(action.text, workflow.text)


def _expect_inputs_known(action: str, workflow: str) -> None:
    """The workflow gives the action only what it takes."""
    yaml = YAML(typ="safe")
    inputs = yaml.load(action)["inputs"]
    jobs = yaml.load(workflow)["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    (step,) = [step for step in steps if "/fsdplint@" in step["uses"]]
    assert step.get("with", {}).keys() <= inputs.keys(), step


if __name__ == "__main__":
    validate(Validators(Path(sys.argv[1])))
