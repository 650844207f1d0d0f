"""The FSDP settings that a program passes to Hugging Face's accelerate.

Without a plugin the settings come from a file or the environment. They are those of the project's
config file if it has one, and unknown otherwise.
Source: accelerate 1.0 to 1.15 (`accelerator.py`, `utils/dataclasses.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Origin,
    Symbol,
    Value,
    class_names,
    followed,
)
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.frameworks import OFF, PLUGIN, is_trainer

if TYPE_CHECKING:
    from fsdplint.engine.interpreter.state import PathState

# What decides how an accelerator shards, whatever it is launched with.
_DECIDES = frozenset({"fsdp_plugin", "deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin"})
_OF_ARGUMENTS = OFF | {"deepspeed", "fsdp", "fsdp_config"}
_PLUGIN = "FullyShardedDataParallelPlugin"


def is_accelerator(value: Value | None) -> bool:
    """True if a value is accelerate's ``Accelerator``."""
    names = class_names(value.cls) if isinstance(value, Object) else set()
    return any(
        name.split(".")[0] == "accelerate" and name.endswith("Accelerator") for name in names
    )


def launched(state: PathState, made: Object) -> None:
    """Give what has no plugin, an accelerator or a trainer, the one that the launcher makes."""
    if not state.project.launches or made.site is None or made.open:
        return
    if not (_has_no_plugin(made) or _has_no_settings(made)):
        return
    entry = made.site.calls[0][0] if made.site.calls else made.site.path
    settings = state.project.launch_of(entry)
    if settings is None:
        return
    site = Site(settings.path, ir.Node(settings.start, settings.end))
    plugin = state.new(Origin.ALLOCATED, Symbol(f"accelerate.{_PLUGIN}"), site)
    plugin.keywords = {name: Const(value) for name, value in settings.keywords.items()}
    made.keywords[PLUGIN] = plugin


def _has_no_plugin(made: Object) -> bool:
    return is_accelerator(made) and not (made.args or made.keywords.keys() & _DECIDES)


def _has_no_settings(made: Object) -> bool:
    """True if a value is a trainer whose arguments do not decide how it shards."""
    if not any(map(is_trainer, class_names(made.cls))):
        return False
    given = [followed(value) for value in (*made.args, *made.keywords.values())]
    arguments = [each for each in given if isinstance(each, Object)]
    return not any(_OF_ARGUMENTS & each.keywords.keys() for each in arguments)


def plugin_of(accelerator: Value | None) -> Object | None:
    """Return the FSDP plugin that an accelerator is constructed with."""
    if not isinstance(accelerator, Object) or not is_accelerator(accelerator):
        return None
    given = accelerator.keywords.get("fsdp_plugin")
    plugin = None if given is None else followed(given)
    if not isinstance(plugin, Object):
        return None
    return plugin if any(n.endswith(_PLUGIN) for n in class_names(plugin.cls)) else None


def prepares_sharded(call: Call) -> bool:
    """True if a call has an accelerator prepare something that its plugin may shard."""
    return call.name in ("prepare", "prepare_model") and plugin_of(call.receiver) is not None


def generation(plugin: Object) -> Generation | None:
    """Return the FSDP generation that a plugin asks for, None if the environment decides."""
    version = plugin.keywords.get("fsdp_version")
    if isinstance(version, Const) and version.value == 2:
        return Generation.FSDP2
    return Generation.FSDP1 if isinstance(version, Const) and version.value == 1 else None
