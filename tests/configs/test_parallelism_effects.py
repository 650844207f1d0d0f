"""Findings on how ranks are divided and started are true, by accelerate itself."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding, Safety
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.accelerate_settings import settings as settings_of_fsdp
from fsdplint.knowledge.parallelism_settings import PREFIX, SIZES, of, settings

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from accelerate_effect import mesh, started

COUNT = 120
HEAD = "distributed_type: FSDP\nmain_process_port: 0\n"
RULES = ("unknown-parallelism-setting", "invalid-parallelism-sizes")


def made(seed: int) -> str:
    """A config file with sizes at random, of which many fit."""
    chance = random.Random(seed)
    names = chance.sample(SIZES[:4], chance.randrange(1, 5))
    sizes = {name: chance.choice((1, 1, 2, 2, 4)) for name in names}
    if chance.random() < 0.1:
        sizes[chance.choice(names)] = chance.choice((0, -1, 3))
    fits = chance.random() < 0.6
    processes = max(prod(sizes.values()), 1) if fits else chance.choice((1, 2, 4, 8))
    lines = "".join(
        f"  {name.removeprefix(PREFIX) if chance.random() < 0.1 else name}: {size}\n"
        for name, size in sizes.items()
    )
    version = chance.choice((1, 2, 2, 2))
    section = f"fsdp_config:\n  fsdp_version: {version}\n  fsdp_auto_wrap_policy: NO_WRAP\n"
    return f"{HEAD}num_processes: {processes}\n{section}parallelism_config:\n{lines}"


def found_in(text: str, *rules: str) -> list[Finding]:
    return [each for each in check_text(text, "a.yaml") if each.rule in rules]


def without(text: str, finding: Finding) -> str:
    """The text without the line of a finding."""
    start = text.rindex("\n", 0, finding.span.start) + 1
    return text[:start] + text[text.index("\n", start) + 1 :]


def wrong(text: str) -> Iterator[str]:
    """What is not so of the findings in a text."""
    before = mesh(text)
    sizes = False
    for finding in found_in(text, *RULES):
        if finding.rule == "unknown-parallelism-setting":
            if mesh(without(text, finding)) != before:
                yield f"false: {finding.message}"
            if finding.message.endswith("all ranks") and before != {"sizes": {}}:
                yield f"harm: {finding.message}"
        else:
            sizes = True
            if "error" not in before:
                yield f"false: {finding.message}"
            if finding.fix and "error" in mesh(apply(text, finding.fix.edits)):
                yield f"no cure: {finding.message}"
    if "error" in before and not sizes:
        yield f"missed: {before['error']}"


@pytest.mark.parametrize("part", range(3))
def test_findings_are_true_and_errors_are_found(part: int) -> None:
    for seed in range(part, COUNT, 3):
        text = made(seed)
        assert not list(wrong(text)), text


@pytest.mark.parametrize("machines", [1, 2, 3])
@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_processes_are_lost_where_it_is_said(machines: int, processes: int, rank: int) -> None:
    numbers = f"num_processes: {processes}\nnum_machines: {machines}\nmachine_rank: {rank}\n"
    address = "main_process_ip: 127.0.0.1\n"
    text = f"{HEAD}{numbers}{address}fsdp_config:\n  fsdp_version: 2\n"
    does = started(text)
    found = found_in(text, "processes-not-on-machines")
    lost = [each for each in found if "machine_rank" not in each.message]
    assert isinstance(does["each"], int) and isinstance(does["rank"], int)
    assert bool(lost) == (does["each"] * machines != processes)
    assert (len(found) > len(lost)) == (does["rank"] >= machines)
    for each in lost:
        assert ("starts only" in each.message) == (does["each"] > 0)
        if each.fix:
            assert each.fix.safety is Safety.UNSAFE
            fixed = apply(text, each.fix.edits)
            assert started(fixed) == does and not [
                f for f in found_in(fixed, "processes-not-on-machines") if f.fix
            ]


def test_the_table_is_of_the_releases_that_have_the_section() -> None:
    assert set(SIZES) <= set(settings()[-1].names(2))
    assert settings()[-1].release == settings_of_fsdp()[-1].release


def test_releases_without_the_section_are_not_judged() -> None:
    every = settings_of_fsdp()
    assert of(every[-1:]) == settings()[-1:]
    assert of(every) == ()


@pytest.mark.parametrize(
    "text",
    [
        "parallelism_config: {}\n",
        "parallelism_config: x\n",
        "parallelism_config:\n  <<: {parallelism_config_dp_shard_size: 3}\n"
        "  parallelism_config_tp_size: 2\n",
        "parallelism_config:\n  parallelism_config_dp_shard_size: '{{ size }}'\n",
        "parallelism_config:\n  parallelism_config_sp_size: 4\n",
        "<<: {num_machines: 3}\nnum_machines: 4\n",
        "num_machines: true\n",
        "num_machines: '3'\nmachine_rank: 5\n",
    ],
)
def test_what_is_not_known_is_not_judged(text: str) -> None:
    head = f"{HEAD}num_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    assert found_in(head + text, *RULES, "processes-not-on-machines") == []
