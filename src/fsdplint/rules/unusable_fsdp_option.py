"""Options of `accelerate launch` for FSDP that it refuses, or that have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.launch_lines import Launch, LaunchScript, Option
from fsdplint.configs.launched import config_file, options_of_fsdp, settings_with, turned_on
from fsdplint.configs.versions import Unapplied, unapplied
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import STRATEGY
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD919",
    summary="an option of `accelerate launch` for FSDP has no effect, or is refused",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)

_VERSION = "fsdp_version"


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each option whose value is refused or has no effect."""
    for launch in script.launches:
        options = options_of_fsdp(launch)
        if launch.launcher != ACCELERATE or not options:
            continue
        file = config_file(script, launch)
        is_on = turned_on(launch, file)
        if is_on is False:
            yield _without_fsdp(script, launch, next(iter(options.values())))
        elif is_on:
            yield from _with_fsdp(script, launch, options, settings_with(script, launch, file))


def _without_fsdp(script: LaunchScript, launch: Launch, option: Option) -> Report:
    multi = launch.get("multi_gpu")
    kinds = [launch.get(name) for name in ("multi_gpu", "use_deepspeed", "use_megatron_lm", "tpu")]
    kind = next((each for each in kinds if each), None)
    reason = f"`{script.shown(kind)}`" if kind else "the config file"
    place = kind or launch.get("config_file")

    def fix() -> Fix | Declined:
        if multi:
            edit = Edit(script.span(multi.start, multi.end), "--use_fsdp")
        elif kind:
            return Declined("another kind of training is asked for; remove one by hand")
        else:
            edit = Edit(script.span(option.start, option.start), "--use_fsdp ")
        return Fix("turn FSDP on with `--use_fsdp`", Safety.UNSAFE, (edit,))

    return Report(
        script.span(option.start, option.end),
        f"`{script.shown(option)}` has no effect: {reason} turns on another kind of training, and "
        "the model is not sharded",
        "has no effect",
        (Evidence(script.span(place.start, place.end), "because of this"),) if place else (),
        fix,
    )


def _with_fsdp(
    script: LaunchScript, launch: Launch, options: dict[str, Option], settings: AccelerateConfig
) -> Iterator[Report]:
    number = options.get(_VERSION)
    if number and number.value not in (None, "1", "2"):
        yield _refused(script, number, "FSDP has the versions 1 and 2")
    # A config file of the user may have another version.
    version = settings.version if number or launch.get("config_file") else None
    if version is None:
        return
    for setting in settings.settings:
        option = options.get(setting.name)
        if option and settings.refuses(setting, version):
            words = [word for word in settings.words(setting.name, version) if not word.isdigit()]
            takes = f"it takes {', '.join(words)}" if words else "it takes an integer"
            yield _refused(script, option, takes)
    for each in unapplied(settings):
        option = options.get(each.setting.name)
        if option and each.instead:
            yield _ignored(script, launch, option, each, options)


def _refused(script: LaunchScript, option: Option, takes: str) -> Report:
    return Report(
        script.span(option.start, option.end),
        f"accelerate refuses `{script.shown(option)}`: {takes}",
        "is refused",
        (),
        lambda: Declined(f"the intended value is unclear; {takes}"),
    )


def _ignored(
    script: LaunchScript,
    launch: Launch,
    option: Option,
    each: Unapplied,
    options: dict[str, Option],
) -> Report:
    number = options.get(_VERSION)
    version = f"`{script.shown(number)}`" if number else "the config file's version of FSDP"
    return Report(
        script.span(option.start, option.end),
        f"`{script.shown(option)}` has no effect with {version}: {each.instead}",
        "has no effect",
        (Evidence(script.span(number.start, number.end), "the version of FSDP"),) if number else (),
        partial(_fix, script, launch, option, each),
    )


def _fix(script: LaunchScript, launch: Launch, option: Option, each: Unapplied) -> Fix | Declined:
    if each.equal and each.same is None:
        name, value = each.equal
        edit = Edit(script.span(option.start, option.end), f"--{name} {value}")
        return Fix(f"use `--{name} {value}` instead", Safety.UNSAFE, (edit,))
    if each.setting.name == STRATEGY and each.equal is None:
        return Declined("FSDP2 has no option for this strategy; choose one by hand")
    # The words of an array may be for other commands as well.
    safety = Safety.SAFE if launch.command.start <= option.start else Safety.UNSAFE
    return Fix("remove the option", safety, (script.removal(launch, option),))
