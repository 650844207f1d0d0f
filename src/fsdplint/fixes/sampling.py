"""Fixes that divide the data between ranks and shuffle it in each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fsdplint.engine import ir
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
    """A loop over epochs, and the expression for the sampler in it.

    Attributes:
        safety: unsafe where reading the sampler may raise an error, or a test may mislead.
    """

    code: Code
    loop: ir.For
    sampler: str
    asking: Asking = Asking.NOTHING
    safety: Safety = Safety.SAFE


def epochs_of(
    code: Code, loop: ir.For | ir.While, loader: str | None, holder: str = "sampler"
) -> Epochs | Declined:
    """Return the loop over epochs with the expression for the sampler of its loader."""
    if not isinstance(loop, ir.For):
        return Declined(
            "a `while` loop runs the epochs; call `set_epoch` with their number by hand"
        )
    if loader is None:
        return Declined("no variable of the epoch loop holds the loader; call `set_epoch` by hand")
    return Epochs(code, loop, f"{loader}.{holder}")


@builder
def set_epoch(epochs: Epochs) -> Fix:
    """Call ``set_epoch`` at the start of each epoch."""
    require_exact(epochs.code)
    imports = Imports(epochs.code, epochs.loop)
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
    code, loop = epochs.code, epochs.loop
    counter = code.slice(loop.target)
    if not isinstance(loop.target, (ir.Name, ir.Attribute, ir.Subscript)) or counter == "_":
        raise NoFixError(
            "the epoch loop has no counter variable; add one and call `set_epoch` by hand"
        )
    if not _counts(loop.iterable):
        raise NoFixError(
            f"`{code.short(loop.iterable)}` does not count the epochs; call `set_epoch` by hand"
        )
    first = loop.body[0]
    if not code.starts_line(first):
        raise NoFixError(f"`{code.short(loop)}` is on one line; call `set_epoch` by hand")
    indent, newline = code.indentation(first), code.newline
    test = _test(epochs, imports)
    line = f"{epochs.sampler}.set_epoch({counter}){newline}"
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
