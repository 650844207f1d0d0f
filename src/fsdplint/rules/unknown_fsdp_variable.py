"""Misspelled variables of the environment for accelerate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launch_variables import Assigned, ignored_by_all, is_used, variables
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.accelerate_settings import Settings
from fsdplint.knowledge.accelerate_variables import (
    OTHER_NAMES,
    PREFIX,
    SWITCH,
    launcher_sets,
    names,
    of_releases,
)
from fsdplint.knowledge.launch_options import ACCELERATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD917",
    summary="a script sets a variable of FSDP that nothing reads",
    severity=Severity.WARNING,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="No public script that was read has this mistake, so only examples and proofs "
    "tell how precise the rule is.",
)


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each misspelling of a variable that accelerate reads."""
    releases = of_releases(script.releases)
    if PREFIX not in script.text or not releases:
        return
    for launch, variable in ignored_by_all(script, _misspelled(script, releases)):
        meant = _meant(releases, variable.name)
        yield Report(
            script.span(variable.start, variable.start + len(variable.name)),
            f"neither accelerate nor code of the project reads `{variable.name}`: this setting has "
            f"no effect; did you mean `{meant}`?",
            "is not read",
            (),
            partial(_fix, script, launch, variable, meant),
        )


def _misspelled(
    script: LaunchScript, releases: tuple[Settings, ...]
) -> Iterator[tuple[Launch, Assigned]]:
    known = {name for release in releases for name in names(release)}
    for launch in script.launches:
        given = variables(script, launch, PREFIX)
        # Otherwise the variables may be for another tool.
        for_accelerate = (
            launch.launcher == ACCELERATE
            or SWITCH in variables(script, launch, SWITCH)
            or given.keys() & known
        )
        for variable in given.values() if for_accelerate else ():
            if variable.name not in known and _meant(releases, variable.name):
                read = is_used(script, variable.name)
                if not read and not script.readers.may_read(script.path, variable.name):
                    yield launch, variable


def _meant(releases: tuple[Settings, ...], name: str) -> str:
    """Return the variable that is evidently meant, "" if none is."""
    known = [each for each in names(releases[-1]) if all(r.is_known(each) for r in releases)]
    other = OTHER_NAMES.get(name, "")
    close = [other] if other in known else get_close_matches(name, known, 1, 0.85)
    return close[0] if close else ""


def _fix(script: LaunchScript, launch: Launch, variable: Assigned, meant: str) -> Fix | Declined:
    if re.search(rf"\b{meant}\b", script.text):
        return Declined(f"the script has `{meant}` as well; remove one by hand")
    if launch.launcher == ACCELERATE and launcher_sets(of_releases(script.releases), meant):
        return Declined(f"`accelerate launch` replaces `{meant}`; use an option of its own by hand")
    span = script.span(variable.start, variable.start + len(variable.name))
    return Fix(f"rename it to `{meant}`", Safety.UNSAFE, (Edit(span, meant),))
