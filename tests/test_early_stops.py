"""What a long, deep or incomplete program leaves unanalyzed is reported, whatever the format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from limits import limit
from test_cli import CLEAN, Ran, concise, run

from fsdplint.check import check
from fsdplint.fixes import apply as fixing
from fsdplint.settings.config import defaults

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


"""
STALE = (
    "FSD301 [*] optimizer-before-sharding: `AdamW` holds the parameters that `fully_shard` "
    "replaces on line {}, so the new ones never train"
)
TRAIN = """\
    for batch in range(10):
        model(torch.ones(8)).sum().backward()
        optimizer.step()
"""
BUILD = "optimizer = torch.optim.AdamW(model.parameters())"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str, name: str = "train.py") -> str:
    path = Path(name)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return text


def stale(text: str, build: str, shard: str) -> Ran:
    """The report of an optimizer that is built before the sharding."""
    lines = text.split("\n")
    place = next(number for number, line in enumerate(lines, 1) if build in line)
    shards = next(number for number, line in enumerate(lines, 1) if shard in line)
    column = lines[place - 1].index("torch.optim") + 1
    found = f"train.py:{place}:{column}: {STALE.format(shards)}\n"
    return Ran(1, f"{found}Found 1 finding in 1 file (1 fixable with --fix --unsafe-fixes).\n", "")


# Programs


def recipes(count: int, *, more: str = "") -> str:
    """A ``main`` with a recipe in each arm of a long if/elif; the last one is wrong."""
    arms = []
    for number in range(count):
        order = ["fully_shard(model)", BUILD]
        if number == count - 1:
            order = [f"{BUILD}  # too early", "fully_shard(model)  # late"]
        arms.append(
            f"    {'el' if arms else ''}if recipe == 'r{number}':\n"
            f"        model = nn.Linear({number + 1}, 8)\n"
            + "".join(f"        {line}\n" for line in order)
        )
    end = "    else:\n        raise ValueError(recipe)\n"
    return f"{HEAD}def main(recipe, flags):\n{''.join(arms)}{end}{more}{TRAIN}"


def chain(depth: int) -> str:
    """A sharding so many calls deep, of a model that an optimizer holds already."""
    functions = ["def shard_0(model):\n    fully_shard(model)\n\n\n"]
    functions += [
        f"def shard_{number}(model):\n    shard_{number - 1}(model)\n\n\n"
        for number in range(1, depth)
    ]
    last = f"def main():\n    model = nn.Linear(8, 8)\n    {BUILD}\n    shard_{depth - 1}(model)\n"
    end = "if __name__ == '__main__':\n    main()\n    torch.distributed.destroy_process_group()\n"
    return f"{HEAD}{''.join(functions)}{last}{TRAIN}\n\n{end}"


def long_program() -> str:
    """More than 3,000 lines: helpers, flags, and a recipe among many that is wrong."""
    helpers = "".join(
        f"def helper_{number}(args, state):\n"
        f"    value = args.value_{number}\n"
        "    if value is None:\n"
        f"        value = {number}\n"
        "    for index in range(value):\n"
        f"        state['key_{number}'] = index\n"
        "    print(value)\n"
        "    return value\n\n\n"
        for number in range(270)
    )
    calls = "".join(f"    helper_{number}(flags, {{}})\n" for number in range(270))
    flags = "".join(
        f"    if flags.flag_{number}:\n        torch.save({{}}, 'flag{number}.pt')\n"
        for number in range(20)
    )
    text = recipes(26, more=f"{calls}{flags}")
    return text.replace("def main(", f"{helpers}def main(", 1)


# What used to be cut is followed


@pytest.mark.parametrize("count", [26, 60])
def test_every_recipe_of_a_long_choice_is_followed(count: int) -> None:
    text = written(recipes(count))
    assert concise("train.py") == stale(text, "# too early", "# late")


@pytest.mark.parametrize("depth", [20, 50])
def test_a_sharding_many_calls_deep_is_found(depth: int) -> None:
    text = written(chain(depth))
    assert concise("train.py") == stale(text, BUILD, "    fully_shard(")


def test_a_program_of_3_000_lines_is_followed_whole() -> None:
    text = written(long_program())
    assert text.count("\n") > 3_000
    assert concise("train.py") == stale(text, "# too early", "# late")


def test_independent_flags_cost_one_path_each(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, paths=60, rest_steps=0)
    flags = "".join(f"    if flags.a{n}:\n        torch.save({{}}, 'a{n}')\n" for n in range(40))
    text = written(recipes(1, more=flags))
    assert concise("train.py") == stale(text, "# too early", "# late")


@pytest.mark.parametrize(
    "read", ["kind, options = TASKS[flags.task]\n", "kind = KINDS[flags.task]\n"]
)
def test_entries_of_a_long_table_that_do_nothing_share_a_path(
    monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    limit(monkeypatch, paths=20, rest_steps=0)
    classes = "".join(f"class Task{n}:\n    pass\n\n\n" for n in range(40))
    tasks = "".join(f"    'task{n}': (Task{n}, {{'shots': {n}}}),\n" for n in range(40))
    kinds = "".join(f"    'task{n}': Task{n},\n" for n in range(40))
    tables = f"{classes}TASKS = {{\n{tasks}}}\nKINDS = {{\n{kinds}}}\n\n\n"
    text = recipes(1, more=f"    {read}    kind()\n")
    text = written(text.replace("def main(", f"{tables}def main(", 1))
    assert concise("train.py") == stale(text, "# too early", "# late")


# What is still cut is reported

STOPPED = "analysis of `train.py:main` stopped early (more than 5 paths): findings may be missing"


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, paths=5, rest_steps=0)
    written(recipes(12))


@pytest.mark.usefixtures("cut")
def test_an_early_stop_is_reported_in_words() -> None:
    summary = "No findings in the analyzed part of 1 file; analysis of 1 program stopped early.\n"
    assert concise("train.py") == Ran(0, summary, f"fsdplint: {STOPPED}\n")
    assert run("check", "--output-format=github") == Ran(0, "", f"fsdplint: {STOPPED}\n")


@pytest.mark.usefixtures("cut")
def test_an_early_stop_fails_a_strict_run(here: Path) -> None:
    for arguments in (["--strict"], ["--strict", "--exit-zero"], ["--strict", "--no-cache"]):
        ran = concise("train.py", *arguments)
        assert (ran.code, ran.err) == (2, f"fsdplint: {STOPPED}\n")
    (here / "fsdplint.toml").write_text("strict = true\n")
    assert concise("train.py").code == 2
    assert concise("train.py", "--isolated").code == 0
    written("x = 1\n")
    assert concise("train.py", "--strict") == Ran(0, CLEAN, "")


@pytest.mark.usefixtures("cut")
def test_an_early_stop_is_in_json_and_sarif() -> None:
    document = json.loads(run("check", "--output-format=json").out)
    stop = {"path": "train.py", "name": "main", "reason": "more than 5 paths"}
    assert document["partly"] == [stop]
    log = json.loads(run("check", "--output-format=sarif").out)
    told = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert [(each["level"], each["message"]["text"]) for each in told] == [
        ("warning", f"{STOPPED}.")
    ]


@pytest.mark.usefixtures("cut")
def test_inspect_lists_an_early_stop() -> None:
    assert "main() is not fully analyzed: more than 5 paths" in run("inspect", "train.py").out


def test_of_many_early_stops_the_first_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, paths=5, rest_steps=0)
    for number in range(7):
        written(recipes(12), f"train{number}.py")
    line = "fsdplint: " + STOPPED.replace("train.py", "train{}.py") + "\n"
    rest = (
        "fsdplint: analysis of 3 more programs stopped early (--output-format json lists them): "
        "findings may be missing\n"
    )
    ran = concise()
    assert ran.err == "".join(map(line.format, range(4))) + rest
    assert ran.out.endswith("; analysis of 7 programs stopped early.\n")


def reported(*arguments: str) -> str:
    """The one early stop that is reported, and makes a strict run fail."""
    ran = concise(*arguments, "--strict")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    before, after = "fsdplint: analysis of ", "): findings may be missing"
    assert line.startswith(before), line
    assert line.endswith(after), line
    return line[len(before) : -len(after)]


def test_a_sharding_too_deep_is_reported() -> None:
    written(chain(100))
    expected = "`train.py` stopped early (calls nested more than 60 deep"
    assert reported("train.py") == expected


def test_what_is_too_deep_but_does_nothing_to_a_model_is_no_early_stop() -> None:
    quiet = chain(100).replace("    fully_shard(model)\n", "    print(model)\n", 1)
    text = written(quiet.replace(BUILD, f"{BUILD}\n    fully_shard(model)  # here"))
    assert concise("train.py", "--strict") == stale(text, BUILD, "# here")


def test_a_function_that_calls_itself_is_followed() -> None:
    text = f"""{HEAD}def shard(module):
    for child in module.children():
        shard(child)
    fully_shard(module)


model = nn.Sequential(nn.Linear(8, 8))
{BUILD}
shard(model)
optimizer.step()
"""
    written(text)
    assert concise("train.py", "--strict") == stale(text, BUILD, "fully_shard(module)")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"path_steps": 60}, "one path exceeds the step limit"),
        ({"path_cost": 20}, "one path exceeds the step limit"),
        ({"entry_steps": 200, "rest_steps": 0}, "its paths together exceed the analysis budget"),
        ({"stale_steps": 0, "rest_steps": 0}, "many paths in a row reached no new event"),
        ({"steps": -1}, "the analysis budget of the project is used up"),
        ({"shard_pairs": -1}, "the analysis budget of the project is used up"),
    ],
)
def test_every_limit_is_reported(
    limits: dict[str, float], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = "".join(f"    if flags.{n}:\n        torch.save({{}}, '{n}')\n" for n in "abc")
    written(recipes(12, more=flags))
    limit(monkeypatch, **limits)
    ran = concise("train.py", "--strict")
    line = (
        f"fsdplint: analysis of `train.py:main` stopped early ({reason}): findings may be missing"
    )
    assert ran.code == 2
    assert line in ran.err.splitlines()


def test_programs_leave_some_budget_to_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"{HEAD}model = torch.nn.Linear(8, 8)\n{BUILD}\nfully_shard(model)\noptimizer.step()\n"
    stopped = "tests/test_train.py` stopped early (the analysis budget of the project is used up)"
    written(script)
    written(script, "tests/test_train.py")
    for total, least, followed in ((-1, -1, False), (-1, 1000, True), (1000, -1, True)):
        limit(monkeypatch, steps_with_tests=total, test_steps=least)
        ran = concise(".", "--strict")
        assert ("\ntrain.py:" in f"\n{ran.out}", stopped in ran.err) == (True, not followed)
        assert ("tests/test_train.py:" in ran.out) == followed


# Imports

PLAIN = f"""\
import torch
{{imports}}
model = torch.nn.Linear(8, 8)
{BUILD}
fully_shard(model)
optimizer.step()
"""


def test_a_star_import_of_torch_brings_its_names() -> None:
    text = written(PLAIN.format(imports="from torch.distributed.fsdp import *"))
    assert concise("train.py", "--strict") == stale(text, BUILD, "fully_shard(model)")


def test_the_names_of_torch_come_through_star_imports_of_the_project() -> None:
    written("from torch.distributed.fsdp import *\n", "lib/wrap.py")
    written("from .wrap import *\n", "lib/__init__.py")
    text = written(PLAIN.format(imports="from lib import *"))
    assert concise("train.py", "--strict") == stale(text, BUILD, "fully_shard(model)")


def test_a_function_comes_through_star_imports_and_many_files() -> None:
    written(f"{HEAD}def shard(model):\n    fully_shard(model)\n", "lib/a0.py")
    for number in range(1, 10):
        names = "*" if number % 2 else "shard"
        written(f"from .a{number - 1} import {names}\n", f"lib/a{number}.py")
    written("", "lib/__init__.py")
    written("", "pyproject.toml")
    head = "import torch\nfrom lib.a9 import shard\nmodel = torch.nn.Linear(8, 8)\n"
    written(f"{head}{BUILD}\nshard(model)\noptimizer.step()\n")
    ran = concise("train.py", "--strict")
    assert (ran.code, ran.err) == (1, "")
    assert "optimizer-before-sharding" in ran.out


def test_a_star_import_that_may_bring_the_sharding_is_reported() -> None:
    written(PLAIN.format(imports="from helpers import *"))
    assert reported("train.py") == (
        "`train.py` stopped early (`fully_shard` may come from `from helpers import *`, which "
        "cannot be resolved"
    )
    written("from torch.distributed.fsdp import fully_shard\n", "helpers.py")
    assert "optimizer-before-sharding" in concise("train.py", "--strict").out


SCRIPT = f"""{HEAD}{{imports}}
model = nn.Linear(8, 8)
fully_shard(model)
{BUILD}
{{use}}
model(torch.ones(8)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "use", "missing"),
    [
        ("from .steps import prepare", "prepare(model)", ".steps"),
        ("from . import steps", "steps.prepare(model)", ".steps"),
        ("from .steps import *", "prepare(model)", ".steps"),
        ("from lib.steps import prepare", "prepare(model)", "lib.steps"),
        ("import lib.steps", "lib.steps.prepare(model)", "lib.steps"),
    ],
)
def test_code_of_the_project_that_is_not_there_is_reported(
    imports: str, use: str, missing: str
) -> None:
    written("", "lib/__init__.py")
    written(SCRIPT.format(imports=imports, use=use))
    expected = f"`train.py` stopped early (the import of `{missing}` cannot be resolved"
    assert reported("train.py") == expected


@pytest.mark.parametrize(
    ("imports", "use"),
    [
        ("from transformers import AutoModel", "AutoModel(model)"),  # a package
        ("import torch_xla.core", "torch_xla.core.sync(model)"),
        ("from .version import __version__", ""),  # not read
        ("try:\n    from .steps import go\nexcept ImportError:\n    go = print", "go(model)"),
    ],
)
def test_other_imports_that_resolve_to_no_file_are_no_early_stop(imports: str, use: str) -> None:
    written("", "torch_xla.py")  # a file is no package that others can be in
    written(SCRIPT.format(imports=imports, use=use))
    ran = concise("train.py", "--strict")
    assert (ran.code, ran.err) == (0, "")


def test_a_sharding_call_that_the_project_lacks_is_reported() -> None:
    text = (
        f"import torch\nfrom .parallel import fully_shard\nmodel = torch.nn.Linear(8, 8)\n{BUILD}\n"
    )
    written(f"{text}fully_shard(model)\noptimizer.step()\n")
    expected = "`train.py` stopped early (the import of `.parallel` cannot be resolved"
    assert reported("train.py") == expected


# Fixes


def test_a_fix_whose_result_is_cut_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    written(recipes(1))
    outcome = check(["train.py"], defaults())
    limit(monkeypatch, path_steps=15)
    changes = fixing.fixed(outcome, lambda files: check(["train.py"], defaults(), files), True)
    assert changes.files == ()
    assert [note for _, note in changes.notes] == [
        "a fix of optimizer-before-sharding was rolled back: the fixed code cannot be checked: "
        "its analysis stops early (one path exceeds the step limit)"
    ]


def test_no_example_stops_early() -> None:
    assert check([Path(__file__).parent.parent / "examples"], defaults()).partly == ()
