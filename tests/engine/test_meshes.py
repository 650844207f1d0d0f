"""What device meshes are made with, and which dimension is sharded over."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import script

from fsdplint.engine.facts.meshes import Mistake, bad_meshes, mistaken_roles

IMPORT = "from torch.distributed.device_mesh import init_device_mesh\nmodel = nn.Linear(8, 8)\n"


def kinds(tmp_path: Path, mesh: str, more: str = "") -> list[str]:
    text = f"{IMPORT}mesh = {mesh}\nfully_shard(model, mesh=mesh{more})\n"
    return [fact.kind for fact in bad_meshes(script(tmp_path, text))]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("'cuda', (8,)", []),
        ("'cuda', [2, 4], mesh_dim_names=['a', 'b']", []),
        ("'cuda', (n,), mesh_dim_names=names", []),
        ("device, shape", []),
        ("device.type, (8,)", []),
        ("'cuda', (8,), mesh_dim_names=('d')", []),
        ("'cuda:0', (8,)", ["index"]),
        ("f'cuda:{n}', (8,)", ["index"]),
        ("f'{n}', (8,)", []),
        ("torch.device('cuda', 1), (8,)", ["device"]),
        ("'cuda', 8", ["number"]),
        ("'cuda', (-1, 2), mesh_dim_names=('a', 'b')", []),
        ("'cuda', (8,), ('dp',)", ["position"]),
        ("'cuda', (8,), mesh_dim_names='dp'", ["text"]),
        ("'cuda', (8,), mesh_dim_names=('a', 'b')", []),
        ("'cuda', (2, 4), mesh_dim_names=('a', 'a')", []),
        ("'cuda', (2, 4)", ["nameless"]),
        ("'cuda', (2, 2, 2), mesh_dim_names=('a', 'b', 'c')", ["dimensions"]),
    ],
)
def test_arguments_of_a_mesh(tmp_path: Path, given: str, expected: list[str]) -> None:
    assert kinds(tmp_path, f"init_device_mesh({given})") == expected


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("'cuda'", []),
        ("(2,)", []),
        ("dist.new_group([0])", []),
        ("dist.group.WORLD", []),
        ("None", []),
        ("unknown()", []),
        ("init_device_mesh('cuda', (2, 4), mesh_dim_names=('a', 'b'))['a']", []),
    ],
)
def test_what_is_no_mesh(tmp_path: Path, mesh: str, expected: list[str]) -> None:
    assert kinds(tmp_path, mesh) == expected


def test_dimensions_that_are_told(tmp_path: Path) -> None:
    deep = "init_device_mesh('cuda', (2, 2, 2), mesh_dim_names=('a', 'b', 'c'))"
    assert kinds(tmp_path, deep, ", dp_mesh_dims=unknown") == []


@pytest.mark.parametrize(
    ("names", "mistakes"),
    [
        ("('dp', 'tp')", [Mistake.MODEL]),
        ("('ep', 'fsdp')", [Mistake.MODEL]),
        ("('data_parallel', 'tensor_parallel')", [Mistake.MODEL]),
        ("('shard', 'replicate')", [Mistake.ORDER]),
        ("('dp_shard', 'dp_replicate')", [Mistake.ORDER]),
        ("('dp_shard', 'cp')", [Mistake.BOTH]),
        ("('replicate', 'shard')", []),
        ("('dp', 'cp')", []),
        ("('pp', 'tp')", []),
        ("('node', 'gpu')", []),
        ("names", []),
    ],
)
def test_roles_of_dimensions(tmp_path: Path, names: str, mistakes: list[Mistake]) -> None:
    text = (
        f"{IMPORT}mesh = init_device_mesh('cuda', (2, 4), mesh_dim_names={names})\n"
        "fully_shard(model, mesh=mesh)\n"
    )
    assert [fact.mistake for fact in mistaken_roles(script(tmp_path, text))] == mistakes


@pytest.mark.parametrize(
    ("mesh", "mistakes"),
    [
        ("mesh['dp_shard', 'cp']", [Mistake.BOTH]),
        ("mesh['dp_shard', 'tp']", [Mistake.MODEL]),
        ("mesh['dp_shard', name, 'cp']", []),
        ("mesh['dp_shard', 'cp']._flatten()", []),
        ("meshes['dp_shard', 'cp']", []),
        ("unknown['dp_shard', 'cp']", []),
    ],
)
def test_dimensions_taken_from_a_mesh(tmp_path: Path, mesh: str, mistakes: list[Mistake]) -> None:
    text = (
        f"{IMPORT}mesh = init_device_mesh('cuda', (2, 2, 2), "
        "mesh_dim_names=('dp_shard', 'cp', 'tp'))\n"
        "meshes = {('dp_shard', 'cp'): mesh['dp_shard']}\n"
        f"fully_shard(model, mesh={mesh})\n"
    )
    assert [fact.mistake for fact in mistaken_roles(script(tmp_path, text))] == mistakes
