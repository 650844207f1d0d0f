"""What a file for axolotl does, by axolotl itself: from the YAML to the calls of FSDP.

axolotl's own code validates the file, sets the environment, and makes training arguments of it;
transformers and accelerate go on from there. What else axolotl imports is replaced by stubs, so
that neither CUDA nor its many requirements are needed.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.util
import logging
import os
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from accelerate_effect import Effect, environment, prepared

BASE: Mapping[str, object] = {
    "base_model": "a/b",
    "datasets": [{"path": "a/c", "type": "alpaca"}],
    "gradient_accumulation_steps": 1,
    "learning_rate": 1e-5,
    "micro_batch_size": 1,
    "num_epochs": 1,
    "optimizer": "adamw_torch",
    "sequence_len": 512,
}


class _Open(type):
    """The class of stub classes, which have every attribute, and which pydantic takes."""

    def __getattr__(cls, name: str) -> Any:
        if name == "__get_pydantic_core_schema__":
            return lambda *_: {"type": "any"}
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class _Stub(types.ModuleType):
    """A module with whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        made: Any = MagicMock()
        if name == "__version__":
            made = "9.9.9"
        elif name[:1].isupper():
            made = _Open(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stub for each package that axolotl imports and that is not installed."""

    def find_spec(self, name: str, *_: object) -> Any:
        frame: Any = sys._getframe(1)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        asks = frame.f_globals.get("__name__", "") if frame else ""
        known = isinstance(sys.modules.get(name.partition(".")[0]), _Stub)
        return ModuleSpec(name, self, is_package=True) if known or _is_axolotl(asks) else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


def _is_axolotl(name: str) -> bool:
    return name.partition(".")[0] == "axolotl"


@functools.cache
def _prepare() -> None:
    """Import transformers as it is, and what axolotl needs of others as stubs."""
    import transformers.trainer

    logging.disable(logging.CRITICAL)
    sys.meta_path.append(_Stubs())
    # It cannot be imported without a further package.
    sys.modules[_MISTRAL] = _Stub(_MISTRAL)
    assert transformers.trainer
    from accelerate.utils import fsdp_utils

    _OWN.update(vars(fsdp_utils))


_MISTRAL = "transformers.tokenization_mistral_common"
_BUILDERS = (
    "axolotl.core.builders.base",
    "axolotl.core.builders.causal",
    "axolotl.core.trainer_builder",
)
_OWN: dict[str, Any] = {}
"""What accelerate has before axolotl puts its own in its place."""


def effect(config: Mapping[str, object]) -> Effect:
    """Return the effect of a file with ``config``, and with what every file needs."""
    _prepare()
    with tempfile.TemporaryDirectory() as folder, environment():
        try:
            cfg = _validated({**BASE, "output_dir": folder, **config})
            importlib.import_module("axolotl.utils.trainer").prepare_optim_env(cfg)
            given = _arguments(cfg)
            _patch(cfg)
            made = prepared(functools.partial(_plugin, given, cfg, folder))
            saves = _saved(cfg) if made.get("sharding") != "none" else ""
            mesh = {k: v for k, v in os.environ.items() if k.startswith("PARALLELISM")}
            return {**made, "saves": saves, "mesh": mesh}
        except Exception as error:  # whatever stops it is the result
            return {"error": f"{type(error).__name__}: {error}".replace(folder, "out")}


def _validated(config: Mapping[str, object]) -> Any:
    """Return the configuration as axolotl has it after its validation."""
    made = importlib.import_module("axolotl.utils.dict").DictDefault(config)
    return importlib.import_module("axolotl.utils.config").validate_config(made)


def _plugin(given: dict[str, Any], cfg: Any, folder: str) -> Any:
    from transformers_effect import plugin

    checkpointing = bool(cfg.gradient_checkpointing)
    return plugin(folder, gradient_checkpointing=checkpointing, **given)


def _arguments(cfg: Any) -> dict[str, Any]:
    """Return the arguments of FSDP that axolotl's builder gives to transformers."""
    given: dict[str, Any] = {}
    holder = types.SimpleNamespace(cfg=cfg)
    _builder()(holder, given)
    return given


@functools.cache
def _builder() -> Callable[[Any, dict[str, Any]], None]:
    """Return the part of axolotl's builder that makes the arguments of FSDP."""
    for name in _BUILDERS:
        tree = _tree(name)
        for node in ast.walk(tree) if tree else ():
            given = _given(node)
            if given:
                code = ast.unparse(node).replace("\n", "\n    ")
                made: dict[str, Any] = {}
                exec(f"def build(self, {given}):\n    {code}", made)
                build: Callable[[Any, dict[str, Any]], None] = made["build"]
                return build
    raise RuntimeError("no builder gives `fsdp` to transformers")


def _given(node: ast.AST) -> str:
    """Return the dictionary that a condition on the settings of FSDP fills, "" if it is another."""
    if not isinstance(node, ast.If) or "self.cfg.fsdp" not in ast.unparse(node.test):
        return ""
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript) and ast.unparse(each.slice) == "'fsdp'":
            return ast.unparse(each.value)
    return ""


def _patch(cfg: Any) -> None:
    """Let axolotl shard by its own code where it does so, else by accelerate's."""
    from accelerate import accelerator
    from accelerate.utils import fsdp_utils

    for module in (fsdp_utils, accelerator):
        module.fsdp2_prepare_model = _OWN.get("fsdp2_prepare_model")
    version = cfg.fsdp_version or (cfg.fsdp_config or {}).get("fsdp_version")
    with suppress(ModuleNotFoundError):
        own = importlib.import_module("axolotl.monkeypatch.accelerate.fsdp2")
        for name in ("patch_accelerate_fsdp2", "patch_accelerate_fsdp_utils"):
            if str(version) == "2" and (cfg.fsdp_config or cfg.fsdp) and hasattr(own, name):
                getattr(own, name)()


def _saved(cfg: Any) -> str:
    """Return the type of state dict that axolotl chooses when training ends."""
    trainer = MagicMock(is_fsdp_enabled=True)
    names = {
        "cfg": cfg,
        "trainer": trainer,
        "LOG": MagicMock(),
        "state_dict_type": "FULL_STATE_DICT",
    }
    # What it does after the choice is of no interest.
    with suppress(Exception):
        exec(_choice(), names)
    return str(trainer.accelerator.state.fsdp_plugin.set_state_dict_type.call_args)


@functools.cache
def _choice() -> types.CodeType:
    """Return the part of axolotl's code that chooses the last type of state dict."""
    tree = _tree("axolotl.train")
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.If) and "set_state_dict_type(" in ast.unparse(node):
            return compile(ast.unparse(node), "train.py", "exec")
    raise RuntimeError("no code chooses a type of state dict")


def _tree(name: str) -> ast.Module | None:
    """Return the code of a module, None if there is none."""
    with suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            return ast.parse(Path(spec.origin).read_text("utf-8"))
    return None
