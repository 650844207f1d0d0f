"""Plans of migrations, for the tests of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import Plan, make_plan
from fsdplint.migrate.step import Migration, Question


def plan_of(
    migration: Migration, folder: Path, text: str, answers: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan for a script with ``text`` in a project of its own."""
    (folder / "pyproject.toml").touch()
    (folder / "train.py").write_text(text, "utf-8")
    return make_plan(migration, [str(folder / "train.py")], answers or {})


def answered(migration: Migration, path: Path, **topics: str) -> Plan:
    """Return the plan for a file, with answers by topic, or else the first choice."""
    known: dict[str, str] = {}
    while (plan := make_plan(migration, [str(path)], known)).of(Question):
        for entry in plan.of(Question):
            assert isinstance(entry.found, Question)
            topic = entry.found.topic.replace("-", "_")
            known[entry.key] = topics.get(topic, entry.found.choices[0])
    return plan


def only_change(plan: Plan) -> str:
    """Return the only changed file, of a plan that is complete."""
    assert plan.is_complete, ([entry.found for entry in plan.entries], plan.new)
    ((_, after),) = plan.files
    return after.text


def planned(folder: Path, files: dict[str, str], *given: str, **answers: str) -> Plan:
    """Return the plan for the first file, or the given ones, of a project of these files."""
    (folder / "pyproject.toml").touch()
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    paths = [str(folder / name) for name in given or [*files][:1]]
    known: dict[str, str] = {}
    while True:
        plan = make_plan(FSDP2, paths, known)
        topics = {entry.key: entry.key.rpartition(":")[2] for entry in plan.of(Question)}
        if not topics or not answers.keys() >= set(topics.values()):
            return plan
        known |= {key: answers[topic] for key, topic in topics.items()}


def migrated(plan: Plan) -> dict[str, str]:
    """Return the changed files by name, of a plan that is complete."""
    assert plan.is_complete, [*(entry.found for entry in plan.entries), *plan.new]
    return {Path(after.path).name: after.text for _, after in plan.files}
