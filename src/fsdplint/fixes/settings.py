"""Fixes of settings in config files that several rules have."""

from __future__ import annotations

from fsdplint.configs.edits import removal
from fsdplint.configs.nodes import Entry, Mapping
from fsdplint.finding import Fix
from fsdplint.fixes.code import Declined


def remove_setting(path: str, text: str, mapping: Mapping, entry: Entry) -> Fix | Declined:
    """Return the fix that removes a setting, which is unsafe if a comment goes with it."""
    made = removal(path, text, mapping, entry)
    if made is None:
        return Declined("it is the only setting; remove `fsdp_config` by hand")
    return Fix("remove the setting", made[1], (made[0],))
