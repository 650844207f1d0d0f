"""Options that a launcher does not know."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.launch_lines import Launch, LaunchScript, Option
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.launch_options import ACCELERATE, COMMANDS, options, plain
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD912",
    summary="a launcher refuses to start, since it does not know an option",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

# Of one launcher, and what the other calls it.
_OTHER_NAMES = {
    "main_port": "main_process_port",
    "main_process_ip": "master_addr",
    "main_process_port": "master_port",
    "machine_rank": "node_rank",
    "master_addr": "main_process_ip",
    "master_port": "main_process_port",
    "nnodes": "num_machines",
    "node_rank": "machine_rank",
    "num_machines": "nnodes",
}


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each option that no release of its launcher knows."""
    for launch in script.launches:
        for option in launch.refused:
            written = script.text[option.start : option.end].partition("=")[0]
            name = _meant(launch, option, written)
            # A later release of torch may know it; that of a typing error is not new.
            if not (name or launch.launcher == ACCELERATE or option.name == "use_env"):
                continue
            hint = f"; did you mean `{name}`?" if name else ""
            yield Report(
                script.span(option.start, option.start + len(written)),
                f"`{COMMANDS[launch.launcher]}` does not know `{written}` and refuses to start"
                f"{hint}",
                "is refused",
                (),
                partial(_fix, script, launch, option, name, len(written)),
            )


def _meant(launch: Launch, option: Option, written: str) -> str:
    """Return the option that is evidently meant, spelled as the others, "" if none is."""
    known = {plain(each) for each in options(launch.launcher) if each.startswith("--")}
    other = _OTHER_NAMES.get(option.name, "")
    close = [other] if other in known else get_close_matches(option.name, sorted(known), 1, 0.85)
    if not close:
        return ""
    return f"--{close[0] if '_' in written else close[0].replace('_', '-')}"


def _fix(
    script: LaunchScript, launch: Launch, option: Option, name: str, length: int
) -> Fix | Declined:
    if option.name == "use_env":
        return Fix("remove it", Safety.UNSAFE, (script.removal(launch, option),))
    if not name:
        return Declined("the intended option is unclear; correct or remove it by hand")
    edit = Edit(script.span(option.start, option.start + length), name)
    return Fix(f"rename it to `{name}`", Safety.UNSAFE, (edit,))
