from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.fixes.gather_state import GatheredState, gather_state


def gathered(marked: str, *, rank_zero: bool = False) -> tuple[Snippet, Fix | Declined]:
    """Marks: ``w`` the write, ``m…`` states of `model`, ``o…`` of `opt`, ``g…`` tests of guards."""
    at = Snippet(marked)
    write = at["w"]
    assert isinstance(write, ir.Call)
    states, guards = [], []
    for name in at.spans:
        node = at[name]
        if name.startswith(("m", "o")):
            optimizer = "opt" if name.startswith("o") else None
            states.append(GatheredState(node, "model", optimizer))  # type: ignore[arg-type]
        elif name.startswith("g"):
            guard = at.code.statement(node)
            assert isinstance(guard, ir.If)
            guards.append(guard)
    return at, gather_state(at.code, write, states, guards, rank_zero=rank_zero)


MODULE = "torch.distributed.checkpoint.state_dict"
OPTIONS = "StateDictOptions(full_state_dict=True, cpu_offload=True)"
MODEL = f"get_model_state_dict(model, options={OPTIONS})"
# For what all ranks read before one writes it: the others would get nothing.
ON_ALL = MODEL.replace(", cpu_offload=True", "")
OPTIMIZER = f"get_optimizer_state_dict(model, opt, options={OPTIONS})"
IMPORT = f"from {MODULE} import StateDictOptions, get_model_state_dict\n"
BOTH = f"from {MODULE} import StateDictOptions, get_model_state_dict, get_optimizer_state_dict\n"
DIST = "import torch.distributed as dist\n"


def check(marked: str, expected: str) -> None:
    at, fix = gathered(DIST + marked)
    assert at.fixed(fix) == DIST + expected
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


def test_a_guarded_write_is_left_and_the_gather_goes_above_its_guard() -> None:
    check(
        """\
def save(model, rank):
    # Keep it.
    if <g:rank == 0:g>:
        print("saving")
        <w:torch.save(<m:model.state_dict():m>, "a.pt"):w>
""",
        f"""\
{IMPORT}def save(model, rank):
    # Keep it.
    state_dict = {MODEL}
    if rank == 0:
        print("saving")
        torch.save(state_dict, "a.pt")
""",
    )


def test_a_write_without_a_guard_gets_one() -> None:
    check(
        """\
# Keep it.
<w:torch.save(
    {
        "model": <m:model.state_dict():m>,
        "optim": <o:opt.state_dict():o>,
        "note": '''
x''',
    },
    "a.pt",
):w>  # all
""",
        f"""\
{BOTH}# Keep it.
state_dict = {MODEL}
optimizer_state = {OPTIMIZER}
if dist.get_rank() == 0:
    torch.save(
        {{
            "model": state_dict,
            "optim": optimizer_state,
            "note": '''
x''',
        }},
        "a.pt",
    )  # all
""",
    )


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "sd = <m:model.state_dict():m>\nsd.pop('x')\n<w:torch.save(sd, p):w>\n",
            f"{IMPORT}sd = {ON_ALL}\nsd.pop('x')\n"
            "if dist.get_rank() == 0:\n    torch.save(sd, p)\n",
        ),
        (
            "sd = <m:model.state_dict():m>\nif <g:r == 0:g>:\n    <w:torch.save(sd, p):w>\n",
            f"{IMPORT}sd = {MODEL}\nif r == 0:\n    torch.save(sd, p)\n",
        ),
        (
            "if <g:r == 0:g>:\n    sd = {'model': <m:model.state_dict():m>}\n"
            "    <w:torch.save(sd, p):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif r == 0:\n    sd = {{'model': state_dict}}\n"
            "    torch.save(sd, p)\n",
        ),
        (
            "if <g:r == 0:g>: <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif r == 0: torch.save(state_dict, p)\n",
        ),
        (
            "def f(model, r):\r\n\tif <g:r != 0:g>:\r\n\t\treturn\r\n"
            "\t<w:torch.save(<m:model.state_dict():m>, p):w>",
            f"{IMPORT}def f(model, r):\n\tstate_dict = {MODEL}\n\tif r != 0:\n\t\treturn\n"
            "\ttorch.save(state_dict, p)",
        ),
        (
            "if x:\n    if <g1:r == 0:g1>:\n        if <g2:main():g2>:\n"
            "            <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            f"{IMPORT}if x:\n    state_dict = {MODEL}\n    if r == 0:\n        if main():\n"
            "            torch.save(state_dict, p)\n",
        ),
        (
            "if x:\n    y\nelif <g:r == 0:g>:\n    <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif x:\n    y\nelif r == 0:\n"
            "    torch.save(state_dict, p)\n",
        ),
        (
            "if <g:step % n == 0 and r == 0:g>:\n"
            "    <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            f"{IMPORT}if step % n == 0:\n    state_dict = {MODEL}\n"
            "if step % n == 0 and r == 0:\n    torch.save(state_dict, p)\n",
        ),
        (
            "if <g:r == 0 and loss < best:g>:\n    <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif r == 0 and loss < best:\n"
            "    torch.save(state_dict, p)\n",
        ),
        (
            "with open(p, 'wb') as f:\n    <w:pickle.dump(<m:model.state_dict():m>, f):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif dist.get_rank() == 0:\n"
            "    with open(p, 'wb') as f:\n        pickle.dump(state_dict, f)\n",
        ),
        (
            "state_dict = 1\nif <g:r == 0:g>:\n    <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            f"{IMPORT}state_dict = 1\nstate_dict_ = {MODEL}\nif r == 0:\n"
            "    torch.save(state_dict_, p)\n",
        ),
        (
            "if <g:r == 0:g>:\n    <w:torch.save([<m1:model.state_dict():m1>, "
            "<m2:model.state_dict():m2>], p):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif r == 0:\n"
            "    torch.save([state_dict, state_dict], p)\n",
        ),
        (
            "if <g:r == 0:g>:\n    <w:save_file({k: v.cpu() for k, v in "
            "<m:model.state_dict():m>.items()}, p):w>\n",
            f"{IMPORT}state_dict = {MODEL}\nif r == 0:\n"
            "    save_file({k: v.cpu() for k, v in state_dict.items()}, p)\n",
        ),
    ],
)
def test_shapes(marked: str, expected: str) -> None:
    if "\r\n" in marked:
        at, fix = gathered(DIST.replace("\n", "\r\n") + marked)
        assert at.fixed(fix) == (DIST + expected).replace("\n", "\r\n")
    else:
        check(marked, expected)


@pytest.mark.parametrize(
    ("head", "imports", "dist"),
    [
        ("import torch\n", "import torch.distributed as dist\n" + IMPORT, "dist"),
        ("import torch\ntorch.distributed.barrier()\n", IMPORT, "torch.distributed"),
        ("import torch.distributed\n", IMPORT, "torch.distributed"),
        ("from torch import distributed as d\n", IMPORT, "d"),
    ],
)
def test_torch_distributed_is_named_as_the_file_does(head: str, imports: str, dist: str) -> None:
    at, fix = gathered(head + "<w:torch.save(<m:model.state_dict():m>, p):w>\n")
    first, rest = head.split("\n", 1)
    assert at.fixed(fix) == (
        f"{first}\n{imports}{rest}state_dict = {MODEL}\nif {dist}.get_rank() == 0:\n"
        "    torch.save(state_dict, p)\n"
    )


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "if <g:r == 0:g>:\n    model = model.module\n"
            "    <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            "`model` changes between the rank test and the state dict; gather above the test by "
            "hand",
        ),
        (
            "def get():\n    return <m:model.state_dict():m>\n<w:torch.save(get(), p):w>\n",
            "`model.state_dict()` is not in the function that writes the file; gather by hand "
            "where every rank runs",
        ),
        (
            "n = <w:save(<m:model.state_dict():m>, p):w>\n",
            "`n = save(model.state_dict(), p)` does more than write the file; put the write under "
            "a test of the rank by hand",
        ),
        (
            "x; <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            "`torch.save(model.state_dict(), p)` shares its line with other code; put it on its "
            "own line",
        ),
        (
            "if x: <w:torch.save(<m:model.state_dict():m>, p):w>\n",
            "`torch.save(model.state_dict(), p)` shares its line with other code; put it on its "
            "own line",
        ),
        (
            "dist = 1\n<w:torch.save(<m:model.state_dict():m>, p):w>\n",
            "`dist` means something else in this file; make the change by hand",
        ),
        (
            "def get_model_state_dict(m): <x:pass:x>\n"
            "<w:torch.save(<m:model.state_dict():m>, p):w>\n",
            "`get_model_state_dict` means something else in this file; make the change by hand",
        ),
    ],
)
def test_declined(marked: str, why: str) -> None:
    marked = marked.replace("<x:", "").replace(":x>", "")
    assert reason(gathered(marked)[1]) == why


SAVE = "<w:torch.save(<o:opt.state_dict():o>, p):w>\n"
GATHERS = f"optimizer_state = {OPTIMIZER}\n"
GETS = f"from {MODULE} import StateDictOptions, get_optimizer_state_dict\n"
DEF = "def save(model, opt, step, n, p, r):\n"


@pytest.mark.parametrize(
    ("before", "test"),
    [
        ("    if <g:r != 0:g>:\n        return\n    if step % n:\n        return\n    ", "== 0"),
        ("    if <g:r != 0 or step % n != 0:g>:\n        return\n    ", "== 0"),
        ("    if <g:r == 0:g>:\n        if step % n == 0:\n            ", "== 0"),
        ("    if <g:r == 0:g>:\n        if step % n != 0:\n            return\n        ", "== 0"),
        ("    if <g:r == 0:g>:\n        if step % n > 0:\n            pass\n        else:\n"
         "            ", "<= 0"),
    ],
)  # fmt: skip
def test_the_steps_that_do_not_save_gather_nothing(before: str, test: str) -> None:
    plain = before.replace("<g:", "").replace(":g>", "")
    check(
        DEF + before + SAVE,
        f"{GETS}{DEF}    if step % n {test}:\n        {GATHERS}"
        f"{plain}torch.save(optimizer_state, p)\n",
    )


def test_a_gather_below_an_early_return_stays_there() -> None:
    check(
        f"{DEF}    if step % n:\n        return\n    if <g:r == 0:g>:\n        {SAVE}",
        f"{GETS}{DEF}    if step % n:\n        return\n    {GATHERS}"
        "    if r == 0:\n        torch.save(optimizer_state, p)\n",
    )


@pytest.mark.parametrize(
    ("body", "test", "where"),
    [
        ("    if <g:r == 0:g>:\n        if loss > best:\n            return\n        " + SAVE,
         "loss > best", "first"),
        ("    if <g:r == 0:g>:\n        if changed():\n            " + SAVE, "changed()", "first"),
        ("    if r:\n        pass\n    elif <g:r == 0:g>:\n        " + SAVE, "r", "first"),
        ("    if <g:r == 0:g>:\n        n = every()\n        if step % n == 0:\n            "
         + SAVE, "step % n == 0", "first"),
        ("    state = <o:opt.state_dict():o>\n    if step % n:\n        return\n"
         "    if <g:r == 0:g>:\n        <w:torch.save(state, p):w>\n", "step % n", "below"),
        ("    for state in [<o:opt.state_dict():o>]:\n        if step % n:\n            continue\n"
         "        if <g:r == 0:g>:\n            <w:torch.save(state, p):w>\n", "step % n", "below"),
    ],
)  # fmt: skip
def test_no_gather_runs_where_nothing_is_saved(body: str, test: str, where: str) -> None:
    why = {
        "first": f"`{test}` also decides whether the file is written, so a gather above the rank "
        "test would run every time; test it first, on every rank",
        "below": f"`{test}` decides after the state dict is taken whether it is written, so a "
        "gather would run every time; take the state below that test",
    }
    assert reason(gathered(DEF + body)[1]) == why[where]


def test_a_way_out_that_is_not_plain_is_left_alone() -> None:
    fix = gathered(
        f"{DEF}    if <g:r == 0:g>:\n        for x in p:\n            if x:\n"
        f"                return\n        {SAVE}"
    )[1]
    assert reason(fix) == "`for x in p:` may leave the function first"


def test_a_function_of_one_rank_cannot_gather() -> None:
    fix = gathered("<w:torch.save(<m:model.state_dict():m>, p):w>\n", rank_zero=True)[1]
    assert reason(fix) == (
        "only some ranks call this function, so gathering in it would hang; gather by hand where "
        "every rank runs"
    )
