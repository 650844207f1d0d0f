"""Fixes: sets of text edits, made at the spans of the IR; source text is never rendered anew.

Rules name one as `fixes.<module>.<function>`. Its module is imported when a finding wants it: most
runs find nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from fsdplint.fixes import add_before as add_before
    from fsdplint.fixes import argument as argument
    from fsdplint.fixes import backward_first as backward_first
    from fsdplint.fixes import clip as clip
    from fsdplint.fixes import clip_apart as clip_apart
    from fsdplint.fixes import code as code
    from fsdplint.fixes import container_loop as container_loop
    from fsdplint.fixes import copy_first as copy_first
    from fsdplint.fixes import dcp_load as dcp_load
    from fsdplint.fixes import drop_argument as drop_argument
    from fsdplint.fixes import equal_weights as equal_weights
    from fsdplint.fixes import every_rank as every_rank
    from fsdplint.fixes import forward as forward
    from fsdplint.fixes import fsdp1_uses as fsdp1_uses
    from fsdplint.fixes import full_tensor as full_tensor
    from fsdplint.fixes import fully_shard_call as fully_shard_call
    from fsdplint.fixes import gathered_write as gathered_write
    from fsdplint.fixes import gradient_sync as gradient_sync
    from fsdplint.fixes import import_path as import_path
    from fsdplint.fixes import initialise as initialise
    from fsdplint.fixes import isinstance_check as isinstance_check
    from fsdplint.fixes import join as join
    from fsdplint.fixes import local_rank as local_rank
    from fsdplint.fixes import local_rank_option as local_rank_option
    from fsdplint.fixes import mesh as mesh
    from fsdplint.fixes import move as move
    from fsdplint.fixes import no_grad as no_grad
    from fsdplint.fixes import no_sync as no_sync
    from fsdplint.fixes import not_reentrant as not_reentrant
    from fsdplint.fixes import one_by_one as one_by_one
    from fsdplint.fixes import one_unit as one_unit
    from fsdplint.fixes import optimizer as optimizer
    from fsdplint.fixes import original_parameters as original_parameters
    from fsdplint.fixes import out_of_place as out_of_place
    from fsdplint.fixes import policy_objects as policy_objects
    from fsdplint.fixes import precision as precision
    from fsdplint.fixes import prepare as prepare
    from fsdplint.fixes import pretrained_save as pretrained_save
    from fsdplint.fixes import process_group as process_group
    from fsdplint.fixes import reduce_dtype as reduce_dtype
    from fsdplint.fixes import register as register
    from fsdplint.fixes import reshard as reshard
    from fsdplint.fixes import root_last as root_last
    from fsdplint.fixes import sampling as sampling
    from fsdplint.fixes import scaler as scaler
    from fsdplint.fixes import shard_blocks as shard_blocks
    from fsdplint.fixes import shard_once as shard_once
    from fsdplint.fixes import shard_root as shard_root
    from fsdplint.fixes import teardown as teardown
    from fsdplint.fixes import unwrap as unwrap
    from fsdplint.fixes import whole_load as whole_load
    from fsdplint.fixes import wrap_policy as wrap_policy


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
