"""SLURM scripts that start a script by Python alone which needs a launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fsdplint.configs.launch_lines import DEVICES, Launch, LaunchScript
from fsdplint.configs.launched import python_file
from fsdplint.configs.launched_code import LaunchedCode, launched_code
from fsdplint.engine import ir
from fsdplint.files.discover import SCRIPT_SUFFIXES
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Declined
from fsdplint.knowledge.launch import BACKENDS_APART, INIT, SETS_RANK, STARTS_RANKS
from fsdplint.knowledge.launch_options import MODULE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD958",
    summary="a SLURM script runs by Python alone what needs torchrun",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="One public script that was read has this mistake, so mostly examples and proofs tell "
    "how precise the rule is.",
)

_VARIABLE = "RANK"
_NAME = INIT.rpartition(".")[2]
# A container, a plugin of SLURM or a file of variables may set the rank of each task.
_OTHER_ENVIRONMENT = re.compile(r"contain|env|export|prolog|multi-prog|squash|image")
_SOURCES = frozenset({"source", ".", "eval"})
# Files that put an installation of Python in front, or what every login has.
_HARMLESS = ("activate", "conda.sh", ".bashrc")
_HOME = ("$SLURM_SUBMIT_DIR", "${SLURM_SUBMIT_DIR}")
_POSITIONAL = ("backend", "init_method")
_KEYWORDS = frozenset({*_POSITIONAL, "timeout", "pg_options", "device_id"})
_ENV = "env://"


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each call of Python whose process group finds no rank."""
    if not script.plain or not _keeps_environment(script):
        return
    for launch in script.plain:
        code = launched_code(script, launch, _NAME) if _is_direct(launch) else None
        call = _process_group(code) if code else None
        if code is None or call is None or not _is_in(script, launch) or _may_set(code):
            continue
        file = Path(code.tree.path).name
        by = "`srun` and `python` set" if launch.wrapped_by == "srun" else "`python` sets"
        yield Report(
            script.span(launch.start, launch.end),
            f"{by} no `{_VARIABLE}`, which `{_NAME}` of `{file}` reads: every run fails there",
            "starts no ranks",
            (Evidence(call, "the process group is set up here"),),
            partial(_fix, script, launch),
        )


def _keeps_environment(script: LaunchScript) -> bool:
    """Return whether nothing in a script may set the rank."""
    if _VARIABLE in script.text:
        return False
    if any(_OTHER_ENVIRONMENT.search(each.name) for each in script.directives):
        return False
    for command in script.script.commands:
        if command.name in _SOURCES:
            rest = script.text[command.start : command.end].split()[1:]
            given = rest[0].strip("\"'") if rest else ""
            is_hook = command.name == "eval" and "hook" in " ".join(rest)
            if not is_hook and not given.endswith(_HARMLESS):
                return False
    may_set = script.readers.may_have(script.path, SETS_RANK.encode(), (".py", *SCRIPT_SUFFIXES))
    return not may_set


def _is_direct(launch: Launch) -> bool:
    """Return whether Python gets the environment of the script, or of a plain task of it."""
    words = [word.literal for word in launch.wrappers]
    if any(word is None or _OTHER_ENVIRONMENT.search(word) for word in words):
        return False
    return launch.here or not words or launch.wrapped_by == "srun"


def _is_in(script: LaunchScript, launch: Launch) -> bool:
    """Return whether Python runs in the folder in which its file was found."""
    name = launch.script.literal or "" if launch.script else ""
    folder = Path(python_file(script, launch).removesuffix(name)).name
    for command in script.script.commands:
        if command.name in ("cd", "pushd") and command.start < launch.start:
            rest = script.text[command.start : command.end].split()[1:]
            given = rest[0].strip("\"'") if rest else ""
            if given not in _HOME and given.rstrip("/").rpartition("/")[2] != folder:
                return False
    return not name.startswith("/")


def _may_set(code: LaunchedCode) -> bool:
    """Return whether the code may set the rank itself, or start other processes that have one."""
    modules = [module for module, _ in code.imports.modules]
    names = {*modules, *(module.split(".")[0] for module in modules)}
    return bool(names & STARTS_RANKS) or re.search(SETS_RANK, code.tree.text) is not None


def _process_group(code: LaunchedCode) -> Span | None:
    """Return the first call that sets up a process group, if it reads the rank."""
    for call in code.calls:
        if code.name_of(call.func) == INIT:
            reads = _reads_rank(code, call)
            return Span(code.tree.path, call.start, call.end) if reads else None
    return None


def _reads_rank(code: LaunchedCode, call: ir.Call) -> bool:
    """Return whether a process group meets by `env://`, with the rank of the environment."""
    plain = [each for each in call.args if each.keyword is None]
    if len(plain) > len(_POSITIONAL) or any(each.star for each in call.args):
        return False
    given = dict(zip(_POSITIONAL, (each.value for each in plain), strict=False))
    given |= {each.keyword: each.value for each in call.args if each.keyword}
    if not given.keys() <= _KEYWORDS:
        return False
    constants: list[object] = []
    for name in _POSITIONAL:
        value = code.tree.meaning(given[name]) if name in given else None
        if value is not None and not isinstance(value, ir.Constant):
            return False
        constants.append(value.value if value else None)
    backend, method = constants
    return backend not in BACKENDS_APART and method in (None, _ENV)


def _fix(script: LaunchScript, launch: Launch) -> Fix | Declined:
    if launch.wrappers:
        return Declined(
            "what is in front of `python` may start several; run torchrun once on each node"
        )
    nodes = script.directive("--nodes")
    if nodes is not None and nodes.value != "1":
        return Declined("the job has several nodes; run torchrun on each of them by `srun`")
    count = _devices(script, launch)
    if not count:
        return Declined("the number of GPUs is unknown; run torchrun with `--nproc_per_node`")
    edit = Edit(
        script.span(launch.end, launch.end), f" -m {MODULE} --standalone --nproc_per_node={count}"
    )
    title = f"start {count} {'process' if count == 1 else 'processes'} with torchrun"
    return Fix(title, Safety.UNSAFE, (edit,))


def _devices(script: LaunchScript, launch: Launch) -> int | None:
    """Return how many devices the node has for the job, None if that is unknown."""
    if launch.devices is not None:
        return len(launch.devices[0].split(","))
    found = script.devices_of_node
    return found[0] if found and DEVICES not in script.text else None
