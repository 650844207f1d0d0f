"""Training that `python -m torch.distributed.launch` starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.launch_options import DEPRECATED_MODULE, LAUNCH, MODULE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD911",
    summary="a script starts training with the deprecated `torch.distributed.launch`",
    severity=Severity.NOTE,
    fix=Safety.SAFE,
    since="0.1.0",
)


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each call of the deprecated launcher."""
    for launch in script.launches:
        if launch.launcher != LAUNCH:
            continue
        passes = launch.closed and launch.get("use_env") is None
        does = ", and it passes `--local-rank` to the script, which torchrun does not"
        yield Report(
            script.span(launch.start, launch.end),
            f"`{DEPRECATED_MODULE}` is deprecated and will be removed{does if passes else ''}",
            "is deprecated",
            (),
            partial(_fix, script, launch),
        )


def _fix(script: LaunchScript, launch: Launch) -> Fix | Declined:
    module = next(w for w in launch.command.words if w.literal == DEPRECATED_MODULE)
    if script.text[module.start : module.end] != DEPRECATED_MODULE:
        return Declined(f"the module is in quotes; replace it by `{MODULE}` by hand")
    if not launch.closed:
        return Declined(
            f"not all options are known; use `{MODULE}`, which has no `--use-env`, by hand"
        )
    edits = [Edit(script.span(module.start, module.end), MODULE)]
    unneeded = [option for option in launch.options if option.name == "use_env"]
    edits += [script.removal(launch, option) for option in unneeded]
    # Without the option the script gets an argument that torchrun does not pass.
    safety = Safety.SAFE if unneeded else Safety.UNSAFE
    return Fix(f"use `{MODULE}`, which is torchrun", safety, tuple(edits))
