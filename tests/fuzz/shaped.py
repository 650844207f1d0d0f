"""Training programs with FSDP, their steps in any order and in any of PyTorch's spellings.

Most are wrong. Where a program is one flat script, the rewritings make functions and files of it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.fuzz.programs import Program

_FSDP = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
_FSDP1 = ("torch.distributed.fsdp", "torch.distributed.fsdp.fully_sharded_data_parallel")
_STATE = "torch.distributed.checkpoint.state_dict"


@dataclass
class Names:
    """How a program spells the names that it imports."""

    random: Random
    imports: list[str] = field(default_factory=list)
    spelled: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, *modules: str) -> str:
        """An expression for ``name`` of one of the modules, imported the same way everywhere."""
        if name not in self.spelled:
            self.spelled[name] = self._imported(name, self.random.choice(modules))
        return self.spelled[name]

    def _imported(self, name: str, module: str) -> str:
        parent, _, last = module.rpartition(".")
        alias = f"{name.strip('_').lower()}_as"
        ways = [
            (f"from {module} import {name}", name),
            (f"from {module} import {name}", name),
            (f"from {module} import {name} as {alias}", alias),
            (f"import {module}", f"{module}.{name}"),
            (f"import {module} as {last.strip('_')}_m", f"{last.strip('_')}_m.{name}"),
        ]
        if parent:
            ways.append((f"from {parent} import {last}", f"{last}.{name}"))
        line, expression = self.random.choice(ways)
        if line not in self.imports:
            self.imports.append(line)
        return expression


@dataclass
class Author:
    """Who writes one program, with what is settled about it.

    Attributes:
        own: what stands before names that the steps share, such as ``self.``.
    """

    random: Random
    names: Names
    own: str
    fsdp2: bool

    def one_of(self, *choices: str) -> str:
        return self.random.choice(choices)

    def often(self, text: str, else_: str = "") -> str:
        return text if self.random.random() < 0.75 else else_

    def rarely(self, text: str, else_: str = "") -> str:
        return text if self.random.random() < 0.2 else else_

    @property
    def model(self) -> str:
        return f"{self.own}model"

    @property
    def optimizer(self) -> str:
        return f"{self.own}optimizer"

    def torch(self, name: str, *modules: str) -> str:
        return self.names.of(name, *(modules or ("torch",)))

    def dist(self, name: str) -> str:
        return self.names.of(name, "torch.distributed")

    def is_first(self) -> str:
        get_rank = self.dist("get_rank")
        return self.one_of(
            f"{get_rank}() == 0",
            f"not {get_rank}()",
            f"{self.own}rank == 0",
            f"{self.own}rank == 0",
        )


Step = Callable[[Author], str]


def launch(a: Author) -> str:
    backend = a.one_of('"nccl"', "", 'backend="gloo"', '"cpu:gloo,cuda:nccl"')
    lines = [f"{a.dist('init_process_group')}({backend})"]
    lines += [f"{a.own}rank = {a.dist('get_rank')}()"]
    local = a.one_of('int(os.environ["LOCAL_RANK"])', f"{a.own}rank", f"{a.own}rank % 8")
    device = a.torch("set_device", "torch.cuda")
    lines += [a.often(f"{device}({local})"), a.rarely(f"{a.dist('barrier')}()")]
    return "\n".join(filter(None, lines))


def build(a: Author) -> str:
    made = a.one_of("Net(64, 4)", "Net(width=64, depth=4)", "make_model()", "Net(64)")
    if a.random.random() < 0.15:
        return f'with {a.torch("device")}("meta"):\n    {a.model} = {made}'
    moved = a.one_of("", ".cuda()", ".to(a_device)", "").replace("a_device", '"cuda"')
    return f"{a.model} = {made}{moved}"


def shard(a: Author) -> str:
    return _fully_shard(a) if a.fsdp2 else _wrap(a)


def _fully_shard(a: Author) -> str:
    function = a.torch("fully_shard", *_FSDP)
    policy = f"mp_policy={a.torch('MixedPrecisionPolicy', 'torch.distributed.fsdp')}()"
    given = a.one_of("", "", "reshard_after_forward=False", policy, "mesh=None")
    comma = f", {given}" if given else ""
    blocks = a.one_of("blocks", "blocks", "layers")
    loop = a.one_of(
        f"for block in {a.model}.{blocks}:\n    {function}(block{comma})",
        f"for index, block in enumerate({a.model}.{blocks}):\n    {function}(block{comma})",
        f"for index in range(len({a.model}.{blocks})):\n    {function}({a.model}.{blocks}[index])",
        f"for module in {a.model}.modules():\n    if isinstance(module, Block):\n"
        f"        {function}(module{comma})",
        f"[{function}(block{comma}) for block in {a.model}.{blocks}]",
    )
    root = a.one_of(f"{function}({a.model}{comma})", f"{a.model} = {function}({a.model}{comma})")
    parts = [a.often(loop), a.often(root), a.rarely(root), a.rarely(loop)]
    return "\n".join(filter(None, parts)) or "pass"


def _wrap(a: Author) -> str:
    function = a.torch("FullyShardedDataParallel", *_FSDP1)
    policy = a.torch("ModuleWrapPolicy", "torch.distributed.fsdp.wrap")
    keywords = [
        a.often(f"auto_wrap_policy={policy}({{Block}})"),
        a.rarely("use_orig_params=True"),
        a.rarely("device_id=0"),
    ]
    return f"{a.model} = {function}({', '.join([a.model, *filter(None, keywords)])})"


def optimizer(a: Author) -> str:
    kind = a.torch(a.one_of("AdamW", "SGD", "Adam"), "torch.optim")
    given = a.one_of(
        f"{a.model}.parameters()",
        f"{a.model}.parameters()",
        f"[p for p in {a.model}.parameters() if p.requires_grad]",
        f"[{{'params': {a.model}.parameters(), 'lr': 1e-3}}]",
        f"filter(lambda p: p.requires_grad, {a.model}.parameters())",
    )
    return f"{a.optimizer} = {kind}({given}, lr=1e-3)"


def schedule(a: Author) -> str:
    kind = a.torch("StepLR", "torch.optim.lr_scheduler")
    return f"{a.own}scheduler = {kind}({a.optimizer}, step_size=10)"


def data(a: Author) -> str:
    sampler = a.torch("DistributedSampler", "torch.utils.data")
    loader = a.torch("DataLoader", "torch.utils.data")
    given = a.often("sampler=sampler", "shuffle=True")
    made = f"sampler = {sampler}(dataset)\n" if "sampler=" in given else ""
    return f"dataset = load_data()\n{made}{a.own}loader = {loader}(dataset, 8, {given})"


def train(a: Author) -> str:
    called = a.often(a.model, f"{a.model}.forward")
    loss = a.torch("mse_loss", "torch.nn.functional")
    forward = a.one_of(
        f"loss = {called}(batch).mean()",
        f"output = {called}(batch)\n    loss = {loss}(output, batch)",
    )
    backward = a.one_of("loss.backward()", "loss.backward()", "(loss / 4).backward()")
    sync = a.one_of("", "", "no_sync", "flag")
    if sync == "no_sync":
        backward = f"with {a.model}.no_sync():\n        {backward}"
    elif sync == "flag":
        on = a.one_of("False", "step % 4 == 3", "True")
        backward = f"{a.model}.set_requires_gradient_sync({on})\n    {backward}"
    clip = a.torch("clip_grad_norm_", "torch.nn.utils")
    clips = a.one_of(
        f"{clip}({a.model}.parameters(), 1.0)",
        f"norm = {clip}({a.model}.parameters(), 1.0)",
        f"{a.model}.clip_grad_norm_(1.0)",
        "",
    )
    reduced = a.rarely(f"{a.dist('all_reduce')}(loss)")
    logged = a.rarely(f"if {a.is_first()}:\n        print(loss.item())")
    steps = [f"{a.optimizer}.step()", a.rarely(f"{a.own}scheduler.step()")]
    zero = a.often(f"{a.optimizer}.zero_grad()")
    body = [forward, reduced, backward, clips, *steps, zero, logged]
    text = "\n    ".join(filter(None, body))
    return f"{a.model}.train()\nfor step, batch in enumerate({a.own}loader):\n    {text}"


def evaluate(a: Author) -> str:
    no_grad = a.torch(a.often("no_grad", "inference_mode"), "torch")
    called = a.often(a.model, f"{a.model}.forward")
    read = a.one_of("total += float(loss)", "total += loss.item()", "total = total + loss")
    return (
        f"{a.model}.eval()\ntotal = 0.0\nwith {no_grad}():\n    for batch in {a.own}loader:\n"
        f"        loss = {called}(batch).mean()\n        {read}"
    )


def save(a: Author) -> str:
    write = a.torch("save", "torch")
    options = f"{a.torch('StateDictOptions', _STATE)}(full_state_dict=True, cpu_offload=True)"
    gather = f"{a.torch('get_model_state_dict', _STATE)}({a.model}, options={options})"
    state = a.one_of(f"{a.model}.state_dict()", f"{a.model}.state_dict()", gather)
    whole = a.one_of(
        "state", '{"model": state}', f'{{"m": state, "o": {a.optimizer}.state_dict()}}'
    )
    if a.random.random() < 0.2:
        dcp = a.torch("save", "torch.distributed.checkpoint")
        return f'state = {state}\n{dcp}({{"model": state}}, checkpoint_id="last")'
    if a.random.random() < 0.5:
        return f'if {a.is_first()}:\n    state = {state}\n    {write}({whole}, "last.pt")'
    return f'state = {state}\nif {a.is_first()}:\n    {write}({whole}, "last.pt")'


def load(a: Author) -> str:
    read = f'{a.torch("load", "torch")}("first.pt", map_location="cpu")'
    if a.random.random() < 0.3:
        setter = a.torch("set_model_state_dict", _STATE)
        return f"{setter}({a.model}, {read})"
    return f"{a.model}.load_state_dict({read})"


def other(a: Author) -> str:
    return a.one_of(
        f"{a.model} = {a.torch('compile', 'torch')}({a.model})",
        f"{a.model}.requires_grad_(False)",
        f"{a.model}.head.weight = {a.model}.embed.weight",
        f"{a.model}.to({a.torch('bfloat16', 'torch')})",
        f"copy = __import__('copy').deepcopy({a.model})",
        f'{a.model}.to_empty(device="cuda")',
        f"{a.dist('barrier')}()",
        f"if {a.is_first()}:\n    {a.dist('barrier')}()",
        f"{a.torch('manual_seed', 'torch')}({a.own}rank)",
        f"unknown_helper({a.model}, {a.optimizer})",
        f"unknown_helper({a.own}loader)",
    )


def end(a: Author) -> str:
    return f"{a.dist('destroy_process_group')}()"


_STEPS: tuple[Step, ...] = (launch, build, shard, optimizer, data, train, evaluate, save, end)
_MORE: tuple[Step, ...] = (schedule, load, other, other, save, optimizer, shard, evaluate)


def shaped(random: Random) -> Program:
    """A program of the usual steps: some left out, some twice, some in another order."""
    names = Names(random)
    shape = random.choice((_flat, _flat, _functions, _class))
    author = Author(random, names, "self." if shape is _class else "", random.random() < 0.75)
    order = [step for step in _STEPS if step in (build, shard) or random.random() < 0.9]
    for step in random.sample(_MORE, random.randint(0, 3)):
        order.insert(random.randint(2, len(order)), step)
    if random.random() < 0.5:
        i, j = random.randrange(1, len(order)), random.randrange(1, len(order))
        order[i], order[j] = order[j], order[i]
    steps = [(step.__name__, step(author)) for step in order]
    body = shape(random, steps)
    header = "\n".join(["import os", *names.imports, "import torch", "from torch import nn"])
    return Program(
        "shaped", {"train.py": f"{header}\nfrom data import load_data\n\n{_MODEL}\n{body}"}
    )


Texts = list[tuple[str, str]]


def _flat(_: Random, steps: Texts) -> str:
    return "\n".join(text for _, text in steps) + "\n"


def _functions(random: Random, steps: Texts) -> str:
    body = textwrap.indent("\n".join(text for _, text in steps), "    ")
    call = random.choice(("main()", 'if __name__ == "__main__":\n    main()'))
    return f"def main():\n{body}\n\n{call}\n"


def _class(random: Random, steps: Texts) -> str:
    """Methods of a trainer, which a driver calls in the order of the steps."""
    methods: list[list[str]] = [[]]
    for _, text in steps:
        if len(methods[-1]) > random.randint(0, 3):
            methods.append([])
        methods[-1].append(text)
    names = ["__init__", *(f"stage_{index}" for index in range(1, len(methods)))]
    made = "class Trainer:\n"
    for name, texts in zip(names, methods, strict=True):
        made += f"    def {name}(self):\n" + textwrap.indent("\n".join(texts), " " * 8) + "\n\n"
    calls = "".join(f"    trainer.{name}()\n" for name in names[1:]) or "    pass\n"
    return f'{made}if __name__ == "__main__":\n    trainer = Trainer()\n{calls}'


_MODEL = """\
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + self.inner(x)


class Net(nn.Module):
    def __init__(self, width, depth=3):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_model():
    return Net(32, depth=2)

"""
