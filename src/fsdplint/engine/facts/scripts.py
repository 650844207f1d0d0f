"""The script that a path is one through, and whether all of its program is known."""

from __future__ import annotations

from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.engine.project.relevance import import_closure, imported_files, modules_meant
from fsdplint.finding import TOP_LEVEL
from fsdplint.knowledge.packages import (
    is_library_without_groups,
    leaves_groups,
    names_set_up,
    sets_up,
    writes_set_up,
)

_MAIN = "__main__"


def script_of(program: Program, trace: Trace, site: Site) -> str | None:
    """The script that runs ``site`` on a path, be the path one of a test that calls its main."""
    if trace.entry == TOP_LEVEL:
        return trace.path
    for path, node in site.frames():
        tree = program.tree(path)
        function = tree.function(node)
        guard = tree.main_guard
        names = [each for each in ir.walk(guard) if isinstance(each, ir.Name)] if guard else []
        if function is not None and any(name.id == function.name for name in names):
            return path
    return None


def is_run(program: Program, trace: Trace, path: str) -> bool:
    """Whether a file is run by its name: it says so, or it trains and no other file imports it."""
    if Path(path).name == "__main__.py" or program.tree(path).main_guard is not None:
        return True
    if Path(path).name == "__init__.py" or not trace.calls("step"):
        return False
    others = (Path(unit.path) for unit in program.units if unit.path != path)
    return not any(Path(path) in imported_files(program.project, other) for other in others)


def is_used_alone(program: Program, path: str) -> bool:
    """Whether a script uses a file, and neither it nor what it imports sets a process group up."""
    project = program.project
    for script in program.files:
        if _MAIN in (project.read(script) or "") and not project.is_test(str(script)):
            files = import_closure(project, script)
            texts = (project.read(each) or "" for each in files)
            if Path(path) in files and not any(map(names_set_up, texts)):
                return True
    return False


def whole_program(program: Program, script: str) -> list[Tree] | None:
    """All files of a script's program, if no other code sets process groups or devices up or down.

    None for tests and notebooks, which others run.
    """
    path = Path(script)
    if path.suffix != ".py" or program.project.is_test(script):
        return None
    files = import_closure(program.project, path)
    if any(writes_set_up(program.project.read(file) or "") for file in files):
        return None
    units = [program.project.unit(file) for file in files]
    trees = [program.tree(unit.path) for unit in units if unit is not None]
    if len(trees) < len(files):
        return None
    return trees if all(_is_known(program, tree) for tree in trees) else None


def _is_known(program: Program, tree: Tree) -> bool:
    """Whether all that a file imports is the program's own or leaves process groups alone.

    Or whether it is of a library that does, whose examples are the program.
    """
    folder = Path(tree.path).parent
    if _is_library(program, folder):
        return True
    for node in tree.imports:
        if isinstance(node, ir.ImportFrom):
            root = node.module.split(".")[0]
            if any(sets_up(root, name) for name, _ in node.names):
                return False
        for modules, level in modules_meant(node):
            found = any(program.project.find(module, level, folder) for module in modules)
            if not found and (level or not leaves_groups(modules[0].split(".")[0])):
                return False
    return True


def _is_library(program: Program, folder: Path) -> bool:
    """Whether a folder is of a library's package that leaves process groups alone."""
    return any(
        is_library_without_groups(each.name)
        and program.project.find(each.name, 0, each.parent) == each / "__init__.py"
        for each in (folder, *folder.parents)
    )
