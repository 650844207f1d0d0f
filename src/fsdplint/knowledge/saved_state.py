"""What files with the state of a training run hold, and the names in them (torch 2.13)."""

from __future__ import annotations

from fsdplint.knowledge.calls import COMPILED
from fsdplint.knowledge.checkpoints import CHECKPOINT

# The entries of a state dict of an optimizer, and of one of its groups.
OPTIMIZER_ENTRIES = frozenset({"state", "param_groups"})
# The names of a group's parameters if the optimizer was built from named parameters.
GROUP_NAMES = "param_names"

# What the metadata of a distributed checkpoint is made of: classes, and `_get_layout`, which looks
# up a name. Source: files of torch 2.13, and of 2.0 to 2.2, where two classes were elsewhere.
METADATA_CLASSES: dict[str, frozenset[str]] = {
    "collections": frozenset({"OrderedDict"}),
    "torch": frozenset({"Size"}),
    "torch.serialization": frozenset({"_get_layout"}),
    f"{CHECKPOINT}.filesystem": frozenset({"_StorageInfo"}),
    f"{CHECKPOINT}.metadata": frozenset(
        {
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        }
    ),
    "torch.distributed._shard.sharded_tensor.metadata": frozenset(
        {"MEM_FORMAT_ENCODING", "TensorProperties"}
    ),
}
# The packages of the classes that hold one rank's shards.
SHARD_PACKAGES = ("torch.distributed._shard.", "torch.distributed.tensor.")

# What wrappers put into the names of parameters. DDP's also names an attribute in many models.
WRAPPER_NAMES = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", COMPILED})
DDP_NAME = "module"
# Buffers of a normalization layer, which has a third one of this name.
RUNNING_STATISTICS = ("running_mean", "running_var")
BATCH_COUNT = "num_batches_tracked"
# The end of a name whose value a module makes itself, which may be no tensor.
EXTRA_STATE = "_extra_state"
