"""Launch, process group, device and mesh: what has to be right before any module is sharded."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule, declare

RULES: tuple[Rule, ...] = (
    declare(
        "device-not-set",
        "FSD101",
        summary="every process of a node computes on its first device",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "global-rank-as-device",
        "FSD102",
        summary="the rank among all nodes chooses the device of a node",
        severity=Severity.WARNING,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "local-rank-argument",
        "FSD103",
        summary="the local rank is an option, which torchrun does not pass",
        severity=Severity.ERROR,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "process-group-arguments",
        "FSD104",
        summary="a process group cannot come up as it is asked for",
        severity=Severity.ERROR,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "file-init-reused",
        "FSD105",
        summary="processes meet by a file that an earlier run may have left",
        severity=Severity.WARNING,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "cpu-offload-without-cpu-backend",
        "FSD106",
        summary="gradients that are kept on the CPU have no backend there",
        severity=Severity.ERROR,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "process-group-not-destroyed",
        "FSD107",
        summary="a script ends with its process group up",
        severity=Severity.NOTE,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "mesh-arguments",
        "FSD108",
        summary="a device mesh is made with arguments that it cannot have",
        severity=Severity.ERROR,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "mesh-dimension-roles",
        "FSD109",
        summary="a mesh's dimensions are used for something else than their names say",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "device-map-auto",
        "FSD110",
        summary="every rank spreads a model over all GPUs of its node before it is sharded",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
)
