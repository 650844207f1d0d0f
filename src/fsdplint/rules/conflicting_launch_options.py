"""Options that a launcher refuses together."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.configs.launch_lines import Launch, LaunchScript, Option
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.knowledge.launch_options import COMMANDS, EXCLUSIVE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD916",
    summary="a launcher refuses to start, since two options exclude each other",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each option that the launcher refuses beside an earlier one."""
    for launch in script.launches:
        if launch.get("run_path"):
            continue  # which takes precedence
        found = [option for name in EXCLUSIVE[launch.launcher] if (option := launch.get(name))]
        found.sort(key=lambda option: option.start)
        yield from (_report(script, launch, found[0], option) for option in found[1:])


def _report(script: LaunchScript, launch: Launch, first: Option, option: Option) -> Report:
    def fix() -> Fix:
        # Of accelerate's, the general one is implied by the others.
        general = [each for each in (first, option) if each.name == "multi_gpu"]
        gone = general[0] if general else option
        title = f"remove `{script.shown(gone)}`"
        return Fix(title, Safety.UNSAFE, (script.removal(launch, gone),))

    program = COMMANDS[launch.launcher]
    return Report(
        script.span(option.start, option.end),
        f"`{program}` takes only one of `{script.shown(first)}` and `{script.shown(option)}`, and "
        "refuses to start",
        "excludes the other",
        (Evidence(script.span(first.start, first.end), "the other option"),),
        fix,
    )
