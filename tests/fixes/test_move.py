from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.fixes.move import move_below

BY_HAND = "; change the order by hand"


def moved(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    with_ = [at[name] for name in sorted(at.spans) if name not in ("first", "last")]
    return at, move_below(at.code, at["first"], at["last"], "move", Safety.UNSAFE, with_)


def check(marked: str, expected: str) -> None:
    at, result = moved(marked)
    assert at.fixed(result) == expected


def declined(marked: str, expected: str) -> None:
    assert reason(moved(marked)[1]) == expected


def test_a_statement_moves_with_its_comments() -> None:
    check(
        """\
import torch

model = Net()

# The optimizer.
optimizer = <first:AdamW(model.parameters()):first>  # lr later

# Shard.
<last:fully_shard(model):last>  # root
train(model)
""",
        """\
import torch

model = Net()

# Shard.
fully_shard(model)  # root
# The optimizer.
optimizer = AdamW(model.parameters())  # lr later
train(model)
""",
    )


def test_dependants_move_in_their_order_and_others_stay() -> None:
    check(
        """\
def main(model, cfg):
    params = [p for p in <p:model.parameters():p> if p.requires_grad]
    loader = make_loader(cfg)
    optimizer = <first:AdamW(params, lr=cfg.lr):first>
    for group in optimizer.param_groups:
        group["lr"] *= 2
    print("loaded", loader)
    scheduler = CosineLR(
        optimizer,
    )
    if cfg.resume:
        scheduler.load_state_dict(load("s"))
    for block in model.layers:
        fully_shard(block)
    <last:fully_shard(model):last>
    return optimizer
""",
        """\
def main(model, cfg):
    loader = make_loader(cfg)
    print("loaded", loader)
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = AdamW(params, lr=cfg.lr)
    for group in optimizer.param_groups:
        group["lr"] *= 2
    scheduler = CosineLR(
        optimizer,
    )
    if cfg.resume:
        scheduler.load_state_dict(load("s"))
    return optimizer
""",
    )


def test_tabs_and_crlf_and_no_final_newline_are_kept() -> None:
    check(
        "if x:\r\n\to = <first:A(m.parameters()):first>\r\n\t<last:fully_shard(m):last>",
        "if x:\r\n\tfully_shard(m)\r\n\to = A(m.parameters())",
    )


def test_a_choice_of_optimizers_moves_as_one() -> None:
    check(
        """\
if name == "adam":
    o = <first:Adam(m.parameters()):first>
elif name == "sgd":
    o = SGD(m.parameters())
else:
    raise ValueError(name)
if sharded:
    for b in m.layers:
        <last:fully_shard(b):last>
    # all of them
end()
""",
        """\
if sharded:
    for b in m.layers:
        fully_shard(b)
    # all of them
if name == "adam":
    o = Adam(m.parameters())
elif name == "sgd":
    o = SGD(m.parameters())
else:
    raise ValueError(name)
end()
""",
    )


def test_the_model_may_be_bound_to_its_wrapped_self() -> None:
    check(
        """\
o = <first:A(m.parameters()):first>
m = m.to("cuda")
m = torch.compile(m)
m = <last:FSDP(m):last>
""",
        """\
m = m.to("cuda")
m = torch.compile(m)
m = FSDP(m)
o = A(m.parameters())
""",
    )


def test_the_sharding_binds_the_model_that_a_builder_takes() -> None:
    check(
        "o = <first:build(m):first>\nm, k = <last:shard(m):last>\n",
        "m, k = shard(m)\no = build(m)\n",
    )


def test_a_multi_line_string_keeps_its_bytes() -> None:
    check(
        'def f(m):\n    o = <first:A(m.parameters(), """\nx\n  y"""):first>\n'
        "    <last:fully_shard(m):last>\n",
        'def f(m):\n    fully_shard(m)\n    o = A(m.parameters(), """\nx\n  y""")\n',
    )


def test_a_method_that_does_not_touch_the_optimizer_is_no_obstacle() -> None:
    check(
        """\
class T:
    def __init__(self, m):
        self.o = <first:A(self.m.parameters()):first>
        <last:self.shard():last>

    def shard(self):
        self.m = self.wrap(self.m)

    def wrap(self, m):
        return fully_shard(m)
""",
        """\
class T:
    def __init__(self, m):
        self.shard()
        self.o = A(self.m.parameters())

    def shard(self):
        self.m = self.wrap(self.m)

    def wrap(self, m):
        return fully_shard(m)
""",
    )


def test_a_method_in_between_that_uses_the_optimizer_stays_in_order_or_declines() -> None:
    declined(
        """\
class T:
    def __init__(self, m):
        self.o = <first:A(m.parameters()):first>
        self.setup()
        <last:fully_shard(m):last>

    def setup(self):
        self.inner()

    def inner(self):
        self.s = S(self.o)
""",
        f"`self.setup()` may use `self.o` before the new place{BY_HAND}",
    )


def test_two_loops_with_one_variable_do_not_depend_on_each_other() -> None:
    check(
        """\
o = <first:A(m.head.parameters()):first>
for b in m.blocks:
    o.add_param_group({"params": b.parameters()})

for b in m.blocks:
    fully_shard(b)
<last:fully_shard(m):last>
""",
        """\
for b in m.blocks:
    fully_shard(b)
fully_shard(m)
o = A(m.head.parameters())
for b in m.blocks:
    o.add_param_group({"params": b.parameters()})
""",
    )


def test_settings_of_the_model_in_between_are_no_obstacle() -> None:
    check(
        "o = <first:A(m.parameters()):first>\nm.config.use_cache = False\nm.train()\n"
        "<last:fully_shard(m):last>\n",
        "m.config.use_cache = False\nm.train()\nfully_shard(m)\no = A(m.parameters())\n",
    )


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "lr = 1\no = <first:A(m.parameters(), lr=lr):first>\nlr = 2\n<last:shard(m):last>\n",
            f"`lr = 2` changes `lr` in between{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters(), lr=c.lr):first>\nc.lr *= 2\n<last:shard(m):last>\n",
            f"`c.lr *= 2` changes `c.lr` in between{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\nm = Other()\n<last:shard(m):last>\n",
            f"`m = Other()` changes `m` in between{BY_HAND}",
        ),
        (
            "g = [<p:m.parameters():p>]\no = <first:A(g):first>\nh.append(1)\n"
            "<last:shard(m, g):last>\n",
            f"`shard(m, g)` may use `g` before the new place{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\n<last:prepare(m, o):last>\n",
            f"`prepare(m, o)` may use `o` before the new place{BY_HAND}",
        ),
        (
            "def f(m):\n    o = <first:A(m.parameters()):first>\n    if x:\n        return 1\n"
            "    <last:shard(m):last>\n",
            f"`if x:` may skip the new place{BY_HAND}",
        ),
        (
            "def f(m):\n    o = <first:A(m.parameters()):first>\n    if x:\n        return o\n"
            "    <last:shard(m):last>\n",
            f"`if x:` would have to move, too, but contains `return`, `break` or "
            f"`continue`{BY_HAND}",
        ),
        (
            "for x in y:\n    o = <first:A(m.parameters()):first>\n    if x: continue\n"
            "    <last:shard(m):last>\n",
            f"`if x: continue` may skip the new place{BY_HAND}",
        ),
        (
            "def f(m):\n    return <first:A(m.parameters()):first>\ndef g(m):\n"
            "    <last:shard(m):last>\n",
            f"`shard(m)` is in another function{BY_HAND}",
        ),
        (
            "for x in y:\n    o = <first:A(m.parameters()):first>\n<last:shard(m):last>\n",
            f"`A(m.parameters())` is in a block that cannot move as a whole{BY_HAND}",
        ),
        (
            "if x:\n    o = <first:A(m.parameters()):first>\nelse:\n    <last:shard(m):last>\n",
            f"`A(m.parameters())` and `shard(m)` are parts of the same statement{BY_HAND}",
        ),
        (
            "<last:shard(m):last>\no = <first:A(m.parameters()):first>\n",
            f"`shard(m)` does not come after the code to move{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>; p = 1\n<last:shard(m):last>\n",
            "`o = A(m.parameters())` shares its line with other code; put it on its own line",
        ),
        (
            "o = <first:A(m.parameters()):first>\n<last:shard(m):last>; p = 1\n",
            "`shard(m)` shares its line with other code; put it on its own line",
        ),
        (
            "o = <first:A(m.parameters()):first>\ntry:\n    <last:shard(m):last>\n"
            "except E:\n    pass\n",
            f"`shard(m)` is in a `try` that may skip it{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\ntry:\n    o.x()\nfinally:\n    pass\n"
            "<last:shard(m):last>\n",
            f"`try:` cannot safely move, too{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\nshard(m.a, o.x)\n<last:shard(m):last>\n",
            f"`shard(m.a, o.x)` would have to move, too, but calls `shard`{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\nfor b in o.x: pass\nuse(b)\n"
            "for b in y: pass\nz(b)\n<last:shard(b):last>\n",
            f"`for b in y: pass` changes `b` in between{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\ndel o\n<last:shard(m):last>\n",
            f"`del o` may use `o` before the new place{BY_HAND}",
        ),
        (
            "def f(m):\n    o = <first:A(m.parameters()):first>\n    yield o\n"
            "    <last:shard(m):last>\n",
            f"`yield o` would have to move, too, but suspends its function{BY_HAND}",
        ),
        (
            "o = <first:A(m.parameters()):first>\ndef show():\n    print(o)\n\n"
            "t = Trainer(show)\n<last:t.shard(m):last>\n",
            f"`t.shard(m)` may use `t` before the new place{BY_HAND}",
        ),
        (
            "def show():\n    print(o)\n\no = <first:A(m.parameters()):first>\nshow()\n"
            "<last:shard(m):last>\n",
            f"`show()` may use `o` before the new place{BY_HAND}",
        ),
        (
            "f = lambda: (<first:A(m.parameters()):first>, <last:shard(m):last>)\n",
            f"`A(m.parameters())` is in a lambda{BY_HAND}",
        ),
        (
            "def f(self):\n    self.o = <first:A(m.parameters()):first>\n    self.log()\n"
            "    <last:shard(m):last>\n",
            f"`self.log()` may use `self.o` before the new place{BY_HAND}",
        ),
        (
            "class A(B):\n    def f(self):\n        self.o = <first:A(m.parameters()):first>\n"
            "        super().f()\n        <last:shard(m):last>\n",
            f"`super().f()` may use `self.o` before the new place{BY_HAND}",
        ),
    ],
)
def test_declined(marked: str, why: str) -> None:
    declined(marked, why)


def test_a_file_without_exact_places_is_declined() -> None:
    at = Snippet("o = <first:A():first>\n<last:shard():last>\n")
    module = type(at.code.module)(0, 0, "", at.code.module.body, exact=False)
    code = type(at.code)(at.code.path, at.code.text, module)
    result = move_below(code, at["first"], at["last"], "move", Safety.UNSAFE)
    assert (
        reason(result)
        == "the exact positions of this file's code are unknown; apply the change by hand"
    )
