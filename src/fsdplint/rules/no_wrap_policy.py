"""Config files that make one unit of the whole model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.configs.accelerate import AccelerateConfig, Setting
from fsdplint.configs.edits import insertion, new_value
from fsdplint.configs.nodes import Scalar
from fsdplint.configs.readers import Readers
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import (
    CLASSES,
    POLICY,
    SIZE,
    WRAPS_BY_SIZE,
    WRAPS_CLASSES,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD906",
    summary="a config file has no wrap policy, so the model is one unit",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="A script outside of the project can set the policy by itself.",
)


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report if no policy says which modules are units."""
    policy = config.get(POLICY)
    if not config.shards or config.mapping.merged or config.version is None:
        return
    if policy is not None and policy.word not in ("NULL", "NO_WRAP"):
        return
    if Readers().may_set_wrap_policy(config.path):
        return
    idle = [each for name in (CLASSES, SIZE) if (each := config.get(name))]
    names = " and ".join(f"`{each.entry.name}`" for each in idle)
    has = f", and {names} {'has' if len(idle) == 1 else 'have'} no effect" if idle else ""
    what = f"`{config.shown(policy)}`" if policy else f"the lack of `{POLICY}`"
    yield Report(
        config.span(policy.entry if policy else config.section.key),
        f"{what} makes the whole model one unit, which is gathered at once{has}",
        "wraps no module",
        tuple(Evidence(config.span(each.entry), "has no effect without a policy") for each in idle),
        partial(_fix, config, policy),
    )


def _fix(config: AccelerateConfig, policy: Setting | None) -> Fix | Declined:
    by_size = config.get(SIZE) is not None and config.get(CLASSES) is None
    wanted = WRAPS_BY_SIZE if by_size else WRAPS_CLASSES
    if policy is None:
        edit = insertion(config.path, config.text, config.mapping, POLICY, wanted)
    elif isinstance(policy.entry.value, Scalar):
        edit = new_value(config.path, policy.entry.value, wanted)
    else:
        return Declined("the policy is no word; correct it by hand")
    return Fix(f"set `{POLICY}: {wanted}`", Safety.UNSAFE, (edit,))
