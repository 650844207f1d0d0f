"""Findings in config files are true, and safe fixes harm nothing, by accelerate itself."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from measuring import installed

from fsdplint.check import check_text
from fsdplint.finding import Finding, Safety
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.accelerate_settings import settings

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from accelerate_effect import Effect, effect

OWN = installed("accelerate", settings())
OLD = OWN is not settings()[-1]
COUNT = 150
IGNORED = ("unknown-fsdp-setting", "fsdp-setting-not-applied", "redundant-fsdp-setting")
REFUSED = ("invalid-fsdp-setting", "ram-efficient-loading-without-sync")
WORDS = ("true", "false", "'yes'", "null", "1", "3", "7", "FULL_SHARD", "NO_SHARD", "NO_WRAP")
CLASSES = ("Block", "Linear", "'Block,Linear'", "'Block, Linear'", "[Block]", "''", "null")
NAMES = sorted({*OWN.names(1), *OWN.names(2), "fsdp_cpu_offload", "fsdp_limit_all_gathers"})


def made(seed: int) -> str:
    """A config file with settings and values at random, most of them such as are taken."""
    chance = random.Random(seed)
    version = chance.choice((None, 1, 2, 2))
    lines = [f"fsdp_version: {version}"] if version else ["fsdp_offload_params: false"]
    for name in chance.sample(NAMES, chance.randrange(1, 7)):
        if name == "fsdp_version" or (OLD and name == "fsdp_backward_prefetch_policy"):
            continue
        taken = sorted(OWN.takes(name, chance.choice((1, 2))))
        words = taken if taken and chance.random() < 0.8 else WORDS
        if name.endswith("cls_to_wrap"):
            words = CLASSES
        shown = name if chance.random() < 0.9 else name.removeprefix("fsdp_")
        lines.append(f"{shown}: {chance.choice(words)}")
    section = "".join(f"  {line}\n" for line in dict.fromkeys(lines))
    kind = chance.choice(("FSDP", "FSDP", "FSDP", "FSDP", "MULTI_GPU"))
    top = chance.choice(("", "", "", "", "num_proceses: 1\n"))
    return f"distributed_type: {kind}\nnum_processes: 2\n{top}fsdp_config:\n{section}"


def without(text: str, finding: Finding) -> str:
    """The text without the line of a finding."""
    start = text.rindex("\n", 0, finding.span.start) + 1
    return text[:start] + text[text.index("\n", start) + 1 :]


def wrong(text: str, before: Effect, folder: Path) -> Iterator[str]:
    """What is not so of the findings in a text."""
    found = [f for f in check_text(text, str(folder / "a.yaml")) if f.rule != "fsdp1-config"]
    for finding in found:
        if "`accelerate launch` refuses this file" in finding.message:
            true = "unknown keys" in str(before.get("error"))
        elif finding.rule in IGNORED:
            true = effect(without(text, finding)) == before or (OLD and "error" in before)
        elif finding.rule in REFUSED:
            true = "error" in before
        elif finding.rule == "no-wrap-policy":
            calls = before.get("calls", [])
            true = "error" in before or (isinstance(calls, list) and len(calls) == 1)
        else:
            assert finding.rule == "fsdp-config-unused"
            true = before == {"sharding": "none"} or "error" in before
        if not true:
            yield f"false: {finding.message}"
        if finding.fix and finding.fix.safety is Safety.SAFE:
            after = effect(apply(text, finding.fix.edits))
            if "error" not in before and after != before:
                yield f"harm: {finding.message}"
    reported = any(f.rule in REFUSED or "refuses" in f.message for f in found)
    # An old release fails by its own defaults, too.
    if "error" in before and not reported and not OLD:
        yield f"missed: {before['error']}"


@pytest.mark.parametrize("part", range(5))
def test_findings_are_true_and_errors_are_found(part: int, tmp_path: Path) -> None:
    release = ".".join(map(str, OWN.release))
    (tmp_path / "requirements.txt").write_text(f"accelerate=={release}.*\n")
    for seed in range(part, COUNT, 5):
        text = made(seed)
        assert not list(wrong(text, effect(text), tmp_path)), text


def converted(text: str) -> dict[str, object] | None:
    """The settings that accelerate itself makes for FSDP2."""
    from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2

    return convert_config_to_fsdp2(yaml.safe_load(text))["fsdp_config"]  # type: ignore[no-any-return]  # no types


def test_the_conversion_is_that_of_accelerate() -> None:
    done = 0
    for seed in range(2 * COUNT):
        text = made(seed)
        for finding in check_text(text, "config.yaml"):
            if finding.rule != "fsdp1-config" or finding.fix is None:
                continue
            section = yaml.safe_load(text)["fsdp_config"]
            # Of these accelerate makes what it refuses then, or does not know them.
            if section.get("fsdp_sharding_strategy") in range(10) or not all(
                name.startswith("fsdp_") for name in section
            ):
                continue
            done += 1
            # The default of FSDP1, which accelerate's conversion changes.
            wanted = {"fsdp_state_dict_type": "FULL_STATE_DICT", **(converted(text) or {})}
            assert yaml.safe_load(apply(text, finding.fix.edits))["fsdp_config"] == wanted
    assert done > 10
