"""What a rank observes while the script runs: one event each, as `journal` records them.

Sizes are in elements unless they say bytes; places are lines of the user's own code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FAILED = ("crash", "exit", "unmappable")
"""Ways in which a script fails."""


@dataclass(frozen=True, slots=True)
class Event:
    """Anything that a rank observes; `journal` finds its class by name in this module."""


_CELL = re.compile(r"(?P<file>.+\.ipynb):cell (?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code; `path` is relative to the working directory if it lies there.

    In a notebook, it ends with the cell, as in ``train.ipynb:cell 3``, and the line is the cell's.
    """

    path: str
    line: int
    function: str = ""

    @property
    def file(self) -> str:
        """The path without the cell."""
        cell = _CELL.fullmatch(self.path)
        return cell["file"] if cell else self.path

    @property
    def cell(self) -> int | None:
        """The cell of a notebook, counted from 1 among all its cells; None elsewhere."""
        cell = _CELL.fullmatch(self.path)
        return int(cell["number"]) if cell else None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The first event of a rank.

    Attributes:
        shimmed: CUDA is mapped to the CPU.
        loading: seconds from the process's start until the script's first line.
    """

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    pid: int
    torch: str
    device: str
    shimmed: bool
    loading: float


@dataclass(frozen=True, slots=True)
class Options(Event):
    """The script's own options that are whole numbers and, by their names, sizes."""

    names: tuple[str, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shrunk(Event):
    """``--shrink`` made fields of a model's configuration smaller."""

    cls: str
    names: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupMade(Event):
    """``init_process_group`` returned."""

    backend: str
    rank: int
    world_size: int
    place: Place | None


@dataclass(frozen=True, slots=True)
class ErrorHandled(Event):
    """An exception whose handler destroys the process group; nothing else shows it."""

    kind: str
    message: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class ProcessStarted(Event):
    """The script started a process that runs one of its functions; verify cannot observe it."""

    function: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Sharded(Event):
    """A module became an FSDP unit.

    Attributes:
        unit: counts the units of this rank.
        api: ``fsdp1`` or ``fsdp2``.
        inside: the innermost module around this one that was already a unit, or None.
        lost: elements of the parameters that units around this one already owned.
        total: elements of all parameters under the module.
    """

    unit: int
    cls: str
    api: str
    place: Place | None
    inside: int | None
    lost: int
    total: int


@dataclass(frozen=True, slots=True)
class Original:
    """A parameter that FSDP1 has flattened into another one."""

    name: str
    elements: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter as it is at the first optimizer step.

    Attributes:
        name: its fully qualified name in its model.
        shape: of the whole tensor.
        local_shape: of this rank's part; equal to `shape` where it is not sharded.
        size: bytes of one element.
        placements: e.g. ``("Shard(0)",)``; empty for a plain tensor.
        mesh: the mesh's shape; `coordinate`: this rank's place in it.
        flat: for FSDP1's flat parameters, how many original parameters it holds.
        held: the optimizers (by number) that hold it.
        ranks: of the mesh, in its order; empty where there is none.
        originals: for FSDP1's flat parameters, the names and elements of what it holds.
    """

    name: str
    shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    dtype: str
    size: int
    placements: tuple[str, ...]
    mesh: tuple[int, ...]
    mesh_names: tuple[str, ...]
    coordinate: tuple[int, ...]
    trainable: bool
    ignored: bool
    held: tuple[int, ...]
    flat: int = 0
    ranks: tuple[int, ...] = ()
    originals: tuple[Original, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """One FSDP unit of a model.

    Attributes:
        name: in the model; empty for the root. Of several modules, the first one's.
        cls: the class, or classes.
        parameters: its own.
        ranks: over how many ranks FSDP divides them; 0 where unknown.
        others: the names of the other modules that ``fully_shard`` was given with it.
    """

    name: str
    cls: str
    api: str
    number: int
    parameters: tuple[Parameter, ...]
    ranks: int = 0
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tie:
    """Parameters that were one object when last assigned or sharded, and whether they still are."""

    names: tuple[str, ...]
    alive: bool


@dataclass(frozen=True, slots=True)
class Snapshot(Event):
    """A model with FSDP units in it, at a rank's first optimizer step (or at the end without one).

    Attributes:
        model: counts the models of this rank.
        outside: parameters that belong to no unit.
        repeated: per container of like blocks (a ModuleList …) its name and the blocks' names.
        devices: where its parameters live.
        step: optimizer steps done when it was taken.
    """

    model: int
    cls: str
    units: tuple[Unit, ...]
    outside: tuple[Parameter, ...]
    repeated: tuple[tuple[str, ...], ...]
    ties: tuple[Tie, ...]
    devices: tuple[str, ...]
    step: int


@dataclass(frozen=True, slots=True)
class InitialValue:
    """This rank's part of a parameter or buffer before the first step.

    Attributes:
        unwritten: how many of the `elements` are uninitialized.
        digest: of a parameter's values; empty for a buffer.
    """

    name: str
    buffer: bool
    elements: int
    unwritten: int
    digest: str


@dataclass(frozen=True, slots=True)
class Initial(Event):
    """What a model's parameters and buffers hold at its first step, or at the end without one.

    Attributes:
        places: where memory without values was allocated.
    """

    model: int
    values: tuple[InitialValue, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """A parameter that an optimizer holds, but its model no longer does.

    Attributes:
        by: what replaced it: ``sharding``, ``resharding``, ``assignment``, or a module's method.
        place: the line that replaced it.
    """

    name: str
    by: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class OptimizerBuilt(Event):
    """An optimizer at its first step, or at the end if it took none.

    Attributes:
        live: parameters it holds that are current in a sharded model.
        stale: parameters it holds that have been replaced since it was built.
    """

    number: int
    cls: str
    place: Place | None
    live: int
    stale: tuple[Stale, ...]


@dataclass(frozen=True, slots=True)
class Bypass(Event):
    """A method of an FSDP unit ran on its parameters without the unit's hooks."""

    unit: str
    cls: str
    api: str
    method: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Forward(Event):
    """The first forward of a model's root through its hooks."""

    cls: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class FirstNan(Event):
    """The first module whose output has a NaN on this rank.

    Attributes:
        name: in its model.
        given: its input has one, too.
        weights: one of the module's parameters has one.
        step: optimizer steps done.
    """

    name: str
    cls: str
    given: bool
    weights: bool
    step: int
    place: Place | None


@dataclass(frozen=True, slots=True)
class Backward(Event):
    """A backward from a scalar.

    Attributes:
        loss: this rank's value, as text, so that nan survives; `scaled`: a gradient scaler may have
            multiplied it; `scale`: by this, as far as is known.
        reduced: a sharded parameter has a gradient of its own size that it did not have before.
    """

    step: int
    loss: str
    finite: bool
    reduced: bool
    place: Place | None
    scaled: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LossMean(Event):
    """A loss that averages over this rank's targets, and its value."""

    targets: int
    value: float
    place: Place | None


@dataclass(frozen=True, slots=True)
class Drawn(Event):
    """A ``DataLoader`` gave out a batch.

    Attributes:
        digest: of its tensors.
    """

    digest: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Change:
    """One trainable parameter over one optimizer step.

    Attributes:
        gradient: ``none``, ``zero``, ``finite`` or ``infinite``: this rank's part of it.
        reduced: no part of its gradient waits to be reduced; None where unknown or not sharded.
        changed: this rank's part of the parameter is not what it was before the step.
        digest: of this rank's part after the step.
        held: the optimizer that steps holds it; `moving`: with a learning rate that is not zero.
        due: at this rate and gradient, any optimizer changes it visibly.
        coarse: of a type of two bytes, the elements of this rank's part that have a gradient which
            is not zero; `still`: those of them that are what they were.
    """

    name: str
    model: int
    gradient: str
    reduced: bool | None
    changed: bool
    digest: str
    held: bool
    moving: bool
    due: bool
    coarse: int = 0
    still: int = 0


@dataclass(frozen=True, slots=True)
class Step(Event):
    """An optimizer's step.

    Attributes:
        number: of this optimizer's steps, from 1.
        backwards: backward passes since the last step of any optimizer.
        reduced: how many of them left reduced gradients.
        seconds: since the end of the last step.
    """

    number: int
    optimizer: int
    backwards: int
    reduced: int
    changes: tuple[Change, ...]
    seconds: float
    place: Place | None


@dataclass(frozen=True, slots=True)
class SyncSwitched(Event):
    """Gradient synchronization was switched.

    Attributes:
        name: e.g. ``set_requires_gradient_sync``; ``no_sync`` where that was entered or left, or
            where a script looked for it in an FSDP2 module, which has none.
    """

    name: str
    on: bool
    place: Place | None


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's sum of powers of gradients that are divided over the same `ranks`, as text."""

    ranks: tuple[int, ...]
    power: str


@dataclass(frozen=True, slots=True)
class Norm(Event):
    """Gradients were clipped by their norm.

    Attributes:
        call: e.g. ``torch.nn.utils.clip_grad_norm_``.
        given: the script passed the norm to the call, else the call computed it.
        used: the norm as this rank has it, as text, so that nan survives: of a DTensor this
            rank's part.
        combine: how the parts of `across` make the whole (``sum``, ``max``, ``norm`` …); empty
            where `used` is whole.
        norm_type: as text, so that inf survives.
        whole: sum of powers (the maximum for inf) of the gradients that this rank holds whole,
            before the clip, as text.
        shares: the same of its parts of sharded gradients.
        precision: bytes of one element of the coarsest gradient.
        scaled: a gradient scaler is at work, which skips steps that are not finite.
        api: ``fsdp1``, ``fsdp2`` or empty, of the sharded gradients.
        step: optimizer steps done.
    """

    call: str
    given: bool
    used: str
    combine: str
    across: tuple[int, ...]
    norm_type: str
    whole: str
    shares: tuple[Share, ...]
    precision: int
    scaled: bool
    api: str
    step: int
    place: Place | None


@dataclass(frozen=True, slots=True)
class NumberRead(Event):
    """A DTensor of one element was read as a number: the first time at a place in a step.

    Attributes:
        read: ``item``, ``float`` …, or ``full_tensor``, which makes it whole first.
        value: what this rank read, as text; empty for ``full_tensor``.
        local: it holds only this rank's part of a reduction, or of a sharded tensor.
    """

    read: str
    value: str
    local: bool
    placements: tuple[str, ...]
    step: int
    place: Place | None


@dataclass(frozen=True, slots=True)
class ReadCombined(Event):
    """What was read locally was then combined over the ranks by the script itself.

    Attributes:
        call: the collective that took the value.
        read: where the value came from.
    """

    call: str
    read: Place | None
    place: Place | None


@dataclass(frozen=True, slots=True)
class ShardSent(Event):
    """A collective of the script was given this rank's part of a sharded parameter to write to.

    Attributes:
        call: e.g. ``all_reduce``.
        name: of the parameter.
        of_gradient: it was given the gradient's part.
        ranks: those of its group whose parts make one copy with this rank's, which is among them.
        step: optimizer steps done.
    """

    call: str
    name: str
    of_gradient: bool
    ranks: tuple[int, ...]
    step: int
    place: Place | None


@dataclass(frozen=True, slots=True)
class Part:
    """The slices of one write that are cut alike.

    Attributes:
        ranks: who hold the tensors together.
        position: which part this rank's is, of `of` along each cut.
        elements: in the slices, of `whole` in the tensors they are cut from.
    """

    ranks: tuple[int, ...]
    position: tuple[int, ...]
    of: tuple[int, ...]
    elements: int
    whole: int


@dataclass(frozen=True, slots=True)
class State:
    """What one write holds of one model, of the optimizers, or of tensors that are neither.

    Attributes:
        what: ``model``, ``optimizer`` or ``other``.
        cls: the model's class.
        names: how many parameters an unsharded model has; 0 for ``other``.
        missing: those that the write has nothing of.
        elements: in entries that are whole.
        odd: entries that have neither the whole's shape nor that of this rank's part.
        parts: the others, slices.
    """

    what: str
    cls: str
    names: int
    missing: tuple[str, ...]
    elements: int
    odd: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Save(Event):
    """Something was written, and the call ended.

    Attributes:
        writer: e.g. ``torch.save``.
        error: what it raised, other than errors of the file system; empty where it returned.
        path: relative to the working directory where it lies there; empty for one in memory.
        distributed: every rank writes its parts to one checkpoint (DCP).
        tensors: entries in all.
        states: whose tensors they are.
        step: optimizer steps done.
        live_average: what it calls an average of the weights, and is the trained parameters
            themselves; empty where there is no such thing.
    """

    writer: str
    path: str
    distributed: bool
    tensors: int
    states: tuple[State, ...]
    step: int
    place: Place | None
    error: str = ""
    live_average: str = ""

    @property
    def of_training(self) -> bool:
        """Whether it has a model's parameters or an optimizer's state."""
        return any(state.what != "other" for state in self.states)

    @property
    def of_optimizer(self) -> bool:
        """Whether it has an optimizer's state."""
        return any(state.what == "optimizer" for state in self.states)


@dataclass(frozen=True, slots=True)
class AsyncSave(Event):
    """How a checkpoint ended that ``async_save`` saves in the background.

    Attributes:
        done: it is over.
        met: what began while it was not: the next ``save`` on its process group, or ``destroy``
            of that group; empty for neither.
        error: what its thread raised.
        place: where it began; `at`: where it was met.
    """

    path: str
    done: bool
    met: str
    error: str
    place: Place | None
    at: Place | None


@dataclass(frozen=True, slots=True)
class Fsdp1Call(Event):
    """FSDP1's API was called on an FSDP2 model."""

    name: str
    cls: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Device(Event):
    """Where this rank works: its CUDA device's index (also under the shim), None on the CPU."""

    index: int | None


@dataclass(frozen=True, slots=True)
class Memory(Event):
    """Peaks in bytes: of the process and of the CUDA allocator (0 without CUDA).

    Attributes:
        before: of the process, when the script began.
    """

    process: int
    before: int
    cuda: int


@dataclass(frozen=True, slots=True)
class Compared(Event):
    """What the unsharded model computes in one step, against the sharded one: the worst of a kind.

    Attributes:
        what: ``output``, ``gradient``, ``clipped gradient`` or ``parameter``.
        name: the parameter, or the output.
        difference: relative L2; infinite where it is from nothing, or not finite in one of them.
        count: how many were compared.
        times: what multiple of the unsharded one it is, where it is too far off and is one.
        place: where the forward, the clipping or the step is.
    """

    step: int
    what: str
    name: str
    difference: float
    tolerance: float
    count: int
    times: float | None
    place: Place | None


@dataclass(frozen=True, slots=True)
class Drifted(Event):
    """How far from the sharded run the unsharded model ends by itself, with its own gradients.

    Attributes:
        difference: relative L2 of all parameters together.
    """

    difference: float


@dataclass(frozen=True, slots=True)
class NotCompared(Event):
    """Why the unsharded model cannot be compared with the sharded one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Kept(Event):
    """The state at the save after ``step`` optimizer steps was recorded."""

    step: int


@dataclass(frozen=True, slots=True)
class Fed(Event):
    """What a call of a model with units in training was given, as a digest of its tensors.

    Attributes:
        random: a digest of the generators' states then.
    """

    step: int
    digest: str
    random: str


@dataclass(frozen=True, slots=True)
class Settings(Event):
    """The numbers in an optimizer's groups, such as learning rates, as a step of it begins.

    Attributes:
        step: of its steps done before.
    """

    optimizer: int
    step: int
    names: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """The state of a resumed run was compared with the state at the save.

    Attributes:
        unread: optimizer states that are not compared.
    """

    unread: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored(Event):
    """What a resumed run has of one kind of state.

    Attributes:
        what: ``parameter``, ``buffer`` or ``optimizer state``.
        count: entries that were kept; `missing` of them are not there, `apart` differ.
        lost: names of missing ones, `changed` of those that differ, the worst first.
        difference: relative L2 of the worst; infinite where it is from nothing.
    """

    what: str
    count: int
    missing: int
    lost: tuple[str, ...]
    apart: int
    changed: tuple[str, ...]
    difference: float


@dataclass(frozen=True, slots=True)
class ProbeFailed(Event):
    """An observer failed, so what it observes is unknown."""

    probe: str
    error: str


@dataclass(frozen=True, slots=True)
class LinesRan(Event):
    """The lines of a watched file that ran."""

    path: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a rank's traceback, the user's own or not, innermost last."""

    place: Place
    own: bool
    receiver: str
    unit: bool


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The last event.

    Attributes:
        how: ``steps`` (after N steps), ``script`` (at its end), ``crash``, ``exit`` or
            ``unmappable``.
        kind: the exception's class; `message` its text, `traceback` all of it.
        time: on a clock that all ranks of a node share.
    """

    how: str
    steps: int
    kind: str = ""
    message: str = ""
    traceback: str = ""
    frames: tuple[Frame, ...] = ()
    time: float = 0.0
