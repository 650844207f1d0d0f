"""The same definitions elsewhere, and imported in another way."""

from __future__ import annotations

import ast
import copy
from itertools import pairwise
from pathlib import PurePosixPath
from random import Random

from tests.fuzz.rewriting.hidden import by_factory
from tests.fuzz.rewriting.names import (
    BUILTINS,
    bound,
    elsewhere,
    fresh,
    is_dynamic,
    loads,
    local_names,
)
from tests.fuzz.trees import Trees, parents

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def split(trees: Trees, random: Random) -> bool:
    """Moves functions and classes to a new file beside theirs, and imports them from there."""
    path, module = random.choice(sorted(trees.modules.items()))
    movable = _movable(module)
    if not movable:
        return False
    stem = fresh(trees, random.choice(("parts", "helpers", "lib")))
    chosen = _closed(movable, random)
    return _moved(trees, path, chosen, f"{stem}.py", _import_of(module, stem, chosen))


def into_library(trees: Trees, random: Random) -> bool:
    """Moves functions and classes to a package, and asks its module for them: ``training.f()``."""
    path, module = random.choice(sorted(trees.modules.items()))
    movable = _movable(module)
    if not movable or any(isinstance(n, ast.ImportFrom) and n.level for n in ast.walk(module)):
        return False
    library, stem = fresh(trees, "lib"), fresh(trees, random.choice(("training", "setup")))
    chosen = _closed(movable, random)
    if any(_taken(trees, module, name) for name in chosen):
        return False
    package = (PurePosixPath(path).parent / library / "__init__.py").as_posix()
    made = ast.ImportFrom(library, [ast.alias(stem)], 0)
    if not _moved(trees, path, chosen, f"{library}/{stem}.py", made):
        return False
    if any(_hidden(module, name) for name in chosen):
        return False
    trees.modules[package] = ast.Module([], [])
    for name in chosen:
        _renamed(module, name, ast.Attribute(ast.Name(stem, ast.Load()), name, ast.Load()))
    return True


def by_factory_elsewhere(trees: Trees, random: Random) -> bool:
    """Constructs an object in a function of another file, which is imported."""
    before = {name for module in trees.modules.values() for name in bound(module.body)}
    if not by_factory(trees, random):
        return False
    for path, module in sorted(trees.modules.items()):
        movable = _movable(module)
        made = [name for name in movable if name not in before]
        if made:
            stem = fresh(trees, "factories")
            chosen = _with_uses(movable, made)
            return _moved(trees, path, chosen, f"{stem}.py", _import_of(module, stem, chosen))
    return False


def _movable(module: ast.Module) -> dict[str, ast.stmt]:
    """The definitions of a file that need nothing but its imports and one another, by name."""
    imports = [n for n in module.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    if any(alias.name == "*" for node in imports for alias in node.names):
        return {}
    imported = bound(n for n in imports if getattr(n, "module", "") != "__future__")
    movable: dict[str, ast.stmt] = {
        n.name: n for n in module.body if isinstance(n, _DEFINED) and not is_dynamic(n)
    }
    for name in list(movable):
        if _bindings(module, name) != 1 or elsewhere(movable[name]):
            del movable[name]
    allowed = imported | BUILTINS - {"__file__", "__name__"}
    while True:
        moved = {
            name: node for name, node in movable.items() if _free(node) <= allowed | movable.keys()
        }
        if moved.keys() == movable.keys():
            return movable
        movable = moved


def _moved(
    trees: Trees, path: str, chosen: dict[str, ast.stmt], new: str, imported: ast.ImportFrom
) -> bool:
    """Puts definitions into a new file, and an import in the place of the first of them."""
    module = trees.modules[path]
    place = (PurePosixPath(path).parent / new).as_posix()
    if place in trees.modules:
        return False
    imports = [n for n in module.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    statements = [node for node in module.body if node in chosen.values()]
    first = module.body.index(statements[0])
    trees.modules[place] = ast.Module([*copy.deepcopy(imports), *statements], [])
    module.body.insert(first, imported)
    module.body = [node for node in module.body if node not in statements]
    return True


def _import_of(module: ast.Module, stem: str, chosen: dict[str, ast.stmt]) -> ast.ImportFrom:
    """``from stem import ...``, relative where the file has such imports."""
    level = int(any(isinstance(n, ast.ImportFrom) and n.level for n in module.body))
    return ast.ImportFrom(stem, [ast.alias(name) for name in chosen], level)


def _bindings(module: ast.Module, name: str) -> int:
    """How often a module binds a name at its top level, or a function of it does so globally."""
    count = sum(name in bound([node]) for node in module.body)
    return count + (name in elsewhere(module))


def _free(node: ast.AST) -> set[str]:
    """Names a definition needs of its module; one that an inner scope binds counts as well."""
    assert isinstance(node, _DEFINED)
    own = {node.name}
    if not isinstance(node, ast.ClassDef):
        return loads(node) - local_names(node) - own - _inner(node)
    return loads(node) - own - _inner(node)


def _inner(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found |= local_names(each)
        elif isinstance(each, ast.ClassDef):
            found |= bound(each.body)
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.comprehension):
            found |= bound([each.target])
    return found


def _closed(movable: dict[str, ast.stmt], random: Random) -> dict[str, ast.stmt]:
    """Some definitions, with all others that they refer to."""
    names = random.sample(sorted(movable), random.randint(1, len(movable)))
    return _with_uses(movable, names)


def _with_uses(movable: dict[str, ast.stmt], names: list[str]) -> dict[str, ast.stmt]:
    queue = list(names)
    for name in queue:
        queue.extend(n for n in sorted(_free(movable[name]) & movable.keys()) if n not in queue)
    return {name: movable[name] for name in queue}


def import_style(trees: Trees, random: Random) -> bool:
    """Imports a library's name in another way: under an alias, from its parent, with its module."""
    found = [
        (module, node, alias)
        for module in trees.modules.values()
        for node in module.body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0)
        if getattr(node, "module", None) != "__future__"
        for alias in node.names
        if alias.name != "*" and not _is_own(trees, getattr(node, "module", None) or alias.name)
    ]
    if not found:
        return False
    module, node, alias = random.choice(found)
    name = alias.asname or alias.name
    if (
        "." in name
        or _bindings(module, name) != 1
        or _hidden(module, name)
        or _taken(trees, module, name)
    ):
        return False
    if isinstance(node, ast.ImportFrom):
        return _import_member(trees, random, module, node, alias, name)
    parent, _, last = alias.name.rpartition(".")
    if not parent:
        alias.asname = fresh(trees, f"{name}_lib")
        _renamed(module, name, ast.Name(alias.asname, ast.Load()))
        return True
    node.names.remove(alias)
    made = ast.ImportFrom(parent, [ast.alias(last, alias.asname)], 0)
    _put(module, node, made)
    return True


def _import_member(
    trees: Trees,
    random: Random,
    module: ast.Module,
    node: ast.ImportFrom,
    alias: ast.alias,
    name: str,
) -> bool:
    assert node.module is not None
    member = alias.name
    if random.random() < 0.4:
        alias.asname = fresh(trees, f"{name}_")
        _renamed(module, name, ast.Name(alias.asname, ast.Load()))
        return True
    node.names.remove(alias)
    if random.random() < 0.5:
        short = fresh(trees, node.module.rpartition(".")[2] + "_lib")
        made = ast.Import([ast.alias(node.module, short)])
        _renamed(module, name, ast.Attribute(ast.Name(short, ast.Load()), member, ast.Load()))
    else:
        if _hidden(module, node.module.split(".")[0]):
            node.names.append(alias)
            return False
        made = ast.Import([ast.alias(node.module)])
        dotted: ast.expr = ast.parse(f"{node.module}.{member}", mode="eval").body
        _renamed(module, name, dotted)
    _put(module, node, made)
    return True


def _is_own(trees: Trees, name: str) -> bool:
    top = name.split(".")[0]
    return any(top in PurePosixPath(path).with_suffix("").parts for path in trees.modules)


def _hidden(module: ast.Module, name: str) -> bool:
    """Whether an inner scope, or an assignment, makes something else of a name."""
    for node in ast.walk(module):
        if isinstance(node, (ast.Name, ast.arg)) and name in (
            getattr(node, "arg", None),
            node.id if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else None,
        ):
            return True
        if isinstance(node, _DEFINED) and node.name == name:
            return True
        inner = isinstance(node, (ast.Import, ast.ImportFrom)) and node not in module.body
        if inner and name in bound([node]):
            return True
        if isinstance(node, ast.Constant) and node.value == name:
            return True
    return False


def _taken(trees: Trees, module: ast.Module, name: str) -> bool:
    """Whether another file imports the name from this one, by name or as an attribute."""
    return (
        any(
            name in (getattr(node, "name", None), getattr(node, "attr", None))
            and not (isinstance(node, ast.alias) and node.asname)
            for other in trees.modules.values()
            if other is not module
            for node in ast.walk(other)
            if isinstance(node, (ast.alias, ast.Attribute))
        )
        and len(trees.modules) > 1
    )


def _renamed(module: ast.Module, name: str, made: ast.expr) -> None:
    above = parents(module)
    for node in list(ast.walk(module)):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            new = copy.deepcopy(made)
            if hasattr(node, "origin"):
                new.origin = node.origin  # type: ignore[attr-defined]  # see Trees
            owner = above[node]
            for field, value in ast.iter_fields(owner):
                if value is node:
                    setattr(owner, field, new)
                elif isinstance(value, list):
                    for index, item in enumerate(value):
                        if item is node:
                            value[index] = new


def _put(module: ast.Module, node: ast.Import | ast.ImportFrom, made: ast.stmt) -> None:
    at = module.body.index(node)
    module.body.insert(at, made)
    if hasattr(node, "origin"):
        made.origin = node.origin  # type: ignore[attr-defined]  # see Trees
    if not node.names:
        module.body.remove(node)


def import_late(trees: Trees, random: Random) -> bool:
    """Imports what one function alone uses in that function."""
    found = []
    for module in trees.modules.values():
        for node in module.body:
            if not isinstance(node, ast.ImportFrom) or node.level or node.module == "__future__":
                continue
            if _is_own(trees, node.module or ""):
                continue
            for alias in node.names:
                name = alias.asname or alias.name
                users = [n for n in module.body if n is not node and name in loads(n)]
                if len(users) == 1 and isinstance(users[0], ast.FunctionDef):
                    found.append((module, node, alias, users[0]))
    if not found:
        return False
    module, node, alias, user = random.choice(found)
    name = alias.asname or alias.name
    header = [*user.decorator_list, user.args, *([user.returns] if user.returns else [])]
    if (
        name == "*"
        or _hidden(module, name)
        or _taken(trees, module, name)
        or name in loads(*header)
    ):
        return False
    node.names.remove(alias)
    at = 1 if ast.get_docstring(user) is not None else 0
    made = ast.ImportFrom(node.module, [alias], 0)
    if hasattr(node, "origin"):
        made.origin = node.origin  # type: ignore[attr-defined]  # see Trees
    user.body.insert(at, made)
    if not node.names:
        module.body.remove(node)
    return True


def reorder(trees: Trees, random: Random) -> bool:
    """Puts the functions of a file that stand beside each other into another order."""
    found = []
    for module in trees.modules.values():
        for first, second in pairwise(module.body):
            if isinstance(first, ast.FunctionDef) and isinstance(second, ast.FunctionDef):
                eager = loads(*second.decorator_list, second.args, *_returned(second))
                if first.name not in eager and not first.decorator_list:
                    found.append((module, first))
    if not found:
        return False
    module, first = random.choice(found)
    at = module.body.index(first)
    module.body[at : at + 2] = [module.body[at + 1], first]
    return True


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    return [function.returns] if function.returns else []


# The names of the first parameters of functions that take them by position and by name.
_SIGNATURES = {
    "fully_shard": ("module",),
    "FullyShardedDataParallel": ("module", "process_group"),
    "AdamW": ("params", "lr"),
    "Adam": ("params", "lr"),
    "SGD": ("params", "lr"),
    "save": ("obj", "f"),
    "clip_grad_norm_": ("parameters", "max_norm"),
    "DataLoader": ("dataset", "batch_size"),
    "DistributedSampler": ("dataset",),
    "init_device_mesh": ("device_type", "mesh_shape"),
    "init_process_group": ("backend",),
    "load_state_dict": ("state_dict",),
    "get_model_state_dict": ("model",),
    "get_optimizer_state_dict": ("model", "optimizers"),
    "set_model_state_dict": ("model", "model_state_dict"),
    "StepLR": ("optimizer", "step_size"),
    "CosineAnnealingLR": ("optimizer", "T_max"),
    "all_reduce": ("tensor",),
    "broadcast": ("tensor", "src"),
    "MixedPrecisionPolicy": ("param_dtype", "reduce_dtype"),
    "set_epoch": ("epoch",),
}


def by_keyword(trees: Trees, random: Random) -> bool:
    """Gives an argument by keyword for one by position, or the other way round."""
    own = {
        node.name: tuple(argument.arg for argument in node.args.args)
        for module in trees.modules.values()
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and not node.decorator_list
        and not node.args.posonlyargs
    }
    found = []
    for module in trees.modules.values():
        libraries = _libraries(module)
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                names = _signature(node, own, libraries)
                if names and _can_move(node, names):
                    found.append((node, names))
    if not found:
        return False
    call, names = random.choice(found)
    count = len(call.args)
    if count and count <= len(names) and random.random() < 0.7:
        value = call.args.pop()
        call.keywords.insert(0, ast.keyword(names[count - 1], value))
        return True
    if call.keywords and count < len(names) and call.keywords[0].arg == names[count]:
        call.args.append(call.keywords.pop(0).value)
        return True
    return False


def _libraries(module: ast.Module) -> set[str]:
    """Names that the imports of torch bind in a file."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            found |= {alias.name for alias in node.names if not alias.asname}
            found |= {
                alias.asname for alias in node.names if alias.asname and alias.name in _MODULES
            }
        elif isinstance(node, ast.Import):
            found |= bound([node]) if any(a.name.startswith("torch") for a in node.names) else set()
    return found


_MODULES = {"distributed", "nn", "optim", "checkpoint", "fsdp", "functional"}


def _signature(
    call: ast.Call, own: dict[str, tuple[str, ...]], libraries: set[str]
) -> tuple[str, ...]:
    if isinstance(call.func, ast.Name):
        name = call.func.id
        if name in libraries:
            return _SIGNATURES.get(name, ())
        return own.get(name, ())
    if isinstance(call.func, ast.Attribute):
        root: ast.expr = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        method = call.func.attr in ("load_state_dict", "set_epoch")
        if method or (isinstance(root, ast.Name) and root.id in libraries):
            dotted = ast.unparse(call.func)
            if "dcp" in dotted or "checkpoint.save" in dotted:
                return ()
            return _SIGNATURES.get(call.func.attr, ())
    return ()


def _can_move(call: ast.Call, names: tuple[str, ...]) -> bool:
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    open_ = any(keyword.arg is None for keyword in call.keywords)
    return not starred and not open_ and len(call.args) <= len(names)
