"""Start a one-GPU program as one rank of several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.must.definitions import binds
from fsdplint.finding import Edit, Span
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.ddp import CLASS
from fsdplint.knowledge.frameworks import framework
from fsdplint.knowledge.launch import INIT, PARSES
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.sharding import sharding_lines
from fsdplint.migrate.single.anchors import Anchor, anchors, optimizers
from fsdplint.migrate.step import Change, Context, Found, Kept, attempt, kept

_DEFINITIONS = (ir.Import, ir.ImportFrom, ir.FunctionDef, ir.ClassDef)
_NO_OPTIMIZER = (
    "no optimizer shows that is built from the parameters of the model; create the process group "
    "and call `fully_shard` before that by hand"
)
_DISTRIBUTED = (INIT, CLASS)


def is_distributed(context: Context) -> bool:
    """True if the program starts ranks already, as this migration leaves it."""
    for code in context.codes("init_process_group", "DistributedDataParallel", "accelerate"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) in _DISTRIBUTED:
                return True
    return False


def launch(context: Context) -> Iterator[Found]:
    """Yield a change that creates the process group and shards each model before its optimizer."""
    if is_distributed(context):
        return
    frameworks = list(_frameworks(context))
    if frameworks:
        yield from frameworks
        return
    found: list[Anchor] = []
    for code, optimizer in optimizers(context):
        if is_of_another_script(context, code, optimizer):
            continue
        try:
            found += anchors(context, code, optimizer)
        except NoFixError as reason:
            yield kept(code, optimizer, reason)
            return
    if found:
        yield from attempt(found[0].code, found[0].use, partial(_together, context, found))
    else:
        yield from _untouched(context)


def _untouched(context: Context) -> Iterator[Kept]:
    """Yield the backward pass of a program that builds no optimizer in a known way."""
    for code in context.codes(".backward("):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and ir.last_name(node.func) == "backward":
                yield kept(code, node, _NO_OPTIMIZER)
                return


def is_of_another_script(context: Context, code: Code, node: ir.Node) -> bool:
    """True if a place runs only where its file is the script, which is not to be migrated."""
    guard = code.main_guard
    return guard is not None and _covers(guard, node) and code.path not in context.given


def _frameworks(context: Context) -> Iterator[Kept]:
    """Yield each object that moves its program to several GPUs by settings of its own."""
    for code in context.codes("Accelerator", "Fabric", "Trainer"):
        for node in ir.walk(code.module):
            name = context.name(code, node.func) if isinstance(node, ir.Call) else ""
            if framework(name) is not None:
                yield kept(code, node, f"`{name}` can shard the model itself; turn that on by hand")


def _together(context: Context, found: Sequence[Anchor]) -> Change:
    """Return one change, since the program would look migrated with only a part of it."""
    first, others = _set_up(context, found), list(_shards(found))
    every = (first, *others)
    what = "; ".join(each.what for each in (*others, first))
    edits = tuple(edit for each in every for edit in each.edits)
    imports = tuple(item for each in every for item in each.imports)
    return Change(first.span, what, edits, imports, first.differs)


def _shards(found: Sequence[Anchor]) -> Iterator[Change]:
    seen: set[tuple[str, ir.Node, str]] = set()
    for anchor in sorted(found, key=lambda each: (each.code.path, each.use.start)):
        code = anchor.code
        scope = code.path, code.scope(anchor.use), anchor.model
        if scope in seen:
            continue
        seen.add(scope)
        imports = Imports(code, anchor.use)
        lines = sharding_lines(code, imports, anchor.model)
        edit = _inserted(code, _before_choices(anchor), lines)
        what = f"shard `{anchor.model}` with `fully_shard` before its optimizer is built"
        span = code.span(anchor.use)
        yield Change(span, what, (edit,), (imports,))


def _before_choices(anchor: Anchor) -> ir.Stmt:
    """Return the statement to shard before: once, and for all arms that use the model."""
    code, place = anchor.code, anchor.statement
    use = re.compile(rf"(?<![.\w]){re.escape(anchor.model)}\.(named_)?parameters\(")
    for around in code.ancestors(anchor.statement):
        if isinstance(around, ir.Function):
            break
        if isinstance(around, (ir.For, ir.While)):
            if any(binds(code, node, anchor.model) for node in ir.walk(around)):
                break
            place = around
        if isinstance(around, ir.If):
            arms = around.body, around.orelse
            others = [arm for arm in arms if not any(_covers(s, anchor.use) for s in arm)]
            if any(use.search(code.slice(each)) for arm in others for each in arm):
                place = around
    return place


def _covers(statement: ir.Stmt, node: ir.Node) -> bool:
    return statement.start <= node.start < statement.end


def _inserted(code: Code, statement: ir.Stmt, lines: Sequence[str]) -> Edit:
    indent = code.indentation(statement)
    at, _ = code.extent(statement)
    return code.insert_lines(at, "".join(indent + line + code.newline for line in lines))


def _set_up(context: Context, found: Sequence[Anchor]) -> Change:
    """Create the process group and choose the rank's GPU, before the first work of the script."""
    code = _script(context, found)
    place = _place(context, code, found)
    imports = Imports(code, place)
    torch, os = imports.module("torch", "torch"), imports.module("os", "os")
    dist = imports.module(DISTRIBUTED, "dist")
    lines = [
        f"if {torch}.cuda.is_available():",
        f'{code.unit}{torch}.cuda.set_device(int({os}.environ["LOCAL_RANK"]))',
        f"{dist}.init_process_group()",
    ]
    name = Path(code.path).name
    what = (
        "create the process group and choose each rank's GPU; start the script with "
        f"`torchrun --nproc-per-node GPUS {name}`"
    )
    edits = [
        _started(context, code, place, lines),
        *_at_the_end(code, place, f"{dist}.destroy_process_group()"),
    ]
    differs = _others(context, code, found)
    span = Span(code.path, place.start, place.start)
    return Change(span, what, tuple(edits), (imports,), differs)


def _started(context: Context, code: Code, place: ir.Stmt, lines: Sequence[str]) -> Edit:
    """Insert ``lines`` before ``place``, right below what reads the command line if it does."""
    above = [each for each in code.block(place).statements if each.end <= place.start][-1:]
    if not above or not any(_parses(context, node) for node in ir.walk(above[0])):
        return _inserted(code, place, lines)
    indent, at = code.indentation(place), code.after(above[0])
    return code.insert_lines(at, "".join(indent + line + code.newline for line in lines))


def _at_the_end(code: Code, place: ir.Stmt, line: str) -> Iterator[Edit]:
    """Insert ``line`` below the last statement of the block of ``place``."""
    last = code.block(place).statements[-1]
    if not isinstance(last, (ir.Return, ir.Raise)) and code.ends_line(last):
        text = f"{code.indentation(place)}{line}{code.newline}"
        yield code.insert_lines(code.after(last), text)


def _others(context: Context, script: Code, found: Sequence[Anchor]) -> str:
    """Return a sentence on other scripts that use files which shard their model now."""
    stems = {Path(a.code.path).stem for a in found if a.code is not script}
    names = []
    for path in context.program.files:
        text = context.program.project.read(path) or ""
        if path.as_posix() != script.path and "__main__" in text and "__name__" in text:
            imported = (name for name, _ in context.program.project.imports(path).modules)
            if any(stem in name.split(".") for name in imported for stem in stems):
                names.append(f"`{path.name}`")
    needs = "needs" if len(names) == 1 else "need"
    return f"{', '.join(names)} {needs} a process group now, too" if names else ""


def _script(context: Context, found: Sequence[Anchor]) -> Code:
    """Return the file that is run: one that trains at its top level, or has a main guard."""
    top = {a.code.path: a.code for a in found if a.code.function(a.use) is None}
    if len(top) == 1:
        return next(iter(top.values()))
    guarded = [c for c in context.codes("__main__") if c.main_guard is not None]
    given = [code for code in guarded if code.path in context.given]
    guarded = given if len(given) == 1 else guarded
    if len(guarded) > 1:
        names = " and ".join(sorted(f"`{Path(code.path).name}`" for code in guarded))
        raise NoFixError(f"{names} are scripts; migrate the files of one of them at a time")
    if not guarded:
        raise NoFixError('no file has `if __name__ == "__main__":`; add it to the script by hand')
    return guarded[0]


def _place(context: Context, code: Code, found: Sequence[Anchor]) -> ir.Stmt:
    """Return the statement to set up before: after the command line has been read, if it is."""
    guard = code.main_guard
    own = [anchor for anchor in found if anchor.code is code]
    early = guard is None or any(
        code.function(a.use) is None and a.use.start < guard.start for a in own
    )
    if early or guard is None:
        return _after_parsing(context, [s for s in code.module.body if not _is_quiet(s)])
    body = guard.body
    (only, *others) = body
    called = only.value if isinstance(only, ir.Expression) and not others else None
    if isinstance(called, ir.Call) and isinstance(called.func, ir.Name):
        name = called.func.id
        defined = [s for s in code.module.body if isinstance(s, ir.FunctionDef)]
        mains = [each.function for each in defined if each.function.name == name]
        if len(mains) == 1:
            body = tuple(s for s in mains[0].body if not _is_docstring(s))
    return _after_parsing(context, body)


def _is_docstring(statement: ir.Stmt) -> bool:
    return isinstance(statement, ir.Expression) and isinstance(statement.value, ir.Constant)


def _is_quiet(statement: ir.Stmt) -> bool:
    if isinstance(statement, _DEFINITIONS) or _is_docstring(statement):
        return True
    return not any(isinstance(node, ir.Call) for node in ir.walk(statement))


def _after_parsing(context: Context, body: Sequence[ir.Stmt]) -> ir.Stmt:
    """Return the first statement after the one that reads the command line, or the first at all."""
    for index, statement in enumerate(body[:-1]):
        if any(_parses(context, node) for node in ir.walk(statement)):
            return body[index + 1]
    if not body:
        raise NoFixError("the script does nothing; call its training there by hand")
    return body[0]


def _parses(context: Context, node: ir.Node) -> bool:
    """True for a call that reads the command line, or of a function that does."""
    if not isinstance(node, ir.Call):
        return False
    name = ir.last_name(node.func)
    if name in PARSES or not isinstance(node.func, ir.Name):
        return name in PARSES
    functions = (f for code in context.codes(f"def {name}(") for f in code.functions)
    inner = (n for f in functions if f.name == name for each in f.body for n in ir.walk(each))
    return any(isinstance(n, ir.Call) and ir.last_name(n.func) in PARSES for n in inner)
