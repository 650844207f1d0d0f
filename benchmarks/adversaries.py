"""Programs made to cost a static analyser more than their length: one function for each shape.

Each takes a size and gives the text of a script, which grows about linearly with it. `SHAPES` names
them all, each with the largest size that is asked of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
"""
_MODEL = """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(8)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of program, with the largest size that an analyser should bear."""

    text: Callable[[int], str]
    largest: int


def _script(lines: Iterable[str]) -> str:
    return _HEAD + _MODEL + "\n".join(lines) + "\n"


# Branches


def guarded_shards(n: int) -> str:
    """Unknown conditions in a row, a sharding call under each."""
    return _script(f"if a{i}:\n    fully_shard(b{i})" for i in range(n))


def unknown_ifs(n: int) -> str:
    """Unknown options, each deciding what becomes of one model, before it is sharded."""
    ifs = (f"    if args.option{i}:\n        model = model.bfloat16()" for i in range(n))
    guarded = (f"    if args.shard{i}:\n        fully_shard(model)" for i in range(n))
    body = ("def main(args):", "    model = Model()", *ifs, *guarded, "    optimizer = _sgd(model)")
    return _script(
        (*body, "\n\ndef _sgd(model):\n    return torch.optim.SGD(model.parameters(), lr=1.0)")
    )


def nested_ifs(n: int) -> str:
    """Unknown conditions in one another, with sharding in the else of each."""
    lines = ["def main(args):", "    model = Model()"]
    for i in range(n):
        lines.append("    " * (i + 1) + f"if args.option{i}:")
    lines.append("    " * (n + 1) + "fully_shard(model)")
    for i in reversed(range(n)):
        lines += ["    " * (i + 1) + "else:", "    " * (i + 2) + f"fully_shard(model, n={i})"]
    return _script(lines)


def early_exits(n: int) -> str:
    """Checks that leave the function in a row, before the sharding."""
    checks = (f"    if not args.option{i}:\n        return None" for i in range(n))
    return _script(("def main(args):", *checks, "    fully_shard(Model())"))


def match_cases(n: int) -> str:
    """A match statement that shards in every case."""
    cases = (f'        case "mode{i}":\n            fully_shard(model)' for i in range(n))
    return _script(("def main(mode):", "    model = Model()", "    match mode:", *cases))


def elif_chain(n: int) -> str:
    """A chain of tests of one option, each with a sharding call."""
    arms = (
        f'    {"el" if i else ""}if mode == "mode{i}":\n        fully_shard(model)'
        for i in range(n)
    )
    return _script(("def main(mode):", "    model = Model()", *arms))


def tries(n: int) -> str:
    """Exceptions that are caught around a sharding call, again and again."""
    tried = (
        f"try:\n    fully_shard(models[{i}])\nexcept ValueError:\n    fully_shard(models[0])"
        for i in range(n)
    )
    return _script(("models = load()", *tried))


def conditional_expressions(n: int) -> str:
    """Conditional expressions in a row, one arm of which is a sharded module."""
    return _script(f"m{i} = fully_shard(b{i}) if a{i} else b{i}" for i in range(n))


def long_conditions(n: int) -> str:
    """One condition with many operands, in front of the sharding."""
    return _script(
        ("if " + " or ".join(f"a{i} > {i}" for i in range(n)) + ":", "    fully_shard(m)")
    )


# Calls


def doubling_calls(n: int) -> str:
    """Functions that each call the next one twice."""
    functions = (f"def f{i}(m):\n    f{i + 1}(m)\n    f{i + 1}(m)\n" for i in range(n))
    return _script((*functions, f"def f{n}(m):\n    fully_shard(m)\n", "f0(Model())"))


def call_chain(n: int) -> str:
    """Functions that each call the next one, the last of which shards."""
    functions = (f"def f{i}(m):\n    return f{i + 1}(m)\n" for i in range(n))
    return _script((*functions, f"def f{n}(m):\n    fully_shard(m)\n", "f0(Model())"))


def mutual_recursion(n: int) -> str:
    """Functions that call each other in a ring, with arguments that grow."""
    functions = (
        f"def f{i}(m, *more):\n    fully_shard(m)\n    f{(i + 1) % n}(m, more, [more, {i}])\n"
        for i in range(n)
    )
    return _script((*functions, "f0(Model())"))


def helpers_many_callers(n: int) -> str:
    """One helper that shards, called by many functions, each an entry of its own."""
    helper = "def shard(m):\n    for layer in m.layers:\n        fully_shard(layer)\n"
    return _script((helper, *(f"def run{i}(m):\n    shard(m)\n" for i in range(n))))


def many_parameters(n: int) -> str:
    """A function with many parameters, each of them sharded."""
    names = ", ".join(f"p{i}" for i in range(n))
    body = (f"    fully_shard(p{i})" for i in range(n))
    return _script((f"def main({names}):", *body))


def decorators(n: int) -> str:
    """A function that shards under many decorators."""
    marks = (f"@mark({i})" for i in range(n))
    head = "def mark(i):\n    def inner(f):\n        return f\n    return inner\n"
    return _script((head, *marks, "def main(m):\n    fully_shard(m)"))


# Objects and events


def shards_in_a_row(n: int) -> str:
    """Sharding calls in a row, each on a layer of its own."""
    return _script(
        (
            "model = Model()",
            *(f"fully_shard(model.layers[{i}])" for i in range(n)),
            "fully_shard(model)",
        )
    )


def optimizers_and_models(n: int) -> str:
    """Many models, each with an optimizer that is built before it is sharded."""
    built = (f"m{i} = Model()\no{i} = torch.optim.SGD(m{i}.parameters())" for i in range(n))
    return _script((*built, *(f"fully_shard(m{i})" for i in range(n))))


def training_script(n: int) -> str:
    """A generated script: the same ten lines of training over and over."""
    step = """\
for batch in loader:
    loss = model(batch).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(loss.item())
torch.save(model.state_dict(), path)
scheduler.step()"""
    head = (
        "model = Model()",
        "fully_shard(model)",
        "optimizer = torch.optim.SGD(model.parameters())",
    )
    return _script((*head, *(step for _ in range(n))))


def list_of_layers(n: int) -> str:
    """A display of many layers, all of which are sharded in a loop."""
    items = ", ".join("nn.Linear(8, 8)" for _ in range(n))
    loop = ("for layer in layers:", "    fully_shard(layer)", "fully_shard(nn.Sequential(*layers))")
    return _script((f"layers = [{items}]", *loop))


def classes(n: int) -> str:
    """Many classes, each with submodules of the ones before, the last of which is sharded."""
    made = (
        f"class C{i}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.a = {f'C{i - 1}()' if i else 'nn.Linear(8, 8)'}\n"
        f"        self.b = {f'C{i // 2}()' if i > 1 else 'nn.Linear(8, 8)'}\n"
        for i in range(n)
    )
    return _script((*made, f"model = C{n - 1}()", "fully_shard(model.a)", "fully_shard(model)"))


def inheritance(n: int) -> str:
    """Classes that each derive from the one before."""
    made = (f"class C{i}({f'C{i - 1}' if i else 'Model'}):\n    pass\n" for i in range(n))
    return _script((*made, f"model = C{n - 1}()", "fully_shard(model)", "model.forward(1)"))


def attribute_chain(n: int) -> str:
    """A model that is handed from attribute to attribute."""
    links = (f"holder{i + 1}.model = holder{i}.model" for i in range(n))
    return _script(("holder0.model = Model()", *links, f"fully_shard(holder{n}.model)"))


def unknown_calls(n: int) -> str:
    """A sharded model that is handed to unknown code again and again."""
    head = ("model = Model()", "everything = [model]")
    calls = (f"everything.append(unknown{i}(model, everything))" for i in range(n))
    return _script((*head, *calls, "fully_shard(model)"))


# Nests


def loop_nest(n: int) -> str:
    """Loops in one another over the layers of a model."""
    loops = ("    " * i + f"for layer{i} in models[{i}].layers:" for i in range(n))
    return _script(
        ("models = [Model() for _ in range(9)]", *loops, "    " * n + "fully_shard(layer0)")
    )


def unrolled_loops(n: int) -> str:
    """Loops in one another over short displays, whose elements are known one by one."""
    loops = ("    " * i + f"for m{i} in [a, b, c, d, e, f, g, h]:" for i in range(n))
    return _script((*loops, "    " * n + "fully_shard(m0)"))


def comprehension_nest(n: int) -> str:
    """Comprehensions in one another over short displays."""
    text = "fully_shard(m)"
    for i in range(n):
        text = f"[{text} for x{i} in (1, 2, 3, 4, 5, 6, 7, 8)]"
    return _script(("m = Model()", f"made = {text}"))


def with_nest(n: int) -> str:
    """Contexts, each opened inside of the one before, eight to a statement."""
    items = [f"context({i}) as c{i}" for i in range(n)]
    heads = [", ".join(items[at : at + 8]) for at in range(0, n, 8)]
    lines = ["    " * depth + f"with {head}:" for depth, head in enumerate(heads)]
    return _script(("m = Model()", *lines, "    " * len(heads) + "fully_shard(m)"))


def displays(n: int) -> str:
    """Dict and list displays that each hold the one before."""
    rows = (f"d{i + 1} = {{'a': d{i}, 'b': [d{i}, d{i}]}}" for i in range(n))
    return _script(("d0 = {'m': Model()}", *rows, f"use(d{n})", "fully_shard(d0['m'])"))


def doubled_lists(n: int) -> str:
    """A list that is added to itself again and again."""
    rows = ("layers = layers + layers" if i % 2 else "layers += layers" for i in range(n))
    return _script(("model = Model()", "layers = [model]", *rows, "fully_shard(model)"))


def doubled_texts(n: int) -> str:
    """A text that is added to itself again and again, by each of the ways that are followed."""
    ways = ("name = name + name", 'name = f"{name}{name}"', 'name = name.replace("a", name)')
    rows = (ways[i % 3] for i in range(n))
    return _script(('name = "aa"', *rows, "fully_shard(Model())"))


def nested_display(n: int) -> str:
    """One display that nests as deep as its size."""
    return _script((f"d = {'[' * n}Model(){']' * n}", "use(d)", "fully_shard(Model())"))


SHAPES: dict[str, Shape] = {
    shape.text.__name__: shape
    for shape in (
        Shape(guarded_shards, 12_000),
        Shape(unknown_ifs, 3_000),
        Shape(nested_ifs, 60),
        Shape(early_exits, 9_000),
        Shape(match_cases, 5_000),
        Shape(elif_chain, 5_000),
        Shape(tries, 4_000),
        Shape(conditional_expressions, 8_000),
        Shape(long_conditions, 2_000),
        Shape(doubling_calls, 12_000),
        Shape(call_chain, 12_000),
        Shape(mutual_recursion, 4_000),
        Shape(helpers_many_callers, 12_000),
        Shape(many_parameters, 12_000),
        Shape(decorators, 5_000),
        Shape(shards_in_a_row, 12_000),
        Shape(optimizers_and_models, 5_000),
        Shape(training_script, 1_500),
        Shape(list_of_layers, 20_000),
        Shape(classes, 4_000),
        Shape(inheritance, 12_000),
        Shape(attribute_chain, 8_000),
        Shape(unknown_calls, 8_000),
        Shape(loop_nest, 60),
        Shape(unrolled_loops, 12),
        Shape(comprehension_nest, 12),
        Shape(with_nest, 480),
        Shape(displays, 8_000),
        Shape(doubled_lists, 8_000),
        Shape(doubled_texts, 8_000),
        Shape(nested_display, 2_000),
    )
}
