"""FSDP1's state dict types, as options of the state dict helpers, which support FSDP2."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.policies import construction, meaning
from fsdplint.knowledge.fsdp import (
    FULL_CONFIGS,
    LOCAL_CONFIGS,
    SHARDED_CONFIGS,
    STATE_DICT_TYPES,
)

FULL, SHARDED, _LOCAL = "FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"
_CONFIGS = FULL_CONFIGS | SHARDED_CONFIGS | LOCAL_CONFIGS


@dataclass(frozen=True, slots=True)
class Config:
    """A state dict config of FSDP1.

    Attributes:
        rank0_only: the other ranks get an empty dict.
        offload_to_cpu: the tensors are in CPU memory.
    """

    rank0_only: bool = False
    offload_to_cpu: bool = False


@dataclass(frozen=True, slots=True)
class StateType:
    """What ``FSDP.state_dict_type`` and ``FSDP.set_state_dict_type`` choose.

    Attributes:
        full: whole tensors; if not, each rank's shards.
        optimizer: the config for states of optimizers, whose tensors go to the CPU by default.
        was_local: it replaces a local state dict, which FSDP2 does not have.
    """

    full: bool = True
    model: Config = Config()
    optimizer: Config = Config(offload_to_cpu=True)
    was_local: bool = False

    def taking(self, *, optimizer: bool = False) -> str:
        """Return the arguments of ``StateDictOptions`` with which each rank gets the same."""
        config = self.optimizer if optimizer else self.model
        if self.full:
            # With both options the other ranks get an empty dict, with one of them they do not.
            return "full_state_dict=True" + (", cpu_offload=True" if config.rank0_only else "")
        # Without the option a shard is not copied, so the CPU is no better by default.
        explicit = config.offload_to_cpu and not optimizer
        return "cpu_offload=True" if explicit else ""

    def loading(self, *, optimizer: bool = False) -> str:
        """Return the arguments of ``StateDictOptions`` that load what `taking` returns."""
        if not self.full:
            return ""
        scattered = optimizer and self.optimizer.rank0_only
        return "full_state_dict=True" + (", broadcast_from_rank0=True" if scattered else "")

    def differs(self, *, optimizer: bool = False) -> str:
        """Return what is different for a state that is taken, "" if nothing is."""
        if self.was_local:
            return "files with a local state dict, saved before, cannot be loaded any more"
        config = self.optimizer if optimizer else self.model
        if self.full and config.offload_to_cpu and not config.rank0_only:
            return (
                "every rank gets the full state on its own device; if only rank 0 needs it, add "
                "`cpu_offload=True`"
            )
        return ""


class UnknownTypeError(NoFixError):
    """The file does not show which type a call chooses."""


class LocalTypeError(NoFixError):
    """The type is one that FSDP2 does not have."""


def state_type(code: Code, choice: ir.Call, kind: str = "") -> StateType:
    """Return what a call of ``FSDP.state_dict_type`` or ``FSDP.set_state_dict_type`` chooses.

    Args:
        kind: the name of the type, if it is known from elsewhere.

    Raises:
        UnknownTypeError: the file does not show the type.
        LocalTypeError: FSDP2 does not have the type.
        NoFixError: the file does not show another argument, or FSDP2 has no counterpart.
    """
    kind, shown = kind or _kind(code, choice), _shown(code, choice)
    if kind == _LOCAL:
        raise LocalTypeError(
            "FSDP2 has no local state dict, and cannot read files with one; save and load a "
            "sharded or a full state dict by hand"
        )
    full = kind == FULL
    model = _config(code, choice, full, 2, "state_dict_config", Config())
    of_optimizer = Config(offload_to_cpu=True)
    optimizer = _config(code, choice, full, 3, "optim_state_dict_config", of_optimizer)
    return StateType(full, model, optimizer, shown == _LOCAL)


def _made(code: Code, value: ir.Expr) -> ir.Expr | None:
    """Return what its function, or else its file, assigns to a variable."""
    found = code.meaning(value)
    return construction(code, value) if found is value else found


def _kind(code: Code, choice: ir.Call) -> str:
    kind = _shown(code, choice)
    if not kind:
        raise UnknownTypeError(
            "the type of the state dict is not known here; replace the call by hand"
        )
    return kind


def _shown(code: Code, choice: ir.Call) -> str:
    """Return the name of the type that the file shows, "" for none."""
    given = argument_of(choice, 1, "state_dict_type")
    made = None if given is None else _made(code, given.value)
    name = "" if made is None else meaning(code, made)
    kind = name.removeprefix(STATE_DICT_TYPES)
    return kind if kind in (FULL, SHARDED, _LOCAL) and kind != name else ""


def _config(
    code: Code, choice: ir.Call, full: bool, position: int, keyword: str, default: Config
) -> Config:
    given = argument_of(choice, position, keyword)
    made = None if given is None else _made(code, given.value)
    if given is None or (isinstance(made, ir.Constant) and made.value is None):
        if any(argument.star for argument in choice.args):
            raise NoFixError(f"`{code.short(choice)}` does not show its arguments; replace it")
        return default
    known = isinstance(made, ir.Call) and meaning(code, made.func)
    if not isinstance(made, ir.Call) or known not in _CONFIGS:
        raise NoFixError(
            f"the value of `{code.short(given.value)}` is not known here; replace the call by hand"
        )
    if any(a.keyword not in ("offload_to_cpu", "rank0_only") for a in made.args):
        raise NoFixError(f"FSDP2 has no counterpart of `{code.short(made)}`; replace it by hand")
    flags = {"rank0_only": default.rank0_only, "offload_to_cpu": default.offload_to_cpu}
    for argument in made.args:
        value = _made(code, argument.value)
        if full and argument.keyword == "offload_to_cpu" and not isinstance(value, ir.Constant):
            flags["offload_to_cpu"] = True  # whichever, it changes no option
            continue
        if not isinstance(value, ir.Constant) or not isinstance(value.value, bool):
            raise NoFixError(
                f"the value of `{code.short(argument.value)}` is not known here; replace the call "
                "by hand"
            )
        flags[argument.keyword or ""] = value.value
    return Config(**flags)
