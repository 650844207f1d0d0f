"""Runs a composite action's shell steps as GitHub's runner does, and only notes the others.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions, of which it knows what
the action needs: an expression is a context, or contexts that are compared to strings.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

Outputs = dict[str, str]
EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")
COMPARISON = re.compile(r"([\w.-]+) (==|!=) '([^']*)'")


@dataclass
class Job:
    """What became of an action's steps.

    Attributes:
        code: the exit code of the step that failed, or 0.
        used: the inputs of each action that was used, by its name.
        log: what the steps printed.
        uploaded: the text of the file that was uploaded.
    """

    code: int = 0
    steps: dict[str, Outputs] = field(default_factory=dict)
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    log: str = ""
    uploaded: str | None = None
    outputs: Outputs = field(default_factory=dict)


class Runner:
    """The machine: the action's checkout, the user's, and a folder for both.

    Args:
        installed: the outputs of the step that installs, which takes long, once it was run.
    """

    def __init__(
        self, action: Path, workspace: Path, temporary: Path, python: str, installed: Outputs
    ) -> None:
        self.action = action
        self.workspace = workspace
        self.temporary = temporary
        self.python = python
        self.installed = installed
        self.metadata = YAML(typ="safe").load((action / "action.yml").read_text("utf-8"))

    def run(self, **given: str) -> Job:
        """Run the action with the inputs ``given``."""
        known = self.metadata["inputs"]
        assert given.keys() <= known.keys()
        inputs = {name: given.get(name, each["default"]) for name, each in known.items()}
        job = Job()
        for step in self.metadata["runs"]["steps"]:
            # Without a status function in it, a condition holds only if all went well.
            if job.code == 0 and self._holds(step.get("if"), inputs, job):
                self._step(step, inputs, job)
        job.outputs = {
            name: self._text(each["value"], inputs, job)
            for name, each in self.metadata["outputs"].items()
        }
        return job

    def _step(self, step: dict[str, Any], inputs: Mapping[str, str], job: Job) -> None:
        outputs: Outputs = {}
        if "uses" in step:
            taken = {name: self._text(v, inputs, job) for name, v in step.get("with", {}).items()}
            name = step["uses"].partition("@")[0]
            job.used[name] = taken
            if name == "actions/setup-python":
                outputs = {"python-path": self.python}
            else:
                job.uploaded = Path(taken["sarif_file"]).read_text("utf-8")
        elif step.get("id") == "install":
            if not self.installed:
                self.installed.update(self._shell(step, inputs, job))
            outputs = self.installed
        else:
            outputs = self._shell(step, inputs, job)
        job.steps[step.get("id", "")] = outputs

    def _shell(self, step: dict[str, Any], inputs: Mapping[str, str], job: Job) -> Outputs:
        assert step["shell"] == "bash"
        assert not EXPRESSION.search(step["run"]), "an input would be code"
        script, written = self.temporary / "step.sh", self.temporary / "output"
        script.write_text(step["run"], "utf-8")
        written.write_text("", "utf-8")
        given = {name: self._text(v, inputs, job) for name, v in step.get("env", {}).items()}
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
            cwd=self.workspace / self._text(step.get("working-directory", "."), inputs, job),
            env={**self._environment(written), **given},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        job.code = ended.returncode
        job.log += ended.stdout.decode("utf-8")
        lines = written.read_text("utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _environment(self, output: Path) -> dict[str, str]:
        kept = {"PATH", "HOME", "PIP_INDEX_URL", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy"}
        return {
            **{name: value for name, value in os.environ.items() if name in kept},
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.action),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_WORKSPACE": str(self.workspace),
            "PYTHONPATH": ".",  # as a workflow may set it
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self.temporary),
        }

    def _text(self, value: object, inputs: Mapping[str, str], job: Job) -> str:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return EXPRESSION.sub(lambda found: _context(found[1], inputs, job), text)

    def _holds(self, condition: str | None, inputs: Mapping[str, str], job: Job) -> bool:
        for part in condition.split(" && ") if condition else ():
            compared = COMPARISON.fullmatch(part)
            assert compared, condition
            equal = _context(compared[1], inputs, job) == compared[3]
            if equal != (compared[2] == "=="):
                return False
        return True


def _context(name: str, inputs: Mapping[str, str], job: Job) -> str:
    """The value of ``inputs.…`` or ``steps.….outputs.…``; on GitHub, a wrong name is empty."""
    match name.split("."):
        case ["inputs", key]:
            return inputs[key]
        case ["steps", step, "outputs", key]:
            # A step that did not come to its end has no outputs.
            return job.steps[step][key] if job.code == 0 else job.steps.get(step, {}).get(key, "")
    raise AssertionError(name)
