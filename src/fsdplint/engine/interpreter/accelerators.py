"""The FSDP settings that a program passes to Hugging Face's accelerate.

Without a plugin the settings come from a file or the environment, and are unknown.
Source: accelerate 1.0 to 1.15 (`accelerator.py`, `utils/dataclasses.py`).
"""

from __future__ import annotations

from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.values import Const, Object, Value, class_names, followed
from fsdplint.knowledge.calls import Generation

_PLUGIN = "FullyShardedDataParallelPlugin"


def is_accelerator(value: Value | None) -> bool:
    """True if a value is accelerate's ``Accelerator``."""
    names = class_names(value.cls) if isinstance(value, Object) else set()
    return any(
        name.split(".")[0] == "accelerate" and name.endswith("Accelerator") for name in names
    )


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
