"""Programs whose objects come from elsewhere, or that nobody runs."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from random import Random

from tests.fuzz.rewriting.extract import wrap_main
from tests.fuzz.rewriting.names import (
    after,
    bound,
    fresh,
    is_dynamic,
    loads,
    local_names,
    parameters,
    words,
)
from tests.fuzz.trees import Statements, Trees, blocks, parents

_FSDP1 = frozenset({"FSDP", "FullyShardedDataParallel"})
_FSDP2 = frozenset({"fully_shard"})
_FIXED = (
    ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Global, ast.Nonlocal,
    ast.Delete, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom,
    ast.NamedExpr, ast.Match, ast.ExceptHandler, ast.Return,
)  # fmt: skip
# Functions of torch that make what a class could.
_MAKING = frozenset({"init_device_mesh"})
_OPTIMIZERS = frozenset({"SGD", "Adam", "AdamW", "Adagrad", "RMSprop"})
_METHODS = ("fit", "evaluate", "save", "finish")


def as_methods(trees: Trees, random: Random) -> bool:
    """Makes a class of a function that shards, whose rest is methods; nobody constructs it."""
    found = _programs(trees, random)
    if found is None:
        return False
    module, function, shards = found
    first, rest = function.body[: shards + 1], function.body[shards + 1 :]
    cuts = sorted(random.sample(range(1, len(rest)), min(random.randint(0, 2), len(rest) - 1)))
    parts = [first, *(rest[a:b] for a, b in zip([0, *cuts], [*cuts, len(rest)], strict=True))]
    own = local_names(function)
    wanted = {name for part in parts[1:] for name in _read_first(part)} & own
    if wanted & _inner_targets(function) or "self" in own:
        return False
    kept = [name for name in parameters(function) if name in wanted]
    start = [_kept(name) for name in kept]
    methods = [_method("__init__", [*start, *_on_self(first, wanted)], function.args)]
    for name, part in zip(_METHODS, parts[1:], strict=False):
        methods.append(_method(name, _on_self(part, wanted), None))
    made = ast.ClassDef(fresh(trees, "Trainer"), [], [], methods, [])
    module.body[module.body.index(function)] = made
    return True


def as_parameter(trees: Trees, random: Random) -> bool:
    """Leaves what follows the sharding, as a function that says what its parameters are."""
    found = _programs(trees, random)
    if found is None:
        return False
    module, function, shards = found
    unit = _sharded(module, function.body[: shards + 1])
    rest = function.body[shards + 1 :]
    wanted = _read_first(rest) & local_names(function)
    if unit is None or unit[0] not in wanted or wanted & _inner_targets(function):
        return False
    name, annotation = unit
    optimizers = _optimizers(function.body[: shards + 1]) & wanted
    others = [ast.arg(each, _annotation(each in optimizers)) for each in sorted(wanted - {name})]
    function.args = ast.arguments([], [ast.arg(name, annotation), *others], None, [], [], None, [])
    function.body = rest
    at = _behind_future(module)
    if ast.unparse(annotation) == "FSDPModule":
        imported = ast.ImportFrom("torch.distributed.fsdp", [ast.alias("FSDPModule")], 0)
        module.body.insert(at, imported)
    if optimizers:
        module.body.insert(at, ast.ImportFrom("torch.optim", [ast.alias("Optimizer")], 0))
    return True


def _optimizers(first: Statements) -> set[str]:
    """The variables to which an optimizer of torch is assigned."""
    return {
        name
        for node in first
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if _last(node.value.func) in _OPTIMIZERS
        for name in bound(node.targets)
    }


def _annotation(optimizer: bool) -> ast.expr | None:
    return ast.Name("Optimizer", ast.Load()) if optimizer else None


def by_factory(trees: Trees, random: Random) -> bool:
    """Constructs an object in a function of its own, which gets the arguments or what they read."""
    found = list(_constructions(trees))
    if not found:
        return False
    module, top, call = random.choice(found)
    made = copy.copy(call)
    own = local_names(top) if isinstance(top, ast.FunctionDef) else bound([top])
    own |= bound(node for node in module.body if isinstance(node, (ast.Assign, ast.With, ast.For)))
    inner = any(isinstance(node, (ast.Lambda, ast.comprehension)) for node in ast.walk(call))
    if random.random() < 0.5 and not inner:
        read = sorted(loads(call) & own)
        given: dict[str, ast.expr] = {name: ast.Name(name, ast.Load()) for name in read}
    else:
        given = _parameterized(made, loads(call))
    helper = fresh(trees, f"build_{words(call.func)}")
    body: Statements = [ast.Return(made)]
    names = [ast.arg(name) for name in given]
    signature = ast.arguments([], names, None, [], [], None, [])
    defined = ast.FunctionDef(helper, signature, body, [], None, None, lineno=0)
    call.func, call.args, call.keywords = ast.Name(helper, ast.Load()), list(given.values()), []
    module.body.insert(module.body.index(top), defined)
    return True


def _parameterized(made: ast.Call, taken: set[str]) -> dict[str, ast.expr]:
    """Puts a parameter for each argument that is no constant; what is given for each."""
    made.args = list(made.args)
    made.keywords = [copy.copy(keyword) for keyword in made.keywords]
    given: dict[str, ast.expr] = {}
    for position, value in enumerate(made.args):
        if not isinstance(value, ast.Constant):
            name = _unlike(words(value), {*given, *taken})
            given[name], made.args[position] = value, ast.Name(name, ast.Load())
    for keyword in made.keywords:
        if not isinstance(keyword.value, ast.Constant):
            name = _unlike(keyword.arg or "", {*given, *taken})
            given[name], keyword.value = keyword.value, ast.Name(name, ast.Load())
    return given


# Programs that shard


def _programs(trees: Trees, random: Random) -> tuple[ast.Module, ast.FunctionDef, int] | None:
    """A function that shards, with the last of its statements that does; its calls are gone."""
    found = list(_sharding_functions(trees))
    if not found and wrap_main(trees, random):
        found = list(_sharding_functions(trees))
    random.shuffle(found)
    for module, function, shards in found:
        if _uncalled(trees, module, function):
            return module, function, shards
    return None


def _sharding_functions(trees: Trees) -> Iterator[tuple[ast.Module, ast.FunctionDef, int]]:
    for module in trees.modules.values():
        names = _sharding_names(module)
        for function in module.body:
            if not isinstance(function, ast.FunctionDef) or function.decorator_list:
                continue
            shards = [i for i, each in enumerate(function.body) if _calls(each, names)]
            if shards and shards[-1] + 1 < len(function.body) and not _is_fixed(function):
                yield module, function, shards[-1]


def _is_fixed(function: ast.FunctionDef) -> bool:
    last = function.body[-1]
    inner = function.body[:-1] if isinstance(last, ast.Return) else function.body
    fixed = any(isinstance(node, _FIXED) for each in inner for node in ast.walk(each))
    return fixed or is_dynamic(function)


def _sharding_names(module: ast.Module) -> set[str]:
    """What a file calls the functions that shard, and those of its own that call one."""
    names = {*_FSDP1, *_FSDP2}
    for node in ast.walk(module):
        if isinstance(node, ast.alias) and node.name in names and node.asname:
            names.add(node.asname)
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    for _ in functions:
        names |= {each.name for each in functions if _calls(each, names)}
    return names


def _calls(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Call) and _last(each.func) in names for each in ast.walk(node))


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _uncalled(trees: Trees, module: ast.Module, function: ast.FunctionDef) -> bool:
    """Removes the calls of a function from the end of its script; False if it is used otherwise."""
    uses = [
        node
        for each in trees.modules.values()
        for node in ast.walk(each)
        if function.name in (getattr(node, "id", None), getattr(node, "attr", None))
        or (isinstance(node, ast.alias) and node.name == function.name)
    ]
    above = parents(module)
    removed = []
    for use in uses:
        statement = above.get(above.get(use, use), use)
        if not isinstance(statement, ast.Expr) or statement.value is not above[use]:
            return False
        removed.append(statement)
    for owner, statements in list(blocks(module)):
        if not any(each in statements for each in removed):
            continue
        statements[:] = [each for each in statements if each not in removed]
        if not statements and owner is not module:
            statements.append(ast.Pass())
    return True


def _sharded(module: ast.Module, first: Statements) -> tuple[str, ast.expr] | None:
    """The variable of the unit that the last sharding call makes, and the class of it."""
    new = {*_FSDP2, *_aliases(module, _FSDP2)}
    old = {*_FSDP1, *_aliases(module, _FSDP1)}
    for statement in reversed(first):
        value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if not isinstance(value, ast.Call) or _last(value.func) not in new | old:
            continue
        target: ast.expr = value.args[0] if value.args else value
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        if not isinstance(target, ast.Name):
            return None
        is_new = _last(value.func) in new
        kind = ast.Name("FSDPModule", ast.Load()) if is_new else copy.deepcopy(value.func)
        return target.id, kind
    return None


def _aliases(module: ast.Module, names: frozenset[str]) -> set[str]:
    aliases = [node for node in ast.walk(module) if isinstance(node, ast.alias)]
    return {each.asname for each in aliases if each.name in names and each.asname}


def _behind_future(module: ast.Module) -> int:
    kinds = (ast.Import, ast.ImportFrom)
    places = [i for i, node in enumerate(module.body) if isinstance(node, kinds)]
    return places[-1] + 1 if places else 0


# Names that one part binds and another reads


def _read_first(part: Statements) -> set[str]:
    """The names that a part reads before it has surely bound them."""
    found: set[str] = set()
    for index, statement in enumerate(part):
        known = after(part[:index])
        seen: set[str] = set()
        for name, is_read in _uses(statement):
            if is_read and name not in known | seen:
                found.add(name)
            seen.add(name)
    return found


def _uses(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """The names below a node in the order of their use, and whether each is read."""
    if isinstance(node, ast.Name):
        yield node.id, isinstance(node.ctx, ast.Load)
        return
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, True
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        children = [node.value, *(each for each in children if each is not node.value)]
    elif isinstance(node, ast.For):
        children = [node.iter, node.target, *node.body, *node.orelse]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        children = [*node.generators, *(each for each in children if each not in node.generators)]
    elif isinstance(node, ast.comprehension):
        children = [node.iter, node.target, *node.ifs]
    for child in children:
        yield from _uses(child)


def _inner_targets(function: ast.FunctionDef) -> set[str]:
    """Names of comprehensions and lambdas, which are variables of their own."""
    nodes = list(ast.walk(function))
    targets = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    given = [node.args for node in nodes if isinstance(node, ast.Lambda)]
    return bound(targets) | {
        arg.arg for each in given for arg in ast.walk(each) if isinstance(arg, ast.arg)
    }


class _OnSelf(ast.NodeTransformer):
    """Attributes of ``self`` for variables."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            return node
        made = ast.Attribute(ast.Name("self", ast.Load()), node.id, node.ctx)
        made.origin = getattr(node, "origin", None)  # type: ignore[attr-defined]  # see Trees
        return made


def _on_self(part: Statements, names: set[str]) -> Statements:
    return [_OnSelf(names).visit(each) for each in part]


def _kept(name: str) -> ast.stmt:
    target = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Store())
    return ast.Assign([target], ast.Name(name, ast.Load()))


def _method(name: str, body: Statements, given: ast.arguments | None) -> ast.stmt:
    own = ast.arg("self")
    arguments = given or ast.arguments([], [], None, [], [], None, [])
    first = arguments.posonlyargs if arguments.posonlyargs else arguments.args
    first.insert(0, own)
    return ast.FunctionDef(name, arguments, body, [], None, None, lineno=0)


# Constructions


def _constructions(trees: Trees) -> Iterator[tuple[ast.Module, ast.stmt, ast.Call]]:
    """The calls of classes whose result gets a name, below the statement of their file."""
    for module in trees.modules.values():
        for top in module.body:
            local = local_names(top) if isinstance(top, ast.FunctionDef) else set[str]()
            for node in ast.walk(top):
                call = node.value if isinstance(node, ast.Assign) else None
                plain = isinstance(call, ast.Call) and _is_construction(call)
                if plain and not loads(call.func) & local and not isinstance(top, ast.ClassDef):
                    yield module, top, call


def _is_construction(call: ast.Call) -> bool:
    plain = not any(isinstance(each, ast.Starred) for each in call.args)
    named = all(keyword.arg for keyword in call.keywords)
    name = _last(call.func)
    return plain and named and (name[:1].isupper() or name in _MAKING) and not is_dynamic(call)


def _unlike(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
