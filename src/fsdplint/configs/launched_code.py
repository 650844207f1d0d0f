"""What the Python file of a launch line certainly does in each run, as its text alone shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from fsdplint.configs.launch_lines import Launch, LaunchScript
from fsdplint.configs.launched import python_file
from fsdplint.engine import ir
from fsdplint.engine.frontend.lower import lower
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.project.imports import Imports, imports
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.knowledge.launch import ENDS_PROCESS
from fsdplint.knowledge.names import canonical


@dataclass(frozen=True)
class LaunchedCode:
    """A Python file that a launch line runs."""

    tree: Tree
    imports: Imports

    def name_of(self, function: ir.Expr) -> str:
        """Return the canonical name of an imported function, "" if it is no such function."""
        parts: list[str] = []
        while isinstance(function, ir.Attribute):
            parts.insert(0, function.attr)
            function = function.value
        binding = self.imports.bindings.get(function.id) if isinstance(function, ir.Name) else None
        if binding is None or binding[1]:
            return ""
        module, _, member = binding
        return canonical(".".join((module, *([member] if member else []), *parts)))

    @cached_property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Every node of the file."""
        return tuple(ir.walk(self.tree.module))

    @cached_property
    def calls(self) -> tuple[ir.Call, ...]:
        """The calls that each run makes, unless an earlier one of them ends it."""
        run = _Run(self)
        run.suite(self.tree.module.body)
        return tuple(run.calls)

    @cached_property
    def functions(self) -> dict[str, ir.Function]:
        """The functions of the file that a name certainly refers to."""
        own = [each.function for each in self.tree.module.body if isinstance(each, ir.FunctionDef)]
        bound = [name for node in self.nodes for name in ir.names_bound(node)]
        bound += [
            target.id
            for node in self.nodes
            if isinstance(node, ir.Assign)
            for target in node.targets
            if isinstance(target, ir.Name)
        ]
        return {f.name: f for f in own if bound.count(f.name) == 1 and not f.decorators}


def launched_code(script: LaunchScript, launch: Launch, *words: str) -> LaunchedCode | None:
    """Return the Python file that a launch line runs, None if it is unknown.

    Args:
        words: texts of which the file has to have each.
    """
    path = python_file(script, launch)
    text = script.readers.text(path) if path else None
    if text is None or not all(word in text for word in words):
        return None
    try:
        return LaunchedCode(Tree(path, text, lower(text, path)), imports(text, {}))
    except (InvalidSyntax, TooDemanding):
        return None


class _End(Enum):
    """How statements may end before the last one."""

    NEVER = auto()
    RETURN = auto()
    EXIT = auto()


@dataclass
class _Run:
    """A run of the file, as far as nothing decides how it goes on."""

    code: LaunchedCode
    calls: list[ir.Call] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)

    def suite(self, statements: tuple[ir.Stmt, ...]) -> _End:
        for statement in statements:
            end = self.statement(statement)
            if end is not _End.NEVER:
                return end
        return _End.NEVER

    def statement(self, node: ir.Stmt) -> _End:
        match node:
            case ir.FunctionDef() | ir.ClassDef() | ir.Import() | ir.ImportFrom():
                return _End.NEVER
            case ir.If() if not self.inside and ir.is_main_guard(node):
                return self.suite(node.body)
            case ir.With():
                # A context manager may handle exceptions of its body.
                first: tuple[ir.Expr, ...] = tuple(item.value for item in node.items)
            case ir.If() | ir.While():
                first = (node.test,)
            case ir.For():
                first = (node.iterable,)
            case ir.Match():
                first = (node.subject,)
            case ir.Try():
                first = ()
            case ir.Return():
                ends = node.value is not None and self.expressions(node.value)
                return _End.EXIT if ends else _End.RETURN
            case ir.Raise():
                return _End.EXIT
            case _:
                own = [each for each in ir.children(node) if not isinstance(each, ir.Function)]
                return _End.EXIT if self.expressions(*own) else _End.NEVER
        return _End.EXIT if self.expressions(*first) else self.may_end(node)

    def may_end(self, node: ir.Stmt) -> _End:
        """Return how a statement may end that is followed in one of several ways."""
        below = list(ir.walk_scope(node))
        if any(isinstance(each, ir.Raise) for each in below):
            return _End.EXIT
        called = [each for each in below if isinstance(each, ir.Call)]
        if any(self.may_exit(call, []) for call in called):
            return _End.EXIT
        returns = any(isinstance(each, ir.Return) for each in below)
        return _End.RETURN if returns else _End.NEVER

    def may_exit(self, call: ir.Call, seen: list[str]) -> bool:
        """Return whether a call may end the process, here or in a function of the file."""
        if ir.last_name(call.func) in ENDS_PROCESS:
            return True
        name = call.func.id if isinstance(call.func, ir.Name) else ""
        function = self.code.functions.get(name)
        if function is None or name in seen:
            return False
        below = (each for each in ir.walk(function) if isinstance(each, (ir.Call, ir.Raise)))
        return any(
            isinstance(each, ir.Raise) or self.may_exit(each, [*seen, name]) for each in below
        )

    def expressions(self, *nodes: ir.Node) -> bool:
        """Note the calls in expressions, and return whether one of them may end the run."""
        return any(self.call(call) for node in nodes for call in _calls(node))

    def call(self, call: ir.Call) -> bool:
        self.calls.append(call)
        if ir.last_name(call.func) in ENDS_PROCESS:
            return True
        name = call.func.id if isinstance(call.func, ir.Name) else ""
        function = self.code.functions.get(name)
        if function is None or name in self.inside or function.is_generator:
            return False
        self.inside.append(name)
        end = self.suite(function.body)
        self.inside.pop()
        return end is _End.EXIT


def _calls(node: ir.Node) -> Iterator[ir.Call]:
    """Yield the calls that an expression certainly makes, the inner ones first."""
    match node:
        case ir.Lambda() | ir.Function() | ir.Comprehension():
            return
        case ir.Conditional():
            below: list[ir.Node] = [node.test]
        case ir.BoolOp():
            below = [node.left]
        case _:
            below = ir.children(node)
    for each in below:
        yield from _calls(each)
    if isinstance(node, ir.Call):
        yield node
