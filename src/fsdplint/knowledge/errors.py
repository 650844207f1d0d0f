"""Errors of sharded programs that no rule can tell from the code, as data.

Source: `tests/test_known_errors.py` raises those that a CPU can raise, with torch 2.13. The others
were pasted in public threads, named in a comment; torch or the library says them as written here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error with its cause and cure.

    Attributes:
        message: what is raised; ``…`` stands for what varies.
    """

    message: str
    cause: str
    cure: str


_DTYPES = "A unit has parameters of several dtypes, which do not fit into one flat parameter."
_CAST = (
    "Cast the model to one dtype before it is sharded, the adapters and quantized layers too, or "
    "make the parts of another dtype units of their own."
)
_NO_LAYER = "The model has no module of the class that the wrapping policy names."
_NAME_LAYER = (
    "Set `fsdp_transformer_layer_cls_to_wrap` to the class of this model's blocks, as "
    "`print(model)` shows it."
)
_NOT_LAUNCHED = "The script was started as a single process, by `python`: no launcher set {}."
_LAUNCH = "Start it with `torchrun --nproc-per-node N SCRIPT`"
_TWO_PRECISIONS = (
    "One operation gets tensors of different dtypes. FSDP casts a unit's parameters and inputs, "
    "but not the masks and other tensors that the model creates itself. It casts buffers only "
    "under FSDP1's `buffer_dtype`."
)
_MATCH_PRECISION = (
    "Create such tensors in the dtype of the activations (`dtype=x.dtype`), give every unit the "
    "same mixed precision, or run the forward under `torch.autocast`."
)
_NO_RULE = (
    "DTensor cannot run this operation on tensors that are sharded this way, in this release of "
    "PyTorch."
)
_GATHER = (
    "Leave the layer out of the tensor-parallel plan, call `full_tensor()` or `redistribute` "
    "before the operation, or use a newer PyTorch."
)
_MESHES = (
    "One operation gets DTensors on different meshes. Gradient clipping and foreach optimizers do "
    "that where some parameters are, say, expert parallel and others are not."
)
_BY_MESH = (
    "Group the tensors by `device_mesh`. Compute the gradient norm of each group and combine the "
    "norms; give the optimizer `foreach=False`, or one parameter group for each mesh."
)
_RECOMPUTED = (
    "Activation checkpointing repeats the forward in the backward, and the second run differs from "
    "the first: other shapes, dtypes or random numbers, or only one of the two is compiled."
)
_RECOMPUTE_ALIKE = (
    "Wrap each block in this order: checkpoint, `torch.compile`, `fully_shard`. Keep the block "
    "deterministic (a router's top-k and dropout too), and change no buffer in its forward."
)
_SHAPES = (
    "The state dict to load into has other shapes than the saved one. It holds FSDP1's flat "
    "shards, or belongs to another model."
)
_SAME_STATE = (
    "Build it with the same helper as for the save (`get_state_dict`), or with FSDP1's "
    "`StateDictType.SHARDED_STATE_DICT` on both sides."
)
_SHARED_MEMORY = "The container has too little shared memory for NCCL or the loader's workers."
_MORE_SHARED_MEMORY = "Start it with `--ipc=host` or a larger `--shm-size`."
_UNREACHED = "This process could not connect to the one that hosts the rendezvous."
_REACH = (
    "Check that the address and port are those of the first node, that this node has started, and "
    "that no firewall blocks the port. Use the same `--rdzv-endpoint` on every node."
)

# Vision-CAIR/MiniGPT-4#237
FAILED_CHILD = KnownError(
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
    "This is torchrun's summary. It says which rank failed first, but not why.",
    "Read that rank's own traceback, above the summary or in the files of `--log-dir DIR --tee 3`.",
)
"""What torchrun adds to any error of a script."""

ERRORS: tuple[KnownError, ...] = (
    # Launch
    KnownError(
        "KeyError: 'LOCAL_RANK'",
        _NOT_LAUNCHED.format("the variable"),
        f"{_LAUNCH}, or read the variable with a default.",
    ),
    KnownError(
        "environment variable … expected, but not set",
        _NOT_LAUNCHED.format("the variables that `init_process_group` reads"),
        f"{_LAUNCH}.",
    ),
    KnownError(
        "The server socket has failed to listen on any local network address.",
        "The port is in use: by another job, by a process left over from an earlier run, or by a "
        "second process that acts as rank 0.",
        "Use another `--master-port`, or `--standalone`, which picks a free port. Stop leftover "
        "processes. Read the rank only from `RANK`.",
    ),
    KnownError(
        "Timed out after … seconds waiting for clients. … clients joined.",
        "Fewer processes have started than the world size.",
        "Start `--nnodes` nodes with `--nproc-per-node` processes each, and read the log of a "
        "process that did not join.",
    ),
    KnownError(
        "The client socket has timed out after … while trying to connect to …", _UNREACHED, _REACH
    ),
    # pytorch/pytorch#69197
    KnownError("connect() timed out. Original timeout was …", _UNREACHED, _REACH),
    # pytorch/pytorch#107021
    KnownError("The connection to the C10d store has failed.", _UNREACHED, _REACH),
    KnownError(
        "Distributed package doesn't have NCCL built in",
        "This build of PyTorch has no CUDA support, and therefore no NCCL.",
        "Install a CUDA build of PyTorch, or use the backend `gloo` on the CPU.",
    ),
    # tatsu-lab/stanford_alpaca#258
    KnownError(
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "No GPU is visible to this process.",
        "Check `nvidia-smi`, `CUDA_VISIBLE_DEVICES`, the container's GPUs, and that "
        "`torch.cuda.is_available()` is true.",
    ),
    KnownError(
        "Mesh should not be bigger than default world size …, but found … ranks!",
        "The device mesh has more ranks than there are processes.",
        "Make the product of the mesh's dimensions the world size, or start more processes.",
    ),
    # ByteDance-Seed/Bagel#295
    KnownError(
        "_dim_group_infos … list index out of range",
        "This rank is in no group of the device mesh: the mesh has fewer ranks than there are "
        "processes.",
        "Make the product of the mesh's dimensions the world size.",
    ),
    KnownError(
        "Invalid rank …, rank should be in the interval …",
        "`DistributedSampler` was given fewer `num_replicas` than there are ranks, such as the "
        "processes of one node.",
        "Leave `num_replicas` and `rank` out: they are those of the process group.",
    ),
    # pytorch/pytorch#40403
    KnownError(
        "Cannot re-initialize CUDA in forked subprocess.",
        "CUDA was used before the process forked.",
        "Start the processes with torchrun or `mp.spawn`, and return CPU tensors from the workers "
        "of a `DataLoader`.",
    ),
    # lm-sys/FastChat#568
    KnownError(
        "(exitcode: -9)",
        "The kernel killed the process, usually because the machine ran out of RAM (not of GPU "
        "memory). By default every process of a node loads the whole checkpoint.",
        "Build the model on the meta device and load it on rank 0 alone "
        "(`broadcast_from_rank0`, `cpu_ram_efficient_loading`), and use fewer loader workers.",
    ),
    # lm-sys/FastChat#1200
    KnownError(
        "(exitcode: -11)",
        "Native code crashed with a segmentation fault: often an extension that was built for "
        "another release of PyTorch or CUDA, or for another GPU.",
        "Run with `python -X faulthandler` to see where, and reinstall the extension (flash-attn, "
        "bitsandbytes, apex) for this PyTorch.",
    ),
    # NVIDIA/nccl#1235
    KnownError(
        "NCCL WARN Cuda failure … 'out of memory'",
        "The GPU has no memory left for NCCL's own buffers.",
        "Leave some free: a smaller batch, smaller units, or no other process on the GPU.",
    ),
    # foundation-model-stack/fms-fsdp#94
    KnownError(
        "Error while creating shared memory segment /dev/shm", _SHARED_MEMORY, _MORE_SHARED_MEMORY
    ),
    # pytorch/pytorch#5040
    KnownError("is killed by signal: Bus error.", _SHARED_MEMORY, _MORE_SHARED_MEMORY),
    # codefuse-ai/MFTCoder#31
    KnownError(
        "Bootstrap : no socket interface found",
        "NCCL finds no network interface: `NCCL_SOCKET_IFNAME` may name one that this machine does "
        "not have.",
        "Unset the variable, or set it to an interface that `ip addr` lists.",
    ),
    # NVIDIA/nccl#2076
    KnownError(
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely.",
        "Another process ended first, or the network between them failed.",
        "Look for a rank with another error, earlier in the logs. If there is none, run with "
        "`NCCL_DEBUG=INFO`.",
    ),
    # huggingface/accelerate#2457
    KnownError(
        "unhandled system error",
        "NCCL hit a system error: the network, shared memory, or a process that ended.",
        "Run with `NCCL_DEBUG=INFO` and read its first warning.",
    ),
    # pytorch/torchtitan#1092
    KnownError(
        "Watchdog caught collective operation timeout",
        "One rank has not called the collective that the others wait in, or not in time.",
        "Set `TORCH_FR_BUFFER_SIZE=2000` (`TORCH_NCCL_TRACE_BUFFER_SIZE` in older releases) and "
        "`TORCH_NCCL_DUMP_ON_TIMEOUT=1`. Each rank then writes a flight recorder dump, and "
        "`fsdplint explain --error DUMP` shows which rank is behind, and where.",
    ),
    # Units and wrapping
    KnownError("Must flatten tensors with uniform dtype but got …", _DTYPES, _CAST),
    KnownError(
        "FSDP expects uniform original parameter dtype but got …",
        "A unit has parameters of several dtypes, which are not all-gathered together.",
        _CAST,
    ),
    # meta-llama/llama-cookbook#240
    KnownError(
        "Cannot flatten integer dtype tensors",
        "FSDP1 cannot shard weights with an integer dtype, such as quantized ones.",
        "For 4-bit weights set `bnb_4bit_quant_storage` to the dtype of the other parameters; do "
        "not shard 8-bit weights.",
    ),
    KnownError(
        "Only Tensors of floating point and complex dtype can require gradients",
        "A parameter with an integer dtype, such as a quantized weight, is set to require a "
        "gradient.",
        "Keep it with `requires_grad=False`. For 4-bit weights under FSDP, set "
        "`bnb_4bit_quant_storage` to the dtype of the other parameters.",
    ),
    KnownError(
        "doesn't support scalar parameters. Change … to a 1D tensor with numel equal to 1.",
        "FSDP splits parameters along a dimension, and a scalar has none.",
        "Write the parameter as `torch.ones(1)` instead of `torch.tensor(1.0)`.",
    ),
    KnownError(
        "FSDP does not support uneven sharding on dim …",
        "Along any dimension but 0, the size of a parameter must be a multiple of the world size.",
        "Have `shard_placement_fn` choose a dimension that the world size divides, or leave the "
        "parameter at dimension 0.",
    ),
    KnownError(
        "Could not find the transformer layer class … in the model.", _NO_LAYER, _NAME_LAYER
    ),
    KnownError(
        "FSDP auto wrapping requires modules to not already have FSDP applied but found …",
        "`auto_wrap_policy` is used on a model that already contains wrapped modules.",
        "Wrap the parts yourself and leave the policy out, or leave all of it to the policy.",
    ),
    # instructlab/training#678
    KnownError(
        "The arg 'group_size' … must not exceed the world size …",
        "`HYBRID_SHARD` shards over the visible GPUs of a node, and fewer processes run than that.",
        "Start a process for each visible GPU, or give `device_mesh` or a pair of process groups.",
    ),
    KnownError(
        "Manual wrapping with ShardingStrategy.… requires explicit specification of process group "
        "or device_mesh.",
        "Without `auto_wrap_policy`, each FSDP1 call would create its own process groups.",
        "Make one mesh with `init_device_mesh` and give it to each call as `device_mesh`.",
    ),
    # pytorch/pytorch#82891
    KnownError(
        "is given device_id argument …, but is on …",
        "`device_id` names another device than the one that the model is on.",
        "Build the model on the CPU or on `device_id`; with CPU offload, leave `device_id` out.",
    ),
    # huggingface/transformers#24641
    KnownError(
        "Dynamo only supports FSDP with use_orig_params=True",
        "`torch.compile` is used with FSDP1's flat parameters.",
        "Pass `use_orig_params=True` (accelerate: `fsdp_use_orig_params: true`).",
    ),
    # mosaicml/llm-foundry#215
    KnownError(
        "Cannot writeback when the parameter shape changes",
        "A parameter of an FSDP1 model with `use_orig_params=True` was replaced by one with "
        "another shape, or the model runs in a single process, where FSDP1 shards nothing.",
        "Change parameters before the model is wrapped or inside `summon_full_params`. On one GPU, "
        "run without FSDP.",
    ),
    # ostris/ai-toolkit#331
    KnownError(
        "You can't train a model that has been loaded in 8-bit or 4-bit precision on a different "
        "device than the one you're training on.",
        "Every process loaded the quantized model onto the first GPU.",
        'Load it with `device_map={"": local_rank}`, or without a `device_map` under FSDP.',
    ),
    # 01-ai/Yi#302
    KnownError(
        "You can't move a model that has some modules offloaded to cpu or disk.",
        "`device_map` has spread the model over devices, and FSDP would have to move it.",
        "Load the model without `device_map`.",
    ),
    # pytorch/pytorch#148756
    KnownError(
        "expected to be in states [<TrainingState.FORWARD_BACKWARD…>] but current state is "
        "TrainingState.IDLE",
        "An FSDP1 unit ran in the forward, but its output does not contribute to the loss.",
        "Do not run what the loss does not use.",
    ),
    # Memory
    # pytorch/pytorch#123070
    KnownError(
        "CUDA out of memory.",
        "The GPU is full. Often the whole model is one unit, which its forward gathers at once "
        "(FSD201), blocks stay gathered until the backward (FSD404), or all processes use one GPU "
        "(FSD101).",
        "Run `fsdplint check --preview` on the script. Shard each block, keep "
        "`reshard_after_forward=True`, add activation checkpointing, make the batch smaller, and "
        "compare `nvidia-smi` with the number of processes.",
    ),
    # tatsu-lab/stanford_alpaca#65
    KnownError(
        "Failed to clone() tensor with name … on rank … This may mean",
        "Every GPU gathers the full state dict, and it does not fit.",
        "Use `FullStateDictConfig(offload_to_cpu=True, rank0_only=True)`, "
        "`StateDictOptions(full_state_dict=True, cpu_offload=True)` or a sharded checkpoint.",
    ),
    # Initialisation
    KnownError(
        "Cannot copy out of meta tensor; no data!",
        "The model is on the meta device, where parameters have no data, and `.to(device)` or "
        "`.cuda()` has nothing to copy.",
        "Call `model.to_empty(device=…)` after the sharding, then initialize or load all weights "
        "and buffers. Where rank 0 alone loads the weights (`cpu_ram_efficient_loading`), FSDP1 "
        "needs `sync_module_states=True`.",
    ),
    KnownError(
        "FSDP parameters should be materialized from meta device before training",
        "The model was built on the meta device, and its first forward runs before its parameters "
        "have data.",
        "Call `model.to_empty(device=…)` after the sharding, then initialize or load all weights "
        "and buffers.",
    ),
    # Precision and devices
    KnownError("expected scalar type … but found …", _TWO_PRECISIONS, _MATCH_PRECISION),
    KnownError(
        "expected m1 and m2 to have the same dtype, but got: …", _TWO_PRECISIONS, _MATCH_PRECISION
    ),
    # hiyouga/LLaMA-Factory#9560
    KnownError(
        "Expected all tensors to be on the same device, but found at least two devices",
        "A batch, a buffer, or a model that is not sharded (a reference or teacher model) is on "
        "another device than the sharded model.",
        "Move the batch and the other model to this rank's device; register tensors of the model "
        "as buffers.",
    ),
    # pytorch/pytorch#112658
    KnownError(
        "Expects tensor to be on the compute device …",
        "The current CUDA device of this process is not the one that the model is on.",
        "Call `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before anything uses a GPU.",
    ),
    KnownError(
        "Attempting to deserialize object on …CUDA device",
        "The file was saved from a GPU that this process does not have.",
        'Pass `map_location="cpu"` to `torch.load`.',
    ),
    # DTensor and compile
    KnownError("have the same mesh, but got", _MESHES, _BY_MESH),
    KnownError("on inputs with different meshes: got", _MESHES, _BY_MESH),
    # pytorch/pytorch#128699
    KnownError("does not have a sharding strategy registered", _NO_RULE, _GATHER),
    KnownError(
        "Cannot distribute a DTensor with device mesh … to a different device mesh",
        "`parallelize_module` is given a module that `fully_shard` has sharded.",
        "Call `parallelize_module` first, then `fully_shard` over another dimension of the mesh.",
    ),
    # huggingface/transformers#39818
    KnownError("Sharding propagation failed on op", _NO_RULE, _GATHER),
    KnownError(
        "Recomputed values for the following tensors have different metadata than during the "
        "forward pass.",
        _RECOMPUTED,
        _RECOMPUTE_ALIKE,
    ),
    # jzhang38/TinyLlama#152
    KnownError(
        "A different number of tensors was saved during the original forward and recomputation.",
        _RECOMPUTED,
        _RECOMPUTE_ALIKE,
    ),
    # Checkpoints
    KnownError(
        "Missing key in checkpoint state_dict: …",
        "The state dict to load into has a key that the checkpoint lacks: it was saved under other "
        "names, or from an optimizer without state.",
        "Save and load with the same helper (`get_state_dict` on both sides, or `model.state_dict` "
        "on both), and wrap the model the same way. `DefaultLoadPlanner(allow_partial_load=True)` "
        "skips missing keys.",
    ),
    KnownError(
        "Size mismatch between saved torch.Size(…) and current: torch.Size(…) for",
        _SHAPES,
        _SAME_STATE,
    ),
    # Lightning-AI/pytorch-lightning#20373
    KnownError(
        "MetadataIndex(… mismatch sizes torch.Size(…) vs torch.Size(…)", _SHAPES, _SAME_STATE
    ),
    # hiyouga/EasyR1#275
    KnownError(
        "The state of _OptimStateKey(… is empty. This should happen when use_orig_params=True",
        "The checkpoint has no optimizer state for a unit whose parameters got no gradient before "
        "the save.",
        "Train these parameters before the save, or freeze them and leave them out of the "
        "optimizer.",
    ),
    # huggingface/transformers#26186
    KnownError(
        "Can't find a valid checkpoint at …",
        "Trainer finds no file of weights in the folder: the save did not finish, or this release "
        "does not know the folders of `SHARDED_STATE_DICT`.",
        "Update transformers, or save with `FULL_STATE_DICT`.",
    ),
    KnownError(
        "Weights only load failed.",
        "Since torch 2.6, `torch.load` reads only tensors and plain containers by default.",
        "Allow the classes with `torch.serialization.add_safe_globals`. Pass `weights_only=False` "
        "only for a file that you trust.",
    ),
    # RLinf/RLinf#119
    KnownError(
        "FSDP assumes … is in the state_dict but the state_dict only has …",
        "A hook or a wrapper inside the FSDP1 model drops or renames entries of its state dict, as "
        "adapters do.",
        "Save the adapters from `summon_full_params` or from the full state dict of the outermost "
        "model.",
    ),
    # bitsandbytes-foundation/bitsandbytes#1405
    KnownError(
        "'Params4bit' object has no attribute …",
        "A 4-bit parameter that FSDP has sharded lost its quantization state.",
        "Save only the adapters, and merge them into the base model after the training.",
    ),
)
