"""What `torch.distributed.checkpoint` saves and loads, and when an optimizer has state (2.13)."""

from __future__ import annotations

from fsdplint.knowledge.names import DTENSOR

CHECKPOINT = "torch.distributed.checkpoint"
LOAD = f"{CHECKPOINT}.load"
SAVE = f"{CHECKPOINT}.save"
ASYNC_SAVE = f"{CHECKPOINT}.async_save"
LOAD_STATE_DICT = f"{CHECKPOINT}.load_state_dict"
SAVE_STATE_DICT = f"{CHECKPOINT}.save_state_dict"
HELPERS = f"{CHECKPOINT}.state_dict"
STATE_OPTIONS = f"{HELPERS}.StateDictOptions"
TORCH_SAVE = "torch.save"
TORCH_LOAD = "torch.load"
GET_MODEL_STATE = f"{HELPERS}.get_model_state_dict"
GET_OPTIMIZER_STATE = f"{HELPERS}.get_optimizer_state_dict"
GET_STATE = f"{HELPERS}.get_state_dict"
SET_MODEL_STATE = f"{HELPERS}.set_model_state_dict"
SET_OPTIMIZER_STATE = f"{HELPERS}.set_optimizer_state_dict"
SET_STATE = f"{HELPERS}.set_state_dict"
# Reads the optimizer state that `optim_state_dict_to_load` converts.
LOAD_SHARDED_OPTIMIZER = f"{CHECKPOINT}.optimizer.load_sharded_optimizer_state_dict"

# The second of each pair is deprecated and takes no object that has a `state_dict` itself.
FILLS = (LOAD,)
LOADS = (*FILLS, LOAD_STATE_DICT)
SAVES = (SAVE, ASYNC_SAVE, SAVE_STATE_DICT)

# Writers to the folder that their first parameter names, or else `checkpoint_id`.
FILE_WRITERS = frozenset(
    {
        f"{CHECKPOINT}.FileSystemWriter",
        f"{CHECKPOINT}.filesystem.FileSystemWriter",
        f"{CHECKPOINT}.FsspecWriter",
    }
)

# What every release of PyTorch with FSDP2 can import. Source: torch 2.4 to 2.13; `DTensor` has this
# name since 2.5, and `fully_shard` is public since 2.6.
ALWAYS_THERE = frozenset(
    {
        CHECKPOINT,
        HELPERS,
        LOAD,
        SAVE,
        ASYNC_SAVE,
        GET_MODEL_STATE,
        GET_OPTIMIZER_STATE,
        GET_STATE,
        SET_MODEL_STATE,
        SET_OPTIMIZER_STATE,
        SET_STATE,
        STATE_OPTIONS,
        f"{CHECKPOINT}.FileSystemReader",
        f"{CHECKPOINT}.FileSystemWriter",
        DTENSOR,
    }
)

# What a state dict of an optimizer holds beside tensors: numbers, and indices of parameters.
PLAIN_ENTRIES = frozenset({"param_groups"})

# What a process writes to and reads from alone, in its own memory.
MEMORY = frozenset({"io.BytesIO", "_io.BytesIO"})

# Planners that read what the given state asks for and nothing else.
PLAIN_PLANNERS = frozenset(
    {
        f"{CHECKPOINT}.DefaultLoadPlanner",
        f"{CHECKPOINT}.default_planner.DefaultLoadPlanner",
    }
)

# The optimizers that make their state with their first step; Adagrad makes it when it is built.
_STARTS_EMPTY = frozenset(
    {
        "ASGD",
        "Adadelta",
        "Adafactor",
        "Adam",
        "AdamW",
        "Adamax",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    }
)

# Uses that give an optimizer no state: methods, functions and classes.
_KEEPS_FRESH = frozenset(
    {
        "add_param_group",
        "state_dict",
        "zero_grad",
        "builtins.dict",
        "builtins.getattr",
        "builtins.hasattr",
        "builtins.id",
        "builtins.isinstance",
        "builtins.len",
        "builtins.list",
        "builtins.print",
        "builtins.tuple",
        "builtins.type",
        "builtins.zip",
        *LOADS,
        *SAVES,
    }
)
_SCHEDULES = ("torch.optim.lr_scheduler.", "transformers.get_", "transformers.optimization.get_")


def starts_empty(optimizer: str) -> bool:
    """Whether an optimizer class, by canonical name, keeps nothing before its first step."""
    package, _, name = optimizer.rpartition(".")
    return package == "torch.optim" and name in _STARTS_EMPTY


def keeps_fresh(use: str) -> bool:
    """Whether an optimizer that a function, method or class is given has no more state after it."""
    return use in _KEEPS_FRESH or use.startswith(_SCHEDULES)
