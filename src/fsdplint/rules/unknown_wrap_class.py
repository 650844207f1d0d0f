"""Classes to wrap whose names are misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.configs.accelerate import AccelerateConfig
from fsdplint.configs.launch_lines import LaunchScript
from fsdplint.configs.nodes import Scalar
from fsdplint.configs.readers import Readers
from fsdplint.configs.trainer import TrainerSettings
from fsdplint.configs.wrap_classes import Named, in_config, in_launch, in_node, in_trainer
from fsdplint.engine.facts.plugins import classes_to_wrap
from fsdplint.engine.facts.training_arguments import training_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity, Span
from fsdplint.knowledge.transformers_layers import Misspelt, misspelt, releases
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD909",
    summary="a wrap policy names a class that transformers and the project do not have",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="Another package may have a class of such a name; few findings are judged.",
)


def reports(program: Program) -> Iterator[Report]:
    """Yield the reports on calls."""
    for settings in training_arguments(program):
        yield from trainer_reports(settings)
    for tree, text in classes_to_wrap(program):
        node = Scalar(text.start, text.end, text.value, "")
        yield from _reports(in_node(tree.path, tree.text, node))


def config_reports(config: AccelerateConfig) -> Iterator[Report]:
    """Yield a report for each name that is misspelt."""
    yield from _reports(in_config(config))


def trainer_reports(settings: TrainerSettings) -> Iterator[Report]:
    """Yield a report for each name that is misspelt."""
    yield from _reports(in_trainer(settings))


def launch_reports(script: LaunchScript) -> Iterator[Report]:
    """Yield a report for each name that is misspelt."""
    yield from _reports(in_launch(script))


def _reports(names: Iterable[Named]) -> Iterator[Report]:
    for named in names:
        found = misspelt(named.name)
        if found and not _is_elsewhere(named, found):
            yield _report(named, found)


def _is_elsewhere(named: Named, found: Misspelt) -> bool:
    """Return whether the project, or a model that it loads with its code, may have the class."""
    readers = Readers()
    if readers.may_define(named.path, named.name):
        return True
    return not found.is_sure and readers.may_load_remote_code(named.path)


def _report(named: Named, found: Misspelt) -> Report:
    first, last = releases()
    span = Span(named.path, named.start, named.end)
    fix = Fix(f"wrap `{found.name}`", Safety.UNSAFE, (Edit(span, found.name),))
    return Report(
        span,
        f"neither transformers {first} to {last} nor this project has a class `{named.name}`; did "
        f"you mean `{found.name}`? Wrapping the model fails on every rank",
        "names no class",
        (),
        lambda: fix,
    )
