"""What `TrainingArguments` of transformers do: from `fsdp` and `fsdp_config` to the calls of FSDP.

transformers' own code makes the plugin that accelerate shards by, as a `Trainer` does when it is
created. Nothing is launched, and no GPU is needed.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from accelerate_effect import Effect, environment, prepared


def effect(
    fsdp: object,
    config: Mapping[str, object] | None,
    *,
    launched: bool = False,
    **others: object,
) -> Effect:
    """Return the effect of `fsdp` and `fsdp_config`.

    Args:
        launched: the environment is that of `accelerate launch --use_fsdp`.
        others: other training arguments.
    """
    with tempfile.TemporaryDirectory() as folder, environment():
        if launched:
            os.environ["ACCELERATE_USE_FSDP"] = "true"
        try:
            given = {"fsdp_config": copy.deepcopy(config), **others}
            if fsdp is not None:
                given["fsdp"] = fsdp
            return prepared(lambda: plugin(folder, **given))
        except Exception as error:  # whatever stops it is the result
            return {"error": f"{type(error).__name__}: {error}"}


def plugin(folder: str, **arguments: Any) -> Any:
    """Return the plugin that a `Trainer` with these arguments has, None if it does not shard."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from transformers import Trainer, TrainingArguments

    plugins = []

    def accelerator(*, fsdp_plugin: Any = None, **_: object) -> Accelerator:
        by_environment = os.environ.get("ACCELERATE_USE_FSDP") == "true"
        given = fsdp_plugin or (FullyShardedDataParallelPlugin() if by_environment else None)
        made = Accelerator(cpu=True, fsdp_plugin=given)
        made.state.fsdp_plugin = given
        plugins.append(given)
        return made

    made = TrainingArguments(output_dir=folder, use_cpu=True, report_to=[], **arguments)
    trainer = Trainer.__new__(Trainer)
    trainer.args, trainer.model = made, None
    with patch("transformers.trainer.Accelerator", accelerator):
        trainer.create_accelerator_and_postprocess()
    return plugins[-1]
