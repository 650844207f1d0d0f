"""What surely tells ranks apart, as data: not what is called so, but what a library makes so.

Source: torch 2.4 to 2.15 (`distributed_c10d.py`, torchrun's environment), accelerate 1.0 to 1.12
(`state.py`, `accelerator.py`), lightning 2.0 to 2.6 (`fabric/fabric.py`, `fabric/utilities`),
transformers 4.57 and 5.23 (`training_args.py`, `trainer.py`), and the launchers' manuals for the
environment variables.
"""

from __future__ import annotations

import functools
import re
from enum import Enum

from fsdplint.knowledge.launch import GET_NODE_LOCAL_RANK, GET_RANK, GET_WORLD_SIZE


class Role(Enum):
    """What a value is in a distributed run."""

    NUMBER = "the number of this rank, counted from 0"
    FIRST = "true on rank 0 only"
    SIZE = "the number of ranks, more than 1"


# Called with no group, or with None.
FUNCTIONS: dict[str, Role] = {
    GET_RANK: Role.NUMBER,
    GET_NODE_LOCAL_RANK: Role.NUMBER,
    GET_WORLD_SIZE: Role.SIZE,
    "accelerate.utils.is_main_process": Role.FIRST,
    "mpi4py.MPI.COMM_WORLD.Get_rank": Role.NUMBER,
    "mpi4py.MPI.COMM_WORLD.Get_size": Role.SIZE,
}

ENVIRONMENT = "os.environ"
# The rank of the node (GROUP_RANK, NODE_RANK) is left out: one node's ranks share it.
VARIABLES: dict[str, Role] = {
    "RANK": Role.NUMBER,
    "LOCAL_RANK": Role.NUMBER,
    "SLURM_PROCID": Role.NUMBER,
    "SLURM_LOCALID": Role.NUMBER,
    "OMPI_COMM_WORLD_RANK": Role.NUMBER,
    "OMPI_COMM_WORLD_LOCAL_RANK": Role.NUMBER,
    "PMI_RANK": Role.NUMBER,
    "WORLD_SIZE": Role.SIZE,
    "SLURM_NTASKS": Role.SIZE,
    "OMPI_COMM_WORLD_SIZE": Role.SIZE,
}

_ACCELERATE = {
    "is_main_process": Role.FIRST,
    "is_local_main_process": Role.FIRST,
    "process_index": Role.NUMBER,
    "local_process_index": Role.NUMBER,
    "num_processes": Role.SIZE,
}
_LIGHTNING = {
    "is_global_zero": Role.FIRST,
    "global_rank": Role.NUMBER,
    "local_rank": Role.NUMBER,
    "world_size": Role.SIZE,
}
# `local_rank` is left out: from transformers 5 on it is what the command line says.
_TRAINING_ARGUMENTS = {
    "process_index": Role.NUMBER,
    "local_process_index": Role.NUMBER,
    "should_save": Role.FIRST,
    "world_size": Role.SIZE,
}
_TRAINER = {"is_world_process_zero": Role.FIRST, "is_local_process_zero": Role.FIRST}

# Attributes by the class of what has them.
_ATTRIBUTES = (
    (re.compile(r"accelerate\.(\w+\.)*(Accelerator|PartialState)"), _ACCELERATE),
    (re.compile(r"(lightning|lightning_fabric)\.(\w+\.)*Fabric"), _LIGHTNING),
    (re.compile(r"(pytorch_)?lightning\.(\w+\.)*(Trainer|LightningModule)"), _LIGHTNING),
    (
        re.compile(r"(transformers|trl)\.(\w+\.)*\w*(TrainingArguments|Config)"),
        _TRAINING_ARGUMENTS,
    ),
)
# The same for methods.
_METHODS = ((re.compile(r"(transformers|trl)\.(\w+\.)*\w*Trainer"), _TRAINER),)


def role_of(cls: str, attribute: str, *, called: bool = False) -> Role | None:
    """What an attribute of a library's object says of the rank, or what a method returns."""
    return _roles(cls, called).get(attribute)


@functools.cache
def _roles(cls: str, called: bool) -> dict[str, Role]:
    table = _METHODS if called else _ATTRIBUTES
    return next((roles for classes, roles in table if classes.fullmatch(cls)), {})


# The time of day as a process reads it; of formats, see `FINE_FORMAT`.
FORMATS_TIME = frozenset({"time.strftime"})
CLOCKS = FORMATS_TIME | {
    *("time.time", "time.time_ns", "time.ctime", "time.asctime", "time.localtime", "time.gmtime"),
    *("datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow"),
}
# Clocks in seconds, to measure how long something takes.
TIMERS = frozenset(f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time"))
# What no two processes have alike.
UNEQUAL = CLOCKS | {
    *("uuid.uuid1", "uuid.uuid4", "os.getpid", "os.urandom"),
    *("secrets.token_hex", "secrets.token_urlsafe", "tempfile.mkdtemp", "tempfile.mktemp"),
}
# What each process makes up for itself, or each node: no two have to have the same. Equal seeds
# make equal random numbers, which are left out.
MADE_UP = UNEQUAL | {
    *("socket.gethostname", "socket.getfqdn", "os.uname", "platform.node", "platform.uname"),
    *("uuid.getnode", "tempfile.mkstemp", "tempfile.gettempdir", "tempfile.NamedTemporaryFile"),
    *("tempfile.TemporaryFile", "tempfile.TemporaryDirectory", "tempfile.SpooledTemporaryFile"),
}

# Directives of a format that tell minutes or less apart: all ranks agree on the day and the hour
# in nearly every run.
FINE_FORMAT = re.compile(r"(?<!%)(%%)*%[-#]?[MSfsTXcrR]")

# What gives unequal texts and paths for unequal arguments, and methods, with the keywords that
# leave it so.
KEEPING_FUNCTIONS = frozenset(
    {
        *("builtins.str", "builtins.int", "builtins.repr", "builtins.round", "os.fspath"),
        *("os.path.join", "os.path.abspath", "os.path.realpath", "os.path.expanduser"),
        *("pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath"),
    }
)
KEEPING_METHODS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("absolute", "as_posix", "expanduser", "joinpath", "resolve"), frozenset()),
    **dict.fromkeys(("astimezone", "hex", "isoformat", "timestamp"), frozenset()),
    **dict.fromkeys(("join", "lower", "strip", "upper"), frozenset()),
    "replace": frozenset({"microsecond", "tzinfo"}),
}
KEEPING_ATTRIBUTES = frozenset({"hex"})

_AGREEING = re.compile(r"agree|bcast|broadcast|common|gather|same|share|(?<!a)sync", re.IGNORECASE)


@functools.cache
def means_agreeing(name: str) -> bool:
    """Whether the name of a function hints that all ranks have the same value after it."""
    return _AGREEING.search(name) is not None


# A parameter of a function that a launcher outside the program calls. `rank` alone may be LoRA's:
# it counts where the function is told the number of ranks too.
PARAMETERS = frozenset({"local_rank", "global_rank", "world_rank"})
PARAMETERS_BESIDE_SIZE = frozenset({"rank", "gpu", "proc_id"})
SIZE_PARAMETERS = frozenset({"world_size", "nprocs", "num_gpus", "ngpus", "ngpus_per_node"})

# Decorators of functions that only rank 0 runs; the others get None.
FIRST_ONLY = frozenset(
    {
        f"{package}.rank_zero_only"
        for package in (
            "lightning.fabric.utilities",
            "lightning.fabric.utilities.rank_zero",
            "lightning.pytorch.utilities",
            "lightning.pytorch.utilities.rank_zero",
            "lightning_fabric.utilities",
            "lightning_fabric.utilities.rank_zero",
            "lightning_utilities.core.rank_zero",
            "pytorch_lightning.utilities",
            "pytorch_lightning.utilities.rank_zero",
        )
    }
)
# The same as methods of accelerate's Accelerator and PartialState.
FIRST_ONLY_METHODS = frozenset({"on_main_process", "on_local_main_process"})
