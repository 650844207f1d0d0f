"""How a distributed program comes up and down: process groups, ranks, devices, command line."""

from __future__ import annotations

INIT = "torch.distributed.init_process_group"
IS_UP = "torch.distributed.is_initialized"
NEW_GROUP = "torch.distributed.new_group"
NCCL = "torch.distributed.Backend.NCCL"
FILE_STORE = "torch.distributed.FileStore"
DESTROY = "torch.distributed.destroy_process_group"
TORCH_DEVICE = "torch.device"
CUDA_IS_AVAILABLE = "torch.cuda.is_available"
# What is true where a program runs on CUDA: functions, and the arguments that they are given.
TRUE_ON_CUDA: dict[str, list[object]] = {
    CUDA_IS_AVAILABLE: [],
    "torch.distributed.is_nccl_available": [],
    "torch.distributed.is_backend_available": ["nccl"],
}
GET_RANK = "torch.distributed.get_rank"
GET_NODE_LOCAL_RANK = "torch.distributed.get_node_local_rank"
GET_WORLD_SIZE = "torch.distributed.get_world_size"
DEVICE_MESH = "torch.distributed.DeviceMesh"
# Methods of a mesh for one of its dimensions, which has to be given if there are several.
OF_ONE_DIMENSION = ("get_group", "get_local_rank")
# Makes one dimension of several, which the whole mesh has too. Source: run, torch 2.13.
FLATTEN = "_flatten"
INIT_DEVICE_MESH = "torch.distributed.init_device_mesh"
JOINS = ("torch.distributed.algorithms.Join", "torch.distributed.algorithms.join.Join")
# Optimizers that are Joinables, as DistributedDataParallel is (torch 1.10 to 2.15).
HOOKED_OPTIMIZERS = frozenset(
    {
        "torch.distributed.optim.ZeroRedundancyOptimizer",
        "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer",
    }
)
GROUPS = "torch.distributed.group"
WORLD = f"{GROUPS}.WORLD"
# What runs ``target(*args)`` in a process of its own, and what offers the same.
MULTIPROCESSING = "torch.multiprocessing"
PROCESSES = ("multiprocessing.Process", f"{MULTIPROCESSING}.Process")
PROCESS_CONTEXTS = ("multiprocessing.get_context", f"{MULTIPROCESSING}.get_context")
SPAWNS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.spawn.spawn",
    "torch.multiprocessing.spawn.start_processes",
    "torch.multiprocessing.start_processes",
)

# What tells the rank among all nodes, with the variable that tells the one among its own node's.
# Source: torchrun's environment (torch 2.4 to 2.15), the manuals of SLURM and Open MPI.
LOCAL_RANKS: dict[str, str] = {
    GET_RANK: "LOCAL_RANK",
    "RANK": "LOCAL_RANK",
    "SLURM_PROCID": "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}

# The variable that tells the rank among all nodes, by what tells the one among those of one node.
GLOBAL_RANKS: dict[str, str] = {
    **{local: rank for rank, local in LOCAL_RANKS.items() if rank != GET_RANK},
    GET_NODE_LOCAL_RANK: "RANK",
}
# What tells the rank among those of one node.
TELL_LOCAL = frozenset({*LOCAL_RANKS.values(), GET_NODE_LOCAL_RANK})

# Functions and methods that take a device as their argument of this position and keyword.
SET_DEVICE = "torch.cuda.set_device"
DEVICE_CONTEXT = "torch.cuda.device"
DEVICE_FUNCTIONS: dict[str, tuple[int, str]] = {
    SET_DEVICE: (0, "device"),
    DEVICE_CONTEXT: (0, "device"),
    TORCH_DEVICE: (0, "device"),
}
DEVICE_METHODS: dict[str, tuple[int, str]] = {"cuda": (0, "device"), "to": (0, "device")}
# Methods of a module that put its parameters on another device.
MOVES = (*DEVICE_METHODS, "cpu", "to_empty")
# Functions and methods that write a value into a message, and do no more with it.
MESSAGES = frozenset({"critical", "debug", "error", "info", "log", "print", "warning"})
# Functions that wait for what the user types.
ASKS_USER = ("input", "getpass.getpass", "click.confirm", "click.prompt")
# Functions of an accelerator's module that give the index of this process's device.
CURRENT_DEVICE = frozenset({"current_device", "current_device_index", "current_device_idx"})
ACCELERATORS = frozenset({"cuda", "hpu", "mtia", "npu", "xpu"})

# Backends as they are misspelt, in lower case. What else has no name here may be registered by a
# package, often under a name made of a known one (`nccl2`, `nccl-lazy`, `ncclx`, `rccl`).
MISSPELT_BACKENDS: dict[str, str] = {
    **dict.fromkeys(("ncl", "ncc", "ncll", "nclc", "ncccl", "nccll", "nncl", "nlcc"), "nccl"),
    **dict.fromkeys(("glo", "goo", "golo", "gllo", "glloo", "glooo", "gluo"), "gloo"),
}
REGISTERS_BACKEND = "register_backend"


# Methods that read the options which `add_argument` and the like declared.
PARSES = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses"})

# Functions and classes whose options are the fields of dataclasses: where they take them.
FROM_DATACLASSES: dict[str, tuple[int, str]] = {
    "draccus.parse": (0, "config_class"),
    "pyrallis.parse": (0, "config_class"),
    "simple_parsing.parse": (0, "config_class"),
    "transformers.HfArgumentParser": (0, "dataclass_types"),
    "transformers.hf_argparser.HfArgumentParser": (0, "dataclass_types"),
    "tyro.cli": (0, "f"),
}

# Classes whose fields are set from outside: by the environment, the command line or files.
# Source: pydantic-settings 2.12, and pydantic 1.10 where they were part of it.
SETTINGS = frozenset(
    {
        "pydantic.BaseSettings",
        "pydantic.env_settings.BaseSettings",
        "pydantic_settings.BaseSettings",
        "pydantic_settings.main.BaseSettings",
    }
)
# Classes of what is in such a field.
RECORDS = frozenset({*SETTINGS, "pydantic.BaseModel", "pydantic.main.BaseModel"})

# Functions that run the function they are given, with options for its parameters.
RUNS_FUNCTION: dict[str, str] = {
    "absl.app.run": "main",
    "fire.Fire": "component",
    "kubeflow.trainer.CustomTrainer": "func",
    "typer.run": "function",
    "tyro.cli": "f",
}
# Methods of classes that do, with the keyword: a job runs a copy of the function on every worker.
# Source: kubeflow-training 1.9.4, and kubeflow 0.5.0 for `CustomTrainer`.
METHODS_RUN_FUNCTION: dict[str, tuple[str, str]] = {
    "create_job": ("kubeflow.training.TrainingClient", "train_func"),
}

# Classes of command lines: ``@app.command()`` registers a function, and ``app()`` runs it if it is
# the only one, with options for its parameters (typer 0.29).
COMMAND_LINES = frozenset({"typer.Typer", "typer.main.Typer"})
COMMAND_LINE_PACKAGES = frozenset(name.split(".")[0] for name in COMMAND_LINES)
COMMAND = "command"
COMMANDS = "registered_commands"

CALLS = frozenset({INIT, DESTROY, NEW_GROUP, *JOINS, *SPAWNS, *PROCESSES, *DEVICE_FUNCTIONS})
CALLS |= {*FROM_DATACLASSES, *RUNS_FUNCTION}
METHODS = frozenset({*MOVES, "add_argument", *PARSES})
# Names of functions that end the process, or replace it.
ENDS_PROCESS = frozenset(
    {"_exit", "abort", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe"}
    | {"exit", "quit"}
)

# What code needs that gives a process its rank by `env://`: text that may set RANK, and packages
# that set it or start the ranks themselves.
SETS_RANK = (
    r"[\"']RANK[\"']\]\s*=(?!=)|[\"']RANK[\"']\s*:|(?:setdefault|putenv|setenv)\(\s*[\"']RANK"
    r"|\bRANK\s*=(?!=)|environ\.update\(|environ\s*\|?=(?!=)|environ\[[^\"'\]][^\]\n]*\]\s*=(?!=)"
    r"|environ\.setdefault\(\s*[^\"'\s]|dotenv"
)
STARTS_RANKS = frozenset(
    {"accelerate", "colossalai", "composer", "deepspeed", "fairscale", "horovod", "hydra"}
    | {"idr_torch", "ignite", "lightning", "lightning_fabric", "mmcv", "mmengine", "mpi4py"}
    | {"multiprocessing", "parsl", "pytorch_lightning", "ray", "submitit", "subprocess"}
    | {"torch.multiprocessing", "torch_xla", "torchx"}
)
# Backends that do not meet by `env://`.
BACKENDS_APART = frozenset({"mpi", "fake"})
