"""Fixes that divide the data between ranks and shuffle it in each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import name_in
from fsdplint.engine.facts.training_loops import (
    Training,
    begun_name,
    is_repeated,
    loader_name,
)
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder, require_exact
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.data import DATA


class Asking(Enum):
    """What a fix has to test about a sampler before it calls ``set_epoch``."""

    NOTHING = "it is a distributed one wherever the loop runs"
    NONE = "it is a distributed one or None"
    CLASS = "it may be of another class"
    ATTRIBUTE = "the object that holds it may have none"


@dataclass(frozen=True, slots=True)
class Epochs:
    """Where each epoch begins, and what is called there.

    Attributes:
        first: the statement that each epoch begins with.
        number: the expression for the number of the epoch.
        safety: unsafe where reading the sampler may raise an error, or a test may mislead.
    """

    code: Code
    first: ir.Stmt
    sampler: str
    number: str
    asking: Asking = Asking.NOTHING
    safety: Safety = Safety.SAFE


def epochs_of(
    program: Program, training: Training, holder: str = "sampler", sampler: Site | None = None
) -> Epochs | Declined:
    """Return where the epochs of a training begin.

    That is where a loop numbers all of them, if there is one that knows the sampler. Else it is
    where the loader begins, and the sampler itself has their number.

    Args:
        holder: the attributes that lead from the loader to the sampler.
        sampler: where the sampler is created, if it is.
    """
    loop = training.epochs
    if loop is not None and not is_repeated(program, training):
        path, node = loop
        code, held = Code.of(program.tree(path)), loader_name(program, training, loop)
        name, counter = _named(program, sampler, held, holder, loop), _counter(code, node)
        if name and counter:
            return _beginning(code, node.body[0], name, counter)
    site = training.loop.site
    code, held = Code.of(program.tree(site.path)), begun_name(program, training)
    name = _named(program, sampler, held, holder, (site.path, site.node))
    if name is None:
        return Declined("no variable holds the loader where it begins; call `set_epoch` by hand")
    return _beginning(code, code.statement(site.node), name, f"{name}.epoch + 1")


def _named(
    program: Program, made: Site | None, loader: str | None, holder: str, at: tuple[str, ir.Node]
) -> str | None:
    """Return what a sampler is called at a node of a file: by its own name, or its loader's."""
    own = name_in(program, made, *at) if made is not None else None
    return own or (loader and f"{loader}.{holder}")


def _beginning(code: Code, first: ir.Stmt, sampler: str, number: str) -> Epochs | Declined:
    if not code.starts_line(first):
        return Declined(f"`{code.short(first)}` does not start a line; call `set_epoch` by hand")
    return Epochs(code, first, sampler, number)


def _counter(code: Code, loop: ir.For | ir.While) -> str | None:
    """Return the variable that a loop over epochs counts them with."""
    if not isinstance(loop, ir.For) or not _counts(loop.iterable):
        return None
    counter = code.slice(loop.target)
    named = isinstance(loop.target, (ir.Name, ir.Attribute, ir.Subscript)) and counter != "_"
    return counter if named else None


@builder
def set_epoch(epochs: Epochs) -> Fix:
    """Call ``set_epoch`` at the start of each epoch."""
    require_exact(epochs.code)
    imports = Imports(epochs.code, epochs.first)
    edit = epoch_edit(epochs, imports)
    title = f"call `{epochs.sampler}.set_epoch` at the start of each epoch"
    return Fix(title, epochs.safety, (edit, *imports.edits()))


@builder
def sample_by_rank(code: Code, loader: ir.Call, shuffle: bool, epochs: Epochs | None) -> Fix:
    """Give a loader a distributed sampler of its dataset, instead of ``shuffle``."""
    if any(argument.star for argument in loader.args) or not loader.args:
        raise NoFixError(
            f"`{code.short(loader)}` unpacks its arguments; add a `DistributedSampler` by hand"
        )
    dataset = _dataset(code, loader)
    imports = Imports(code, loader)
    name = imports.name(DATA, "DistributedSampler")
    sampler = f"sampler={name}({dataset}{'' if shuffle else ', shuffle=False'})"
    edits = [_sampler_argument(code, loader, sampler), *imports.edits()]
    if epochs is not None:
        edits.append(epoch_edit(epochs, imports))
    return Fix(
        "divide the dataset between ranks with a `DistributedSampler`", Safety.UNSAFE, tuple(edits)
    )


def _dataset(code: Code, loader: ir.Call) -> str:
    given = [a for a in loader.args if a.keyword == "dataset"] or list(loader.args[:1])
    name = dotted(given[0].value)
    if name is None:
        raise NoFixError(
            f"`{code.short(given[0].value)}` has no variable; assign it to one and add a "
            "`DistributedSampler` by hand"
        )
    return name


def _sampler_argument(code: Code, loader: ir.Call, sampler: str) -> Edit:
    """Put ``sampler`` in the place of ``shuffle`` or of a None sampler, else at the end."""
    if sum(argument.keyword is None for argument in loader.args) > 2:
        raise NoFixError(
            f"`{code.short(loader)}` passes `shuffle` by position; replace it with a "
            "`DistributedSampler` by hand"
        )
    replaced = [a for a in loader.args if a.keyword in ("shuffle", "sampler")]
    if len(replaced) > 1:
        raise NoFixError(
            f"`{code.short(loader)}` sets both `shuffle` and `sampler`; replace them with a "
            "`DistributedSampler` by hand"
        )
    if replaced:
        return code.edit(replaced[0].start, replaced[0].end, sampler)
    return add_argument(code, loader, sampler)


def epoch_edit(epochs: Epochs, imports: Imports) -> Edit:
    """Return the edit that calls ``set_epoch`` first in each epoch."""
    code, first = epochs.code, epochs.first
    test = _test(epochs, imports)
    indent, newline = code.indentation(first), code.newline
    line = f"{epochs.sampler}.set_epoch({epochs.number}){newline}"
    lines = f"{indent}if {test}:{newline}{indent}{code.unit}{line}" if test else indent + line
    return code.insert_lines(code.extent(first)[0], lines)


def _test(epochs: Epochs, imports: Imports) -> str:
    """Return the condition under which the sampler has a ``set_epoch``, "" if it always has."""
    if epochs.asking is Asking.NOTHING:
        return ""
    if epochs.asking is Asking.NONE:
        return f"{epochs.sampler} is not None"
    name = imports.name(DATA, "DistributedSampler")
    owner, _, attribute = epochs.sampler.rpartition(".")
    asked = epochs.sampler
    if epochs.asking is Asking.ATTRIBUTE and owner:
        asked = f'getattr({owner}, "{attribute}", None)'
    return f"isinstance({asked}, {name})"


def _counts(iterable: ir.Expr) -> bool:
    """True if a loop counts: over ``range(n)``, also inside a progress bar."""
    while isinstance(iterable, ir.Call):
        name = dotted(iterable.func) or ""
        if name == "range":
            return True
        if not iterable.args or name.rpartition(".")[2] not in ("tqdm", "trange", "track"):
            return False
        if name.endswith("trange"):
            return True
        iterable = iterable.args[0].value
    return False
