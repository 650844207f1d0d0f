"""What verl makes of its settings: from the overrides of a launch line to the calls of FSDP.

Hydra and verl's own classes read the configuration. Then verl's own functions that shard a model
run among stand-ins that note each call. Of verl's many requirements only Hydra is needed.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import types
from abc import ABCMeta
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

REAL = frozenset({"antlr4", "hydra", "numpy", "omegaconf", "packaging", "torch", "verl", "yaml"})
# What no test of a worker decides otherwise.
_NEEDED = (
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "critic.ppo_micro_batch_size_per_gpu=1",
)
_STATE = {"rank": 0, "_is_lora": False, "_is_actor": True, "_qat_enabled": False}


class _Anything(ABCMeta):
    """The class of what stands for a class or a function of a package that is not installed."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"stands_for": name})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "stands_for" not in cls.__dict__:
            return super().__call__()
        decorates = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if decorates else cls

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __or__(cls, _: object) -> Any:
        return cls

    __ror__ = __or__

    def __lt__(cls, _: object) -> bool:
        return False

    def __len__(cls) -> int:
        return 1

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _Package(types.ModuleType):
    __path__ = ()  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "2.11.0"
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"stands_for": name})


class _Finder(MetaPathFinder, Loader):
    """Finds every package but those that the configuration is read with."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        root = name.partition(".")[0]
        real = root in REAL or root in sys.stdlib_module_names
        # What is optional for PyTorch is not there.
        if real or root.startswith("_") or root.endswith("npu"):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Symbol:
    """A value that is known by how it was made; each call is added to ``log``."""

    def __init__(self, name: str, log: list[str], **attributes: object) -> None:
        self.__dict__.update(attributes, _name=name, _log=log)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Symbol(f"{self._name}.{name}", self._log)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        made = f"{self._name}({', '.join(given)})"
        self._log.append(made)
        return Symbol(made if len(made) < 200 else self._name, self._log)

    def __repr__(self) -> str:
        return str(self._name)

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        return iter((Symbol(f"{self._name}[0]", self._log), Symbol(f"{self._name}[1]", self._log)))

    def __getitem__(self, index: object) -> Any:
        return Symbol(f"{self._name}[{index}]", self._log)

    def __contains__(self, _: object) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __gt__(self, _: object) -> bool:
        return False


class _Names(dict[str, Any]):
    """The globals of a function: what they lack is a symbol."""

    def __init__(self, log: list[str], known: dict[str, Any]) -> None:
        def load(name: str, *_: object, **__: object) -> Any:
            return Symbol(name, log)

        def is_one(value: object, kind: Any) -> bool:
            return True if isinstance(kind, Symbol) else isinstance(value, kind)

        own = {**vars(builtins), "__import__": load, "isinstance": is_one, "print": load("print")}
        super().__init__(known, __builtins__=own)
        self.log = log

    def __missing__(self, name: str) -> Any:
        if name in self["__builtins__"]:
            raise KeyError(name)
        return Symbol(name, self.log)


def install() -> None:
    """Let every import of a package that is not installed succeed."""
    import hydra.utils  # noqa: F401
    import numpy  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401

    sys.meta_path.insert(0, _Finder())


def compose(verl: Path, overrides: Sequence[str]) -> Any:
    """Return the configuration of PPO that Hydra composes with some overrides."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(verl / "trainer/config"), version_base=None):
        return compose("ppo_trainer", overrides=list(overrides))


def effect(verl: Path, role: str, overrides: Sequence[str]) -> list[str]:
    """Return the calls that shard the model of a role.

    Args:
        verl: the package.
        role: "actor", "ref" or "critic".
    """
    config = compose(verl, (*_NEEDED, *overrides))
    section = config.critic if role == "critic" else config.actor_rollout_ref[role]
    if role == "ref":
        _rename(section)
    log: list[str] = []
    names = _Names(log, {})
    names["apply_fsdp2"] = _function(verl / "utils/fsdp_utils.py", "apply_fsdp2", names)
    workers, engine = verl / "workers/fsdp_workers.py", verl / "workers/engine/fsdp"
    if not workers.exists():
        run = _function(engine / "transformer_impl.py", "_build_fsdp_module", names)
        made = _made(section)
        run(Symbol("self", log, engine_config=made.engine, **_STATE), Symbol("module", log))
    elif role == "critic":
        run = _function(workers, "_build_critic_model_optimizer", names)
        made = _made(section)
        made = section if isinstance(made.model, dict) else made
        run(Symbol("self", log, config=made, **_STATE), made)
    else:
        run = _function(workers, "_build_model_optimizer", names)
        given = {"fsdp_config": _made(section.fsdp_config), "optim_config": None, "role": role}
        given["override_model_config"] = {}
        own = Symbol("self", log, config=config.actor_rollout_ref, **_STATE)
        needed = list(inspect.signature(run).parameters)[1:5]
        run(own, **{name: Symbol(name, log) for name in needed if name not in given}, **given)
    return log


def _rename(section: Any) -> None:
    """Name settings of a reference model as those of an actor, as `engine_workers.py` does."""
    from omegaconf import open_dict

    with open_dict(section):
        for name in [name for name in section if name.startswith("log_prob_")]:
            section.pop(name)
        section.ppo_micro_batch_size_per_gpu = 1


def _made(section: Any) -> Any:
    """Return the object that verl makes of a part of the configuration."""
    if "_target_" not in section:
        return section
    from verl.utils.config import omega_conf_to_dataclass

    return omega_conf_to_dataclass(section)


def _function(path: Path, name: str, names: _Names) -> Callable[..., Any]:
    """Return a function of a file, which finds stand-ins for all that it names."""
    tree = ast.parse(path.read_text("utf-8"))
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    found[0].decorator_list = []
    found[0].args.defaults = [ast.Constant(False) for _ in found[0].args.defaults]
    future = ast.parse("from __future__ import annotations").body
    module = ast.fix_missing_locations(ast.Module([*future, found[0]], []))
    code = compile(module, str(path), "exec")
    plain = {"__builtins__": builtins}
    exec(code, plain)
    made: Any = plain[name]
    return types.FunctionType(made.__code__, names, name, made.__defaults__)
