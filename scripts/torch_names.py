"""The public names of a release of PyTorch, read off its wheel without running it.

Only the Python sources are fetched, by ranges of the archive.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import griffe

# Of `torch.distributed` itself only its own names are read, of these all public modules below too.
BELOW = ("fsdp", "tensor", "checkpoint", "device_mesh")
# What public names are defined in. The rest is large, and none of their definitions is there.
SOURCES = re.compile(
    r"torch/distributed/((fsdp|tensor|checkpoint|_composable|_tensor)/(?!_ops/).*|[^/]*)\.py"
)


def public_names(wheel: str) -> dict[str, str]:
    """Return the public names of a release, each with its parameters."""
    with tempfile.TemporaryDirectory() as folder:
        remote = fsspec.filesystem("http").open(wheel, block_size=2**21, cache_type="blockcache")
        with remote, zipfile.ZipFile(remote) as archive:
            archive.extractall(folder, filter(SOURCES.fullmatch, archive.namelist()))
        loader = griffe.GriffeLoader(search_paths=[folder], allow_inspection=False)
        (Path(folder) / "torch/__init__.py").touch()
        distributed = loader.load("torch")["distributed"]
        loader.resolve_aliases(implicit=True, external=False)
    names = dict(_members(distributed))
    for name in BELOW:
        names.update(_below(distributed[name]))
    return names


def _below(module: griffe.Object) -> Iterator[tuple[str, str]]:
    yield from _members(module)
    for name, member in module.members.items():
        if not member.is_alias and member.is_module and not name.startswith("_"):
            yield from _below(member)


def _members(module: griffe.Object) -> Iterator[tuple[str, str]]:
    """Yield the public names of one module, and those of the public classes in it."""
    for name, member in module.members.items():
        if not _is_public(module, name, member):
            continue
        path = f"{module.path}.{name}"
        target = _target(member)
        yield path, "" if target is None else _parameters(target)
        if target is not None and target.is_class:
            for inner, part in target.members.items():
                if (
                    not inner.startswith("_")
                    and not part.is_alias
                    and (part.is_function or inner.isupper())
                ):
                    yield f"{path}.{inner}", _parameters(part)


def _is_public(module: griffe.Object, name: str, member: griffe.Object | griffe.Alias) -> bool:
    if module.exports is not None:
        return name in module.exports
    if name.startswith("_") or (not member.is_alias and member.is_module):
        return False
    # What a module without ``__all__`` imports is its own only in a package.
    return not member.is_alias or (module.is_init_module and "torch.dist" in member.target_path)


def _target(member: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """Return what a name is in the end, None if it is defined in no file that is read."""
    try:
        return member.final_target if member.is_alias else member
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def _parameters(member: griffe.Object) -> str:
    """Return the parameters of a function or class, as ``module, *, mesh=None``."""
    if not (member.is_function or member.is_class):
        return ""
    shown, keyword_only = [], False
    for each in member.parameters:
        kind = each.kind
        if kind is griffe.ParameterKind.keyword_only and not keyword_only:
            shown.append("*")
        keyword_only |= kind in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        )
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
        default = "" if each.default is None or kind in stars else f"={each.default}"
        if each.name != "self":
            shown.append(f"{stars.get(kind, '')}{each.name}{default}")
    return ", ".join(shown)
