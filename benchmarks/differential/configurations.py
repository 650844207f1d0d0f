"""The configurations that a program offers, found in its text.

Each is one step away from the program's own command line: one option added, one variable of the
environment set, another number of processes. All combinations would be too many to run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.differential.program import Configuration, Program

_LAUNCHER = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_\w+|TORCHELASTIC_\w+|CUDA_\w+"
)
_SETS_LOCAL_RANK = re.compile(r"local[-_]?rank", re.IGNORECASE)
_DEVICES = re.compile(r"cuda|nccl|accelerator|FullyShardedDataParallel(?!.*\"cpu\")", re.DOTALL)
"""What a text says that wants devices; others are spared their simulation."""
_VALUES = {"int": "1", "float": "1.0", "bool": "1"}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command line, with what can be added for it."""

    name: str
    settings: tuple[tuple[str, ...], ...]
    required: bool


def configurations(program: Program) -> list[Configuration]:
    """Return the configurations to run a program in, without repetitions."""
    return list(dict.fromkeys(_configurations(program)))


def _configurations(program: Program) -> Iterator[Configuration]:
    text = "\n".join(program.files.values())
    trees = [ast.parse(each) for each in program.files.values()]
    options = list(dict.fromkeys(o for tree in trees for o in _options(tree)))
    for arguments in program.arguments:
        needed = _needed(options, arguments)
        base = Configuration((*arguments, *needed), cuda=bool(_DEVICES.search(text)))
        yield base
        yield from _launches(base, text)
        for changed in _settings(base, options):
            yield changed
            yield replace(changed, local_ranks=1)
        for name in sorted({name for tree in trees for name in _variables(tree)}):
            for value in ("0", "1"):
                yield replace(base, environment=((name, value),))
        for command in sorted({name for tree in trees for name in _commands(tree)}):
            yield replace(base, arguments=(command, *base.arguments))
            yield replace(base, arguments=(command, "--help"), launched=False)
        if options:
            yield replace(base, arguments=("--help",), launched=False)
            yield replace(base, arguments=("--help",))


def _needed(options: list[Option], arguments: tuple[str, ...]) -> tuple[str, ...]:
    """What the command line must have; the local rank, which a launcher may pass, is left out."""
    missing = (o for o in options if o.required and o.name not in arguments)
    return tuple(
        part for o in missing if not _SETS_LOCAL_RANK.search(o.name) for part in o.settings[0]
    )


def _launches(base: Configuration, text: str) -> Iterator[Configuration]:
    yield replace(base, local_ranks=1)
    if "spawn(" not in text:  # it would start processes without the simulated devices
        yield replace(base, launched=False)
    if "is_available" in text:
        yield replace(base, cuda=False)
        yield replace(base, cuda=False, launched=False)
    if _SETS_LOCAL_RANK.search(text) or "get_rank" in text:
        yield replace(base, nodes=2, local_ranks=1)
    if "LOCAL_RANK" in text:
        yield replace(base, environment=(("LOCAL_RANK", None),))


def _settings(base: Configuration, options: list[Option]) -> Iterator[Configuration]:
    for option in options:
        for setting in option.settings:
            yield replace(base, arguments=(*base.arguments, *setting))


def _options(tree: ast.Module) -> Iterator[Option]:
    for call in ast.walk(tree):
        name = _called(call)
        if isinstance(call, ast.Call) and name in ("add_argument", "option", "DEFINE_integer"):
            yield from _option(call, name)


def _option(call: ast.Call, function: str) -> Iterator[Option]:
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if function == "DEFINE_integer":
        texts = [f"--{text}" for text in texts[:1]]
    given = {k.arg: k.value for k in call.keywords if k.arg}
    names = [name.split("/")[0] for text in texts if (name := text).startswith("--")]
    if not names:
        return
    required = getattr(given.get("required"), "value", False) is True
    for name in names if _SETS_LOCAL_RANK.search(names[0]) else names[:1]:
        yield Option(name, tuple(_given(name, given)), required)


def _given(name: str, given: dict[str, ast.expr]) -> Iterator[tuple[str, ...]]:
    action = getattr(given.get("action"), "value", None)
    kind = getattr(given.get("type"), "id", "str")
    choices = given.get("choices")
    if _SETS_LOCAL_RANK.search(name):
        yield (f"{name}={{rank}}",)
    elif action in ("store_true", "store_false") or "is_flag" in given:
        yield (name,)
    elif isinstance(given.get("action"), ast.Attribute):  # argparse.BooleanOptionalAction
        yield (name,)
        yield (f"--no-{name[2:]}",)
    elif isinstance(choices, (ast.List, ast.Tuple)):
        for each in choices.elts:
            if isinstance(each, ast.Constant):
                yield name, str(each.value)
    else:
        yield name, _VALUES.get(kind, "1")


def _variables(tree: ast.Module) -> Iterator[str]:
    """Yield the variables of the environment that a program reads, but for its launcher's."""
    for node in ast.walk(tree):
        key: ast.AST | None = None
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("environ.get", "getenv")
        ):
            key = node.args[0] if node.args else None
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            key = node.slice
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("environ"):
            key = node.left
        text = getattr(key, "value", None)
        if isinstance(text, str) and not _LAUNCHER.fullmatch(text):
            yield text


def _commands(tree: ast.Module) -> Iterator[str]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _called(call) == "add_parser" and call.args:
            name = getattr(call.args[0], "value", None)
            if isinstance(name, str):
                yield name


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
