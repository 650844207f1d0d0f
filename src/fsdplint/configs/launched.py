"""What a launch line starts: the files that it names, and the settings of FSDP that they get."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fsdplint.configs import accelerate
from fsdplint.configs.accelerate import TYPE, AccelerateConfig, OtherConfig, Setting
from fsdplint.configs.document import parse
from fsdplint.configs.launch_lines import Launch, LaunchScript, Option, read
from fsdplint.configs.nodes import UNKNOWN, Entry, Mapping, Scalar
from fsdplint.configs.readers import Readers
from fsdplint.files.discover import project_root
from fsdplint.files.file import absolute
from fsdplint.files.invalid import InvalidSyntax
from fsdplint.knowledge.launch_options import ACCELERATE

_PREFIX = "fsdp_"
_USE = "use_fsdp"
# Options that count more than the type in a config file.
_OTHERS = ("multi_gpu", "tpu", "tpu_use_cluster", "use_deepspeed", "use_megatron_lm")


class Place(Protocol):
    """The place of a setting and of its value."""

    @property
    def start(self) -> int:
        """Where it begins."""

    @property
    def value_start(self) -> int:
        """Where its value begins."""

    @property
    def end(self) -> int:
        """Where both end."""


@dataclass(frozen=True, slots=True)
class Given:
    """A setting of FSDP outside of a config file."""

    name: str
    setting: Setting

    @classmethod
    def of(cls, name: str, value: str | None, place: Place) -> Given:
        """Return a setting with a value, which is unknown if it is None."""
        key = Scalar(place.start, place.start, name, "")
        known = UNKNOWN if value is None else value
        return cls(name, Setting(name, Entry(key, Scalar(place.value_start, place.end, known, ""))))


def settings_of(
    script: LaunchScript,
    every: Iterable[Given],
    *,
    file: AccelerateConfig | OtherConfig | None = None,
    is_open: bool = False,
) -> AccelerateConfig:
    """Return the settings of a rank that is launched with FSDP, as if a config file had them.

    Args:
        every: what counts more than the file.
        is_open: whether others may be set elsewhere.
    """
    own = {each.name: each.setting for each in every}
    below = file if isinstance(file, AccelerateConfig) else None
    others = {each.name: each for each in below.settings} if below else {}
    settings = tuple({**others, **own}.values())
    is_open = is_open or (below is not None and below.mapping.merged)
    mapping = Mapping(0, 0, tuple(each.entry for each in settings), False, is_open)
    kind = Entry(Scalar(0, 0, TYPE, ""), Scalar(0, 0, "FSDP", ""))
    root = Mapping(0, 0, (kind,), False, True)
    path, text = script.path, script.text
    made = AccelerateConfig(path, text, root, kind, mapping, settings, (), script.releases)
    return replace(made, path=below.path, text=below.text, section=below.section) if below else made


def settings_with(
    script: LaunchScript, launch: Launch, file: AccelerateConfig | OtherConfig | None
) -> AccelerateConfig:
    """Return the settings that `accelerate launch` hands on if it shards.

    Without a config file on the line, those are its defaults but for what the line says.
    """
    every = (Given.of(each.name, each.value, each) for each in options_of_fsdp(launch).values())
    is_open = not launch.closed or (file is None and launch.get("config_file") is not None)
    made = settings_of(script, every, file=file, is_open=is_open)
    if isinstance(file, AccelerateConfig):
        return made
    place = Scalar(launch.start, launch.end, _USE, "")
    return replace(made, section=Entry(place, made.mapping))


def options_of_fsdp(launch: Launch) -> dict[str, Option]:
    """Return the options of a launch line that are settings of FSDP, the last of each name."""
    return {each.name: each for each in launch.options if each.name.startswith(_PREFIX)}


def turned_on(launch: Launch, file: AccelerateConfig | OtherConfig | None) -> bool | None:
    """Return whether `accelerate launch` shards with FSDP, None if that is unknown."""
    if launch.launcher != ACCELERATE:
        return None
    names = {each.name for each in launch.options}
    if _USE in names:
        return None if names.intersection(_OTHERS) else True
    if not launch.closed or "cpu" in names:
        return None
    if names.intersection(_OTHERS):
        return False
    if isinstance(file, AccelerateConfig):
        return file.shards
    return False if isinstance(file, OtherConfig) else None


def without_replaced(config: AccelerateConfig, readers: Readers) -> AccelerateConfig:
    """Return a config file without what launch lines of the project replace in it."""
    replaced = {
        option.name
        for path, text in readers.scripts_naming(config.path)
        if (script := read(path, text, config.releases, readers)) is not None
        for launch in script.launches
        if (file := launch.get("config_file")) is not None
        and (file.value is None or Path(file.value).name == Path(config.path).name)
        for option in launch.options
        if option.name == _USE or option.name.startswith(_PREFIX)
    }
    if _USE in replaced and not config.shards:
        entries = tuple(each for each in config.root.entries if each.name != TYPE)
        config = replace(config, root=replace(config.root, entries=entries, merged=True))
    if not replaced - {_USE}:
        return config
    settings = tuple(each for each in config.settings if each.name not in replaced)
    return replace(config, settings=settings, mapping=replace(config.mapping, merged=True))


def config_file(script: LaunchScript, launch: Launch) -> AccelerateConfig | OtherConfig | None:
    """Return the config file that a launch line names, None if it is unknown."""
    option = launch.get("config_file")
    path = named_file(script, option.value or "") if option else ""
    text = script.readers.text(path) if path else None
    try:
        return accelerate.read(path, text, parse(text, path), script.releases) if text else None
    except InvalidSyntax:
        return None


def python_file(script: LaunchScript, launch: Launch) -> str:
    """Return the Python file of the project that a launch line runs, "" if it is unknown."""
    name = _runs(script, launch)
    return named_file(script, name) if name.endswith(".py") else ""


def program_file(script: LaunchScript, launch: Launch) -> str:
    """Return the Python file that a launch line runs by its path or as a module, "" if unknown."""
    name = _runs(script, launch)
    if name and launch.get("module"):
        return named_file(script, f"{name.replace('.', '/')}.py")
    return python_file(script, launch)


def _runs(script: LaunchScript, launch: Launch) -> str:
    word = launch.script if launch.closed else None
    name = script.script.text_of(word, launch.command) if word else None
    return name if isinstance(name, str) else ""


def named_file(script: LaunchScript, name: str) -> str:
    """Return the file that a command names, seen from its folder or one above; "" if unclear."""
    root = project_root(Path(script.path))
    folders = [each for each in Path(script.path).parents if each.is_relative_to(root)]
    every = {absolute(folder / name) for folder in folders} if name else set()
    found = [path for path in every if script.readers.has(path)]
    return found[0] if len(found) == 1 else ""
