"""Which entries are followed, how far, and what `fsdplint inspect` says of the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from helpers import HEADER, paths_started, program, script
from limits import limit

from fsdplint.engine.budget import BUDGET
from fsdplint.engine.interpreter.decisions import Decision, Decisions
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.paths import Frontier
from fsdplint.engine.interpreter.priority import SHARDS
from fsdplint.engine.interpreter.state import PathState
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[PathState]:
    """The state of every path that is followed from now on."""
    return paths_started(monkeypatch)


def steps(followed: list[PathState]) -> list[int]:
    """Those of each path through a function."""
    return [state.steps for state in followed if state.trace.entry != "<module>"]


def left(found: Program) -> dict[str, str]:
    """Why entries were not followed."""
    return {name: reason for (_, name), reason in found.project.left_out.items()}


def stopped(found: Program) -> dict[str, str]:
    """Why the analysis of entries stopped early."""
    return {stop.entry: stop.reason for stop in found.project.early_stops}


SLOW = "def slow(x):\n" + "    x = x + 1\n" * 100


def test_paths_that_bring_nothing_new_end_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, repeated_steps=500)
    arms = "".join(
        f"if a{i}:\n    slow(fully_shard)\nelse:\n    slow(fully_shard)\n" for i in range(6)
    )
    text = f"{SLOW}fully_shard(model)\n{arms}"
    found = script(tmp_path, text)
    assert len(followed) == 7, "one path, and each branch the other way"
    assert not stopped(found)
    followed.clear()
    limit(monkeypatch, stale_steps=500, rest_steps=0)
    found = script(tmp_path, text)
    assert stopped(found) == {"<module>": "many paths in a row reached no new event"}
    assert len(followed) < 7


CLEANED = "def clean(x):\n    if x.a:\n        return x.b\n    return x.c\n"


SHARDED = "model = Net()\nfully_shard(model)\n"


@pytest.mark.parametrize(
    ("helper", "use", "paths"),
    [
        (CLEANED, "clean(config)\nmodel.no_sync()\n", 1),
        (CLEANED.replace("x.b", "PLAIN"), "PLAIN = 'a'\nclean(config)\nmodel.no_sync()\n", 1),
        # What it gets is sharded.
        (CLEANED, "clean(model)\nmodel.no_sync()\n", 2),
        # What it calls saves.
        (CLEANED.replace("x.b", "torch.save(x, 'x')"), "clean(config)\nmodel.no_sync()\n", 2),
        # It chooses a dtype.
        (CLEANED.replace("x.b", "torch.float16"), "clean(config)\nmodel.no_sync()\n", 2),
        # Whether there is a result decides.
        (CLEANED.replace("x.c", "None"), "if clean(config):\n    model.no_sync()\n", 3),
    ],
    ids=["computed", "constant", "sharded", "saves", "dtype", "tested"],
)
def test_an_early_return_costs_a_path_if_a_rule_may_ask_about_it(
    tmp_path: Path, followed: list[PathState], helper: str, use: str, paths: int
) -> None:
    script(tmp_path, f"{helper}{SHARDED}{use}")
    assert len(followed) == paths


def test_what_another_entry_has_followed_is_followed_in_a_few_combinations_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, stale_steps=500, rest_steps=4000, repeats=2)
    arms = "".join(f"    elif o == {i}:\n        torch.save(x, '{i}')\n" for i in range(8))
    train = (
        f"def train(x, o):\n    fully_shard(x)\n    slow(x)\n    if not o:\n        pass\n{arms}"
    )
    calls = "".join(f"def {name}(x, o):\n    train(x, o.{name})\n" for name in ("one", "two"))
    found = script(tmp_path, f"{SLOW}{train}{calls}")
    assert not stopped(found)
    counts = Counter(state.trace.entry for state in followed)
    assert counts == {"<module>": 1, "one": 10, "two": 3}


@pytest.mark.parametrize(("most", "left"), [(1_600, {"one"}), (9_000, set())])
def test_what_is_left_of_an_entry_waits_until_every_one_had_its_turn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    followed: list[PathState],
    most: int,
    left: set[str],
) -> None:
    limit(monkeypatch, stale_steps=500, rest_steps=1_000, steps=most)
    arms = "".join(f"    elif o == {i}:\n        kept = fully_shard\n" for i in range(9))
    one = f"def one(x, o):\n    fully_shard(x)\n    slow(x)\n    if not o:\n        pass\n{arms}"
    found = script(tmp_path, f"{SLOW}{one}def two(x):\n    fully_shard(x)\n    slow(x)\n")
    order = [state.trace.entry for state in followed if state.trace.entry != "<module>"]
    assert order[:4] == ["one", "one", "one", "two"]
    assert set(stopped(found)) == left
    assert bool(left) is (order[4:] == [])
    ones = [state.decisions for state in followed if state.trace.entry == "one"]
    taken = {tuple((each.place, each.outcome) for each in decisions.made) for decisions in ones}
    assert len(taken) == len(ones), "a later turn does not begin with the first path again"


SAVE = "def save(x):\n    torch.save({}, 'x')\n"
WAYS = (
    "def one(x, o):\n    if o.way:\n        kept = fully_shard\n    else:\n        fully_shard(x)\n"
)


@pytest.mark.parametrize("through_functions", [False, True], ids=["flags", "functions"])
def test_a_second_turn_takes_every_new_outcome_on_one_path_that_shards(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    followed: list[PathState],
    through_functions: bool,
) -> None:
    limit(monkeypatch, stale_steps=300)
    flags = range(8)
    reads = "".join(
        f"def flag_{n}(o):\n    if o.a{n}:\n        return True\n    return False\n" for n in flags
    )
    tests = [f"flag_{n}(o)" if through_functions else f"o.a{n}" for n in flags]
    arms = "".join(f"    if {test}:\n        save(x)\n" for test in tests)
    found = script(tmp_path, f"{SLOW}{SAVE}{reads}{WAYS}    slow(x)\n{arms}")
    assert not stopped(found)
    ones = [state for state in followed if state.trace.entry == "one"]
    shards = [state.may_have_sharded() for state in ones]
    assert shards == ([False, True, True] if through_functions else [False, True, False, True])
    _, first, *_, last = ([each.outcome for each in state.decisions.made] for state in ones)
    same = [one is other for one, other in zip(first, last, strict=True)]
    # The path that does not shard took the first flag's other outcome.
    assert same == ([True] if through_functions else [True, True]) + [False] * same.count(False)
    assert same.count(False) == 8 - (not through_functions)


def test_what_another_entry_has_followed_is_followed_if_sharding_depends_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, repeats=0)
    build = "def build(x, o):\n    if o:\n        return fully_shard(x)\n    return FSDP(x)\n"
    calls = "".join(
        f"def {name}(x, o):\n    build(x, o.{name})\n    x.{method}()\n"
        for name, method in (("one", "eval"), ("two", "no_sync"))
    )
    script(tmp_path, f"{build}{calls}")
    assert Counter(state.trace.entry for state in followed)["two"] == 2


CHAIN = """\
def spread(model, way):
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp1":
        return FSDP(model)
    if way == "fsdp2":
        fully_shard(model)
        return model
    raise ValueError(way)
"""


def test_every_choice_of_a_chain_that_shards_is_followed(tmp_path: Path) -> None:
    found = script(tmp_path, f"{CHAIN}spread(model, args.way).no_sync()\n")
    shards = [shard.generation for trace in found.traces for shard in trace.of(Shard)]
    assert shards == [Generation.FSDP1, Generation.FSDP2]


def test_a_path_with_something_new_is_followed_however_long_it_is(tmp_path: Path) -> None:
    branches = "".join(f"if a{i}:\n    model.no_sync()\n" for i in range(6))
    found = script(tmp_path, f"{SLOW}fully_shard(model)\n{branches}slow(1)\n")
    seen = {event.site.node.start for trace in found.traces for event in trace.events}
    assert len(seen) == 7


CONFIGS = """\
class Spec:
    def __init__(self, name, function):
        self.name = name
        self.function = function
def parallelize(model):
    fully_shard(model)
def registry(name):
    return Spec(name, parallelize)
def small():
    return registry("small")
def large():
    return registry("large")
def trained(model):
    registry("x").function(model).state_dict()
"""
QUIET = "the functions it calls do nothing to a model"


def test_what_only_calls_what_does_nothing_is_left_out(tmp_path: Path) -> None:
    found = script(tmp_path, CONFIGS)
    assert sorted(name for name, reason in left(found).items() if reason == QUIET) == ["large"]
    assert {trace.entry for trace in found.traces} == {"trained"}


def test_what_calls_a_function_with_an_event_is_followed(tmp_path: Path) -> None:
    text = CONFIGS.replace("    return Spec", "    torch.save(name, 'x')\n    return Spec")
    assert QUIET not in left(script(tmp_path, text)).values()


SKIPPED = """\
class Store:
    def get(self):
        return self.kept.apply
@skip_if(Store is None)
class Case:
    def apply(self, model):
        fully_shard(model)
def serve():
    return Store().get()
"""


def test_an_argument_of_a_decorator_hands_out_nothing(
    tmp_path: Path, followed: list[PathState]
) -> None:
    script(tmp_path, SKIPPED)
    assert {state.trace.entry for state in followed} == {"<module>", "Case.apply"}
    followed.clear()
    script(tmp_path, SKIPPED.replace("skip_if(Store is None)", "Store.add"))
    assert {state.trace.entry for state in followed} == {"<module>", "Case.apply", "serve"}


ROUTES = """\
from fastapi import APIRouter
router = APIRouter()
@router.post("/train")
def train(model):
    fully_shard(model)
@router.get("/jobs")
def jobs():
    return router.routes
"""


def test_an_object_of_a_library_hands_out_nothing(
    tmp_path: Path, followed: list[PathState]
) -> None:
    script(tmp_path, ROUTES)
    assert {state.trace.entry for state in followed} == {"<module>", "train"}
    followed.clear()
    script(tmp_path, ROUTES.replace("APIRouter()", "Routes()") + "class Routes:\n    pass\n")
    assert {state.trace.entry for state in followed} == {"<module>", "train", "jobs"}


MANY = "    x = x + 1\n" * 50
LONG = "".join(f"def f{i}(m):\n    slow(m)\n    fully_shard(m)\n" for i in range(8))


def test_programs_that_are_too_long_make_the_next_ones_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=60, cuts_per_function=9)
    found = script(tmp_path, SLOW + LONG)
    shortened = [121, 81, 61, 61, 61, 61, 61]
    assert steps(followed) == [241, *shortened, *[241 for _ in shortened]], "the rest at the end"
    assert stopped(found) == {f"f{i}": "one path exceeds the step limit" for i in range(8)}


def test_a_path_that_was_too_long_is_followed_to_its_end_when_every_entry_had_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=60, long_path_steps=1_000)
    found = script(tmp_path, SLOW + LONG + "def last(m):\n    fully_shard(m)\n")
    order = [state.trace.entry for state in followed[1:]]
    every = [f"f{i}" for i in range(8)]
    assert order[:9] == [*every, "last"]
    assert order[9:] == [*every[3:], "f2", "f1", "f0"], "the cheapest first"
    assert steps(followed)[9:] == [steps(followed)[9]] * 8
    assert [trace.entry for trace in found.traces] == order[8:]
    assert stopped(found) == {}


def test_what_a_path_decides_where_it_was_cut_is_followed_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=60, long_path_steps=3_000)
    cut = "def cut(m):\n" + "    slow(m)\n" * 3 + "    fully_shard(m)\n"
    either = "    if flag:\n        m.shard = fully_shard\n    else:\n        fully_shard(m)\n"
    found = script(tmp_path, f"{SLOW}{cut}def late(m, flag):\n    slow(m)\n{either}")
    assert [trace.entry for trace in found.traces] == ["late", "cut"], "the cheapest first"
    assert stopped(found) == {}


def test_a_function_that_no_path_found_an_end_of_ends_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=60)
    found = script(tmp_path, SLOW + LONG + "def quick(m):\n    slow.m = fully_shard\n")
    assert steps(followed)[:4] == [241, 121, 81, 10]
    assert stopped(found) == {f"f{i}": "one path exceeds the step limit" for i in range(8)}


def test_a_function_that_was_cut_early_in_may_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=240)
    late = "".join(f"def f{i}(m):\n{MANY}    last(m)\n    fully_shard(m)\n" for i in range(8))
    script(tmp_path, f"def last(x):\n{MANY}{late}")
    assert steps(followed) == [241] * 8


def test_what_calls_an_endless_function_may_call_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=240)
    text = f"{SLOW}def launch(f, m):\n    f(m)\n    fully_shard(m)\n"
    entries = "".join(f"def f{i}(m):\n    launch(slow, m)\n" for i in range(5))
    quick = "def quick(m):\n    pass\ndef last(m):\n    launch(quick, m)\n"
    found = script(tmp_path, f"{text}{entries}{quick}")
    assert steps(followed)[3] < 60
    assert [trace.entry for trace in found.traces] == ["last"]


def test_after_sharding_every_function_is_followed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=60)
    shards = "def shards(m):\n    fully_shard(m)\n"
    again = "def again(m):\n    slow(m)\n    fully_shard(m)\n"
    script(tmp_path, SLOW + LONG + shards + again)
    (whole,) = [state.steps for state in followed if state.trace.entry == "again"]
    assert whole == 241


def test_a_program_that_shards_in_time_has_the_whole_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, path_steps=240, cut_path_steps=60)
    text = LONG + "def last(m):\n    fully_shard(m)\n    slow(m)\n    m.no_sync()\n"
    found = script(tmp_path, SLOW + text)
    (last,) = [trace for trace in found.traces if trace.entry == "last"]
    assert [state.steps for state in followed if state.trace is last] == [241]


def test_after_many_programs_that_do_not_shard_those_that_name_sharding_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, unsharded_steps=500)
    keeps = "".join(f"def keep{i}(m):\n    m.shard = fully_shard\n" for i in range(5))
    names = [f"def f{i}(m):\n    slow(m)\n    keep{i}(m)\n" for i in range(5)]
    last = "def last(m):\n    fully_shard(m)\n"  # it names what shards itself
    found = script(tmp_path, SLOW + keeps + "".join(names) + last)
    inert = "the functions it calls do nothing to a model"
    assert left(found) == dict.fromkeys(("f2", "f3", "f4"), inert), "they came behind the others"
    assert stopped(found) == {}
    assert [trace.entry for trace in found.traces] == ["last"]


def test_many_programs_of_a_file_that_do_not_shard_put_off_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, unsharded_file_steps=500)
    names = [f"def f{i}(m):\n    slow(m)\n    m.shard = fully_shard\n" for i in range(5)]
    text = SLOW + "".join(names)
    assert stopped(script(tmp_path, text)) == {}
    order = [state.trace.entry for state in followed]
    assert order == ["<module>", "f0", "f1", "f2", "f3", "f4"]
    first = sum(state.steps for state in followed[:3])
    limit(monkeypatch, unsharded_file_steps=500, steps=first)
    reason = "the code analyzed before it in its file does not shard"
    assert stopped(script(tmp_path, text)) == dict.fromkeys(("f3", "f4"), reason)


def test_scripts_that_name_sharding_come_before_others(tmp_path: Path) -> None:
    files = {
        "a.py": "from z import run\nrun(build())\n",
        "b.py": HEADER + "fully_shard(model)\n",
        "z.py": HEADER + "def run(m):\n    fully_shard(m)\n",
    }
    order = [Path(trace.path).name for trace in program(tmp_path, files).traces]
    assert order == ["b.py", "a.py"]


def test_constants_of_a_table_cost_next_to_nothing(
    tmp_path: Path, followed: list[PathState]
) -> None:
    script(tmp_path, f"table = {[*range(1600)]!r}\nnames = {{'a': [1, 2]}}\nfully_shard(model)\n")
    assert followed[0].steps < 150


def test_a_test_that_mocks_sharding_is_told(tmp_path: Path) -> None:
    files = {
        "tests/conftest.py": "def fake(m): m.setattr('x.fully_shard', None)\n",
        "tests/unit.py": HEADER + "fully_shard(model)\n",
        "train.py": HEADER + "fully_shard(model)\n",
    }
    found = program(tmp_path, files)
    assert [Path(trace.path).name for trace in found.traces] == ["train.py"]
    assert "a test replaces the sharding function" in left(found).values()


def test_scripts_that_train_come_before_those_that_do_not(tmp_path: Path) -> None:
    sharded = f"{HEADER}model = Net()\nfully_shard(model)\n"
    trained = f"{sharded}model(batch).sum().backward()\n"
    found = program(tmp_path, {"a_eval.py": sharded, "b_none.py": "x = 1\n", "train.py": trained})
    paths = dict.fromkeys(Path(trace.path).name for trace in found.traces)
    assert list(paths) == ["train.py", "a_eval.py"]


def test_a_path_that_was_not_followed_is_put_back_once() -> None:
    frontier = Frontier(BUDGET, set())
    frontier.add(Decisions(made=[Decision("key", True, 1, "place")]), 0)
    assert frontier.next(sharding_seen=True) == (False,)
    frontier.put_back()
    frontier.put_back()
    assert [frontier.next(sharding_seen=True) for _ in range(2)] == [(False,), None]


@pytest.mark.parametrize("way", [True, False], ids=["sharding", "not sharding"])
def test_a_path_that_decides_against_sharding_is_not_followed_further(way: bool) -> None:
    frontier = Frontier(BUDGET, {("way", True)})
    frontier.note_sharding(Decisions(made=[Decision("key", True, SHARDS, "way")], sharded=1))
    made = [Decision("key", way, SHARDS, "way"), Decision("other key", True, 1, "flag")]
    frontier.add(Decisions(made=made), 1)
    assert frontier.next_open() == ((way, False) if way else None)


def test_the_way_of_another_entry_is_tried_once() -> None:
    frontier = Frontier(BUDGET, set())
    frontier.add(Decisions(made=[Decision("key", True, 1, "way")]), 0)
    guide = {"way": False, "elsewhere": True}
    assert [frontier.new_guide(guide) for _ in range(2)] == [guide, {}]
    assert frontier.new_guide({"way": True, "far": True}) == {}, "no path decided otherwise"


def test_paths_that_surely_shard_take_new_outcomes_first() -> None:
    frontier = Frontier(BUDGET, set())
    made = [Decision(str(number), True, 1, number) for number in range(4)]
    frontier.add(Decisions(made=made, sharded=2), 0)
    lengths = [len(frontier.next_open() or ()) for _ in range(4)]
    assert lengths == [3, 4, 1, 2]


@pytest.mark.parametrize("most", [50, 10_000], ids=["long", "short"])
def test_an_entry_with_a_long_path_that_shards_waits_until_every_one_had_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState], most: int
) -> None:
    limit(monkeypatch, many_path_steps=most)
    body = "    fully_shard(x)\n    slow(x)\n    if o:\n        save(x)\n"
    entries = "".join(f"def {name}(x, o):\n{body}" for name in ("one", "two"))
    found = script(tmp_path, f"{SLOW}{SAVE}{entries}")
    assert not stopped(found)
    order = [state.trace.entry for state in followed if state.trace.entry != "<module>"]
    assert order[:2] == ["one", "two" if most == 50 else "one"]
    assert Counter(order)["one"] == Counter(order)["two"] == 2


def test_entries_look_for_sharding_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, stale_steps=10, rest_steps=10)
    arms = "".join(f"    elif o.w{n}:\n        kept = fully_shard\n" for n in range(3))
    ways = f"    if o.way:\n        kept = fully_shard\n{arms}    else:\n        fully_shard(x)\n"
    entries = "".join(f"def {name}(x, o):\n    slow(x)\n{ways}" for name in ("one", "two"))
    script(tmp_path, f"{SLOW}{entries}")
    order = [state.trace.entry for state in followed if state.trace.entry != "<module>"]
    assert order == ["one", "two", *["one"] * 4, *["two"] * 4]


def test_an_entry_that_looks_for_sharding_decides_as_another_one_that_found_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, stale_steps=10)
    arms = "".join(f"    elif o.w{n}:\n        kept = fully_shard\n" for n in range(4))
    build = f"def build(x, o):\n    if o.way:\n        kept = fully_shard\n{arms}"
    build += "    else:\n        fully_shard(x)\n"
    found = script(tmp_path, f"{SLOW}{build}def one(x, o):\n    slow(x)\n    build(x, o)\n")
    assert not stopped(found)
    ones = [state.may_have_sharded() for state in followed if state.trace.entry == "one"]
    assert ones[:2] == [False, True], "as a path through `build` alone"


LEAVE = "        return\n"


def test_after_a_path_that_lost_the_sharding_others_decide_as_before_until_they_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: list[PathState]
) -> None:
    limit(monkeypatch, stale_steps=300)
    arm = "    if o.{}:\n        save(x)\n"
    before = "".join(arm.format(f"a{n}") + arm.format(f"b{n}") + LEAVE for n in range(4))
    after = "".join(arm.format(f"c{n}") for n in range(4))
    one = f"def one(x, o):\n    slow(x)\n{before}    fully_shard(x)\n{after}"
    found = script(tmp_path, f"{SLOW}{SAVE}{one}")
    assert not stopped(found)
    ones = [state for state in followed if state.trace.entry == "one"]
    shards = [state.may_have_sharded() for state in ones]
    lost = [False] * 3  # the other settings that leave
    assert shards == [True, False, False, True, *lost, *[True] * 4]
    first, last = ([each.outcome for each in ones[n].decisions.made] for n in (0, 3))
    assert first[-4:] == [True] * 4
    assert last[-4:] == [False] * 4, "all that is new behind the sharding"


@pytest.mark.parametrize("most", [10, 10_000], ids=["put off", "at once"])
def test_what_only_a_caller_keeps_from_sharding_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    limit(monkeypatch, unsharded_file_steps=most)
    build = "def build(x, mesh):\n    if mesh:\n        fully_shard(x)\n"
    found = script(tmp_path, f"{build}def debug(x):\n    build(x, None)\ndebug(model)\n")
    assert not stopped(found)
    assert [trace.entry for trace in found.traces] == ["build"]
