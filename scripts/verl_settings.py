"""Write which settings of FSDP verl has, and which have an effect, as verl itself shows.

python scripts/verl_settings.py WHEELS     # a folder with the newest wheel of each minor release

Of Python packages the script needs Hydra, NumPy and PyTorch. In the table
`src/fsdplint/knowledge/verl_settings.csv` a row of the version 0 says in which releases the
configuration of PPO has a setting, and what is the default of a switch. One of 1 or 2 says whether
it has an effect where the strategy is `fsdp` or `fsdp2`; settings that are read in other places
than where the model is sharded have none of these rows. Of `strategy`, 1 says whether FSDP1 shards
if nothing is given, and 2 whether FSDP2 does if it is `fsdp2`. "(one engine)" says whether all
programs of verl shard by the same code.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate_settings import ROOT, Row, measure

TABLE = ROOT / "src/fsdplint/knowledge/verl_settings.csv"

ROLES = {
    "actor": ("actor_rollout_ref.actor", "fsdp_config"),
    "ref": ("actor_rollout_ref.ref", "fsdp_config"),
    "critic": ("critic", "fsdp", "model.fsdp_config"),
}
"""By role, its part of the configuration, and what holds its settings of FSDP."""
STRATEGIES = ("fsdp", "fsdp2")
_RUN = frozenset(
    {
        "_build_model_optimizer",
        "_build_critic_model_optimizer",
        "_build_fsdp_module",
        "_build_model",  # of a reward model, which has settings of its own
        "apply_fsdp2",
    }
)
_FOR_OTHERS = (
    *("megatron", "torchtitan", "veomni", "automodel", "mindspeed", "turbo", "_sft_", "sft_"),
    "config/",
)


def measured() -> Iterator[Row]:
    """Yield what the release of verl in the import path does with each setting."""
    import verl_effect

    verl_effect.install()
    import verl

    package = Path(verl.__file__).parent
    config = verl_effect.compose(package, ())
    here, elsewhere = _read_in(package)
    yield "(one engine)", 0, not (package / "workers/fsdp_workers.py").exists(), ""
    for role, (part, *sections) in ROLES.items():
        own = f"{part}.strategy"
        names = [name for section in sections for name in _leaves(config, f"{part}.{section}")]
        yield from ((name, 0, True, _default(config, name)) for name in (*names, own))
        calls = verl_effect.effect(package, role, ())
        yield own, 1, any(call.startswith("FSDP(") for call in calls), ""
        for name in (*names, own):
            if name.endswith(".strategy"):
                calls = verl_effect.effect(package, role, (f"{name}=fsdp2",))
                yield name, 2, any(call.startswith("fully_shard(") for call in calls), ""
        for name in names:
            if name.rpartition(".")[2] in here - elsewhere and _default(config, name):
                effects = [_has_effect(package, role, name, strategy) for strategy in STRATEGIES]
                if any(effects):
                    yield from ((name, number, does, "") for number, does in enumerate(effects, 1))


def _leaves(config: Any, section: str) -> list[str]:
    """Return the names of the settings in a section."""
    from omegaconf import DictConfig, OmegaConf

    found = OmegaConf.select(config, section)
    if not isinstance(found, DictConfig):
        return []
    plain = OmegaConf.to_container(found, resolve=False)
    assert isinstance(plain, dict)
    return [f"{section}.{name}" for name in _flat(plain) if not name.startswith("_")]


def _flat(plain: dict[Any, Any]) -> Iterator[str]:
    for name, value in plain.items():
        yield str(name)
        if isinstance(value, dict):
            yield from (f"{name}.{rest}" for rest in _flat(value))


def _default(config: Any, name: str) -> str:
    """Return the default of a switch, "" if it is another setting."""
    from omegaconf import OmegaConf

    value = OmegaConf.select(config, name)
    return str(value).lower() if isinstance(value, bool) else ""


def _has_effect(package: Path, role: str, name: str, strategy: str) -> bool:
    from verl_effect import effect

    chosen = [f"{ROLES[each][0]}.strategy={strategy}" for each in ("actor", "critic")]
    results = [effect(package, role, (*chosen, f"{name}={value}")) for value in ("true", "false")]
    return results[0] != results[1]


def _read_in(package: Path) -> tuple[set[str], set[str]]:
    """Return what is read in the functions that are run, and in others."""
    here: set[str] = set()
    elsewhere: set[str] = set()
    for file in package.rglob("*.py"):
        if any(word in file.relative_to(package).as_posix() for word in _FOR_OTHERS):
            continue
        tree = ast.parse(file.read_text("utf-8"))
        elsewhere.update(_read(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in _RUN:
                here.update(_read(node))
    return here, elsewhere


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names of attributes and of keys, but for those that are kept under their name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name in _RUN:
            continue
        if isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Attribute):
            # `self.x = config.x`, where what reads it reads `self.x`.
            yield from (each for each in _read(child.value) if each != child.targets[0].attr)
            continue
        keys: list[ast.expr] = []
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
            yield child.attr
        elif isinstance(child, ast.Subscript):
            keys = [child.slice]
        elif isinstance(child, ast.Call):
            keys = child.args[:2]  # of `get` and `getattr`
        for key in keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value
        yield from _read(child)


def main(arguments: list[str] | None = None) -> int:
    """Measure every wheel and write the table."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    return measure(Path(folder), "verl", "verl_settings", TABLE)


if __name__ == "__main__":
    sys.exit(main())
