"""A program and a rewriting of it: both must get the same findings, at the same code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.fuzz.grammar import compiles
from tests.fuzz.layout import Laid, as_is, relaid
from tests.fuzz.properties import checked, written
from tests.fuzz.rewriting import HIDING, MOVING, REWRITINGS
from tests.fuzz.trees import Origin, Printed, Trees

# A rule with the place, in the original, of what it reports: of a node, or which token it is.
Finding = tuple[str, "Origin | int | None"]
Found = frozenset[Finding]

# By a rewriting that takes programs apart, the rules that may get findings by it.
MAY_COME = {
    "as_methods": ("global-rank-as-device", "grad-scaler-on-fsdp1", "root-unsharded-after-eval"),
    "as_parameter": ("clip-grad-util-on-fsdp1",),
}

# By a rewriting, the rules that may lose findings by it; README.md says why, and of the ones above.
MAY_BE_SILENT = {
    "as_cases": ("fsdp1-api-on-fsdp2-model",),
    "as_methods": (
        "async-save-not-awaited",
        "cast-after-sharding",
        "collective-after-destroy",
        "collective-under-rank-guard",
        "device-not-set",
        "fresh-optimizer-in-dcp-load",
        "full-state-dict-into-sharded-model",
        "gradient-sync-left-off",
        "inference-mode-forward",
        "local-rank-argument",
        "materialized-without-init",
        "mesh-arguments",
        "module-added-after-sharding",
        "moved-under-cpu-offload",
        "optimizer-before-sharding",
        "parameters-replaced-after-optimizer",
        "process-group-not-destroyed",
        "rank-dependent-init",
        "root-unsharded-after-eval",
    ),
    "as_parameter": (
        "all-reduced-loss-before-backward",
        "async-save-without-cpu-backend",
        "cast-after-sharding",
        "checkpoint-path-differs-by-rank",
        "checkpointing-matches-nothing",
        "collective-after-destroy",
        "collective-under-rank-guard",
        "custom-method-bypasses-hooks",
        "device-not-set",
        "direct-forward",
        "dtensor-data-assigned",
        "epoch-not-set",
        "file-init-reused",
        "foreach-with-mixed-parameters",
        "fresh-optimizer-in-dcp-load",
        "fsdp1-api-on-fsdp2-model",
        "fsdp1-mixed-requires-grad",
        "full-state-dict-into-sharded-model",
        "global-rank-as-device",
        "grad-scaler-on-fsdp1",
        "gradient-hook-never-runs",
        "gradient-sync-left-off",
        "inference-mode-forward",
        "kept-state-is-live",
        "local-rank-argument",
        "materialized-without-init",
        "module-added-after-sharding",
        "moved-under-cpu-offload",
        "only-root-sharded",
        "optimizer-before-sharding",
        "optimizer-state-saved-raw",
        "parameter-used-outside-its-unit",
        "process-group-arguments",
        "process-group-not-destroyed",
        "reentrant-checkpoint",
        "root-unsharded-after-eval",
        "same-data-on-every-rank",
        "sampler-seed-differs-by-rank",
        "save-guarded-by-local-rank",
        "save-without-gathered-state",
        "state-of-inner-module-saved",
    ),
    "by_factory": ("low-precision-reduce", "same-data-on-every-rank"),
    "by_factory_elsewhere": (
        "local-rank-argument",
        "low-precision-reduce",
        "only-root-sharded",
        "same-data-on-every-rank",
    ),
    "dead_code": ("fsdp1-api-on-fsdp2-model",),
    "enclose": ("fsdp1-api-on-fsdp2-model",),
    "extract": (
        "cpu-offload-without-cpu-backend",
        "fsdp1-api-on-fsdp2-model",
        "fresh-optimizer-in-dcp-load",
        "inplace-on-sharded-output",
        "materialized-without-init",
        "only-root-sharded",
        "policy-missing-on-root",
        "reentrant-checkpoint",
    ),
    "import_style": ("old-import-path",),
    "into_library": ("local-rank-argument", "only-root-sharded"),
    "split": ("local-rank-argument", "only-root-sharded"),
    "together": ("only-root-sharded",),
    "wrap_main": ("fresh-optimizer-in-dcp-load",),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One rewriting, by its name, and the seed of its choices."""

    name: str
    seed: int


def steps(random: Random, most: int) -> list[Step]:
    names = sorted(REWRITINGS)
    return [
        Step(random.choice(names), random.getrandbits(32)) for _ in range(random.randint(1, most))
    ]


def rewritten(trees: Trees, chosen: Sequence[Step]) -> tuple[Trees, list[Step]]:
    """The program after those steps that found something to do, and these."""
    made, done = trees, list[Step]()
    for step in chosen:
        attempt = made.copied()
        if {**REWRITINGS, **HIDING}[step.name](attempt, Random(step.seed)):
            assert all(map(compiles, attempt.printed().values())), step
            made = attempt
            done.append(step)
    return made, done


def found(trees: Trees) -> Found:
    """The findings in a program of trees."""
    files = trees.printed()
    printed = {path: Printed(text, trees.modules[path]) for path, text in files.items()}
    return frozenset(
        (rule, printed[path].origin(start, end)) for rule, path, start, end in _found(files)
    )


def _found(files: Mapping[str, str]) -> list[tuple[str, str, int, int]]:
    with written(files) as root:
        return [
            (f.rule, f.span.path.removeprefix(f"{root}/"), f.span.start, f.span.end)
            for f in checked(root).findings
        ]


def laid_out(files: Mapping[str, str], random: Random) -> tuple[dict[str, Laid], dict[str, Laid]]:
    """Printed files as they are, and in another layout."""
    return (
        {path: as_is(text) for path, text in files.items()},
        {path: relaid(text, random) for path, text in files.items()},
    )


def found_by_token(files: Mapping[str, Laid]) -> Found:
    """The findings in a program, each with the number of the token it begins at."""
    found = _found({path: laid.mark + laid.text for path, laid in files.items()})
    return frozenset((rule, files[path].index(start)) for rule, path, start, _ in found)


def difference(before: Found, after: Found, done: Sequence[Step] = ()) -> str:
    """The findings that came and went, "" if none did but those that may."""
    gone, new = changed(before, after, done)
    silent = _may_be_silent(done)
    lines = [f"- {rule} at {place}" for rule, place in gone if rule not in silent]
    return "\n".join(sorted([*lines, *(f"+ {rule} at {place}" for rule, place in new)]))


def silenced(before: Found, after: Found, done: Sequence[Step]) -> list[str]:
    """The rules whose findings went as they may."""
    gone, _ = changed(before, after, done)
    silent = _may_be_silent(done)
    return sorted(rule for rule, _ in gone if rule in silent)


def _may_be_silent(done: Sequence[Step]) -> set[str]:
    return {rule for step in done for rule in MAY_BE_SILENT.get(step.name, ())}


def changed(
    before: Found, after: Found, done: Sequence[Step]
) -> tuple[list[Finding], list[Finding]]:
    """The findings that went and came, but those told at a call of the function they are in."""
    gone, new = list(before - after), list(after - before)
    if any(step.name in (*MOVING, *HIDING) for step in done):
        for rule in {rule for rule, _ in gone}:
            theirs = [each for each in gone if each[0] == rule]
            ours = [each for each in new if each[0] == rule]
            for old, moved in zip(theirs, ours, strict=False):
                gone.remove(old)
                new.remove(moved)
    return gone, new
