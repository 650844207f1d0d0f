"""Plays all ranks' tapes back in one process, on the script's own model and optimizers.

Each step starts from what the sharded run had: after gradients are compared, the optimizers step
with the sharded run's. So a difference is seen where it arises, and rounding does not grow from
step to step, as it would where an optimizer divides a tiny gradient by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsdplint.verify.events import Compared, NotCompared, Place
from fsdplint.verify.rank.patch import wrap_method
from fsdplint.verify.rank.probes.steps import Finished
from fsdplint.verify.rank.reference import measure, tape
from fsdplint.verify.rank.reference.alone import Moved
from fsdplint.verify.rank.reference.capture import prepares_state
from fsdplint.verify.rank.reference.layout import Incomparable, Piece, Region, pieces
from fsdplint.verify.rank.reference.measure import Difference
from fsdplint.verify.rank.reference.tape import Call, Clip, Key, Parts, Stride
from fsdplint.verify.rank.seen import Seen


def install(seen: Seen, moved: Moved) -> None:
    """Takes over at the first optimizer step: by then the script has made all that takes part."""
    replay = _Replay(seen, moved, Path(seen.recorder.request.replay))
    wrap_method(Optimizer, "__init__", replay.watch_optimizers)
    register_optimizer_step_pre_hook(replay.take_over)


class _Replay:
    def __init__(self, seen: Seen, moved: Moved, folder: Path) -> None:
        self._seen, self._moved, self._folder = seen, moved, folder
        self._optimizers: list[Optimizer] = []
        self._playing = False
        self._play_guarded = seen.recorder.probe("reference")(self._play)

    def watch_optimizers(self, original: Callable[..., None]) -> Callable[..., None]:
        """Wraps the optimizers' constructor: their order tells which is which."""

        @functools.wraps(original)
        def construct(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            self._optimizers.append(optimizer)
            original(optimizer, *args, **kwargs)

        return construct

    def take_over(self, *_: Any) -> None:
        """Runs before every optimizer step; the script's first one becomes the whole replay."""
        if self._playing or prepares_state():
            return
        self._playing = True
        self._play_guarded()
        raise Finished

    def _play(self) -> None:
        try:
            for optimizer in self._optimizers:
                self._moved.follow(optimizer)
            self._follow(_Model(self._seen.models()))
        except Incomparable as reason:
            self._seen.recorder.write(NotCompared(str(reason)))

    def _follow(self, model: _Model) -> None:
        ranks = sorted({int(file.name.split(".")[0]) for file in self._folder.glob("*.stride")})
        player = _Player(model, self._optimizers, len(ranks))
        for number in range(min(tape.count(self._folder, rank) for rank in ranks)):
            strides = [tape.load(self._folder, rank, number) for rank in ranks]
            found = player.play(strides, number + 1)
            for compared in found:
                self._seen.recorder.write(compared)
            if any(c.difference > c.tolerance for c in found):
                return  # what comes later follows from it


class _Model:
    """The unsharded model: all models of the script, their parameters whole."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._models = models
        for model in models:
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
        self.pieces: dict[Key, Piece] = {
            (number, piece.name): piece
            for number, model in enumerate(models)
            for piece in pieces(model)
        }

    def module(self, call: Call) -> nn.Module:
        """Returns the module that was called."""
        if call.model >= len(self._models):
            raise Incomparable("in one process the script calls fewer models")
        return self._models[call.model].get_submodule(call.path)

    def whole(self, key: Key) -> Tensor:
        """Returns a whole parameter."""
        piece = self.pieces[key]
        return piece.value().reshape(piece.region.shape)

    def load(self, key: Key, value: Tensor) -> None:
        """Sets a whole parameter."""
        with torch.no_grad():
            target = self.pieces[key].value()
            target.copy_(value.reshape(target.shape))

    def gradients(self) -> Parts:
        """Returns the whole gradients that there are, and leaves none."""
        found = {key: piece.gradient() for key, piece in self.pieces.items()}
        kept = {
            key: g.clone().reshape(self.pieces[key].region.shape)
            for key, g in found.items()
            if g is not None
        }
        self.clear()
        return kept

    def clear(self) -> None:
        """Removes all gradients."""
        for piece in self.pieces.values():
            piece.parameter.grad = None
            if piece.flat is not None:
                piece.flat.grad = None


class _Player:
    """Plays one stride after the other, and keeps what each rank's parameters are."""

    def __init__(self, model: _Model, optimizers: Sequence[Optimizer], ranks: int) -> None:
        self._model, self._optimizers, self._ranks = model, optimizers, ranks
        self._known: list[Parts] = [{} for _ in range(ranks)]
        self._tolerance = measure.TOLERANCE

    def play(self, strides: Sequence[Stride], step: int) -> list[Compared]:
        """Returns what was compared in one optimizer step."""
        self._check(strides)
        self._load(strides)
        short = any(stride.short for stride in strides)
        self._tolerance = measure.SHORT_TOLERANCE if short else measure.TOLERANCE
        found: list[Compared | None] = []
        if any(stride.backwards for stride in strides):
            outputs, gradients = self._compute(strides)
            found += self._computed(strides, outputs, gradients, step)
        for clips in zip(*(stride.clips for stride in strides), strict=False):
            found.append(self._clipped(strides, clips, step))
        found.append(self._stepped(strides, step))
        return [compared for compared in found if compared is not None]

    def _check(self, strides: Sequence[Stride]) -> None:
        first = strides[0]
        obstacle = next((s.obstacle for s in strides if s.obstacle), "")
        if obstacle:
            raise Incomparable(obstacle)
        if any(s.optimizer != first.optimizer or s.layout.keys() != first.layout.keys()
               for s in strides):  # fmt: skip
            raise Incomparable("ranks step different optimizers or models")
        here = {key: piece.region.shape for key, piece in self._model.pieces.items()}
        there = {key: region.shape for key, region in first.layout.items()}
        if other := sorted(name for (_, name), _ in set(there.items()) ^ set(here.items())):
            raise Incomparable(f"in one process the script makes another model (`{other[0]}`)")
        if any(s.backwards for s in strides) and not any(s.calls for s in strides):
            raise Incomparable("no backward went through a forward of the model as a whole")

    def _load(self, strides: Sequence[Stride]) -> None:
        """Takes over parameters that are not what the last step left: at first, all of them."""
        changed: dict[Key, None] = {}
        for known, stride in zip(self._known, strides, strict=True):
            known |= stride.before
            changed |= dict.fromkeys(stride.before)
        for key in changed:
            self._model.load(key, self._join(key, strides, self._known))

    def _join(self, key: Key, strides: Sequence[Stride], parts: Sequence[Parts]) -> Tensor:
        """Puts a whole tensor together from the ranks' parts; what no rank has is zero."""
        pieces = [
            (stride.layout[key], mine[key])
            for stride, mine in zip(strides, parts, strict=True)
            if key in mine
        ]
        whole = torch.zeros(strides[0].layout[key].shape, dtype=pieces[0][1].dtype)
        for region, part in pieces:
            region.write(whole, part)
        return whole

    # Forward and backward.

    def _compute(self, strides: Sequence[Stride]) -> tuple[_Outputs, _Gradients]:
        """Runs every rank's forwards and backwards."""
        outputs, gradients = _Outputs(self._tolerance), _Gradients(self._ranks)
        self._model.clear()
        for rank, stride in enumerate(strides):
            for call in stride.calls:
                self._call(call, rank, outputs)
            gradients.add(self._model.gradients())
        return outputs, gradients

    def _call(self, call: Call, rank: int, outputs: _Outputs) -> None:
        module = self._model.module(call)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in call.buffers:
                    buffer.copy_(call.buffers[name])
        results = self._forward(module, call)
        if outputs.compare(results, call, rank):
            again = [r.detach() for r in self._forward(module, call)]
            if any(measure.distance(a, b.detach()) for a, b in zip(again, results, strict=False)):
                raise Incomparable("the forward gives another result each time")
        reached = [(r, call.gradients[i]) for i, r in enumerate(results) if i in call.gradients]
        if reached:
            torch.autograd.backward(
                [r for r, _ in reached], [g.to(r.device, r.dtype) for r, g in reached]
            )

    def _forward(self, module: nn.Module, call: Call) -> list[Tensor]:
        try:
            args, kwargs = tape.thaw(call.inputs)
        except Exception as error:  # unpickling runs the inputs' own code
            raise Incomparable(f"the model's inputs cannot be read back ({error})") from None
        with call.ambient.restore(module):
            return list(tape.tensors(module(*args, **kwargs)))

    def _computed(
        self,
        strides: Sequence[Stride],
        outputs: _Outputs,
        gradients: _Gradients,
        step: int,
    ) -> list[Compared]:
        found = [c for c in (outputs.worst(step), self._gradients(strides, gradients, step)) if c]
        joint = next((stride.joint for stride in strides if stride.joint), "")
        if joint and any(c.difference > c.tolerance for c in found):
            raise Incomparable(f"the forward itself communicates between ranks ({joint})")
        return found

    def _gradients(
        self, strides: Sequence[Stride], gradients: _Gradients, step: int
    ) -> Compared | None:
        keys = [k for k, piece in self._model.pieces.items() if piece.parameter.requires_grad]
        floor = measure.FLOOR * gradients.average()
        found = {}
        for key in keys:
            mine = gradients.of(key, self._model.pieces[key])
            scale = max(gradients.scale(key), floor * math.sqrt(mine.numel()))
            size = min(measure.apart(mine, parts) for parts in _candidates(key, strides))
            found[key] = Difference(size, scale)
        return self._worst("gradient", found, step, strides[0].place)

    # Clipping and stepping.

    def _clipped(
        self, strides: Sequence[Stride], clips: Sequence[Clip], step: int
    ) -> Compared | None:
        first = clips[0]
        before = {
            key: self._join(key, strides, [clip.before for clip in clips])
            for key in first.keys
            if any(key in clip.before for clip in clips)
        }
        norms = torch.tensor([_power_norm(g, first.norm_type) for g in before.values()])
        total = float(torch.linalg.vector_norm(norms.double(), first.norm_type))
        factor = min(1.0, first.max_norm / (total + 1e-6))  # as torch.nn.utils.clip_grad_norm_
        found = {}
        for key, gradient in before.items():
            expected = gradient * factor
            parts = [
                (stride.layout[key], clip.after.get(key))
                for stride, clip in zip(strides, clips, strict=True)
            ]
            found[key] = Difference(measure.apart(expected, parts), measure.norm(expected))
        return self._worst("clipped gradient", found, step, first.place)

    def _stepped(self, strides: Sequence[Stride], step: int) -> Compared | None:
        self._model.clear()
        for key, piece in self._model.pieces.items():
            if any(key in stride.stepped for stride in strides):
                piece.set_gradient(self._join(key, strides, [s.stepped for s in strides]))
        before = {key: self._model.whole(key).cpu().clone() for key in self._model.pieces}
        self._step(strides[0])
        for known, stride in zip(self._known, strides, strict=True):
            known |= stride.after
        found = {}
        for key in self._model.pieces:
            mine = self._model.whole(key).cpu()
            if not mine.is_floating_point():
                continue
            parts = [(s.layout[key], k[key]) for s, k in zip(strides, self._known, strict=True)]
            size = measure.apart(mine, parts)
            scale = measure.update_scale(before[key], mine, self._tolerance)
            found[key] = Difference(size, scale)
        return self._worst("parameter", found, step, strides[0].place)

    def _step(self, stride: Stride) -> None:
        if stride.optimizer >= len(self._optimizers):
            raise Incomparable("in one process the script makes fewer optimizers")
        optimizer = self._optimizers[stride.optimizer]
        live = {id(piece.parameter) for piece in self._model.pieces.values()}
        if not any(id(p) in live for group in optimizer.param_groups for p in group["params"]):
            raise Incomparable("the optimizer holds none of the model's own parameters")
        if len(optimizer.param_groups) != len(stride.settings):
            raise Incomparable("in one process the optimizer has other parameter groups")
        for group, settings in zip(optimizer.param_groups, stride.settings, strict=True):
            group.update(settings)
        optimizer.step()

    def _worst(
        self, what: str, found: dict[Key, Difference], step: int, place: Place | None
    ) -> Compared | None:
        if not found:
            return None
        key = max(found, key=lambda k: found[k].relative)
        return Compared(step, what, key[1], found[key].relative, self._tolerance, len(found), place)


Parts_ = list[tuple[Region, Tensor | None]]


def _candidates(key: Key, strides: Sequence[Stride]) -> Iterable[Parts_]:
    """Yields what the ranks' parts of a gradient may be taken to be.

    What was there before the backward may have been removed first. A parameter outside every unit
    may be averaged by the script itself, before it steps.
    """
    base, arrived = [s.base for s in strides], [s.arrived for s in strides]
    yield [(s.layout[key], a.get(key)) for s, a in zip(strides, arrived, strict=True)]
    if any(key in b for b in base):
        yield [
            (s.layout[key], _minus(a.get(key), b.get(key)))
            for s, a, b in zip(strides, arrived, base, strict=True)
        ]
    if key not in strides[0].units:
        yield [(s.layout[key], s.stepped.get(key)) for s in strides]


def _minus(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else -other
    return one - other


def _power_norm(gradient: Tensor, norm_type: float) -> float:
    return float(torch.linalg.vector_norm(gradient.double(), norm_type))


class _Outputs:
    """The forwards' results against the ranks' own."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance, self._count = tolerance, 0
        self._worst: tuple[float, str, Place | None] = (-1.0, "", None)

    def compare(self, results: Sequence[Tensor], call: Call, rank: int) -> bool:
        """Compares one forward's; says whether it is too far off."""
        off = False
        for index, (mine, theirs) in enumerate(zip(results, call.outputs, strict=False)):
            if mine.is_floating_point() and mine.shape == theirs.shape:
                size = measure.distance(mine.detach(), theirs)
                relative = Difference(size, measure.norm(theirs)).relative
                self._count += 1
                off |= relative > self._tolerance
                if relative > self._worst[0]:
                    self._worst = (relative, f"output {index} on rank {rank}", call.place)
        return off

    def worst(self, step: int) -> Compared | None:
        """Returns the largest difference; None where there was nothing to compare."""
        relative, name, place = self._worst
        if not self._count:
            return None
        return Compared(step, "output", name, relative, self._tolerance, self._count, place)


class _Gradients:
    """The mean of the ranks' gradients, and how large each rank's were."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._mean: Parts = {}
        self._norms: dict[Key, float] = {}

    def add(self, gradients: Parts) -> None:
        """Adds one rank's."""
        for key, gradient in gradients.items():
            part = gradient.cpu().float() if gradient.element_size() < 4 else gradient.cpu()
            share = part / self._ranks
            self._mean[key] = self._mean[key] + share if key in self._mean else share
            self._norms[key] = self._norms.get(key, 0.0) + measure.norm(share)

    def of(self, key: Key, piece: Piece) -> Tensor:
        """Returns the mean; zero where no rank has any."""
        if key in self._mean:
            return self._mean[key]
        return torch.zeros(piece.region.shape)

    def scale(self, key: Key) -> float:
        """Returns the mean norm, which does not shrink where ranks' gradients cancel out."""
        return self._norms.get(key, 0.0)

    def average(self) -> float:
        """Returns the root mean square of all elements."""
        elements = sum(gradient.numel() for gradient in self._mean.values())
        return math.sqrt(sum(n**2 for n in self._norms.values()) / elements) if elements else 0.0
