"""Compute what all ranks computed, on the unsharded model, and compare.

Each step starts from what the sharded run had: after gradients are compared, the optimizers step
with the sharded run's. So a difference is seen where it arises, and rounding does not grow from
step to step, as it would where an optimizer divides a tiny gradient by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from fsdplint.verify.events import Compared, Place
from fsdplint.verify.rank.reference import measure, tape
from fsdplint.verify.rank.reference.alone import standing_for
from fsdplint.verify.rank.reference.layout import Incomparable, Piece, pieces
from fsdplint.verify.rank.reference.measure import Difference
from fsdplint.verify.rank.reference.tape import Call, Clip, Key, Parts, Step


class Whole:
    """All models of the script, each parameter whole.

    Raises:
        Incomparable: a parameter is divided all the same.
    """

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
        """Return the module that was called."""
        if call.model >= len(self._models):
            raise Incomparable("the script calls fewer models in one process")
        return self._models[call.model].get_submodule(call.path)

    def parameter(self, key: Key) -> Tensor:
        """Return a copy of a parameter's value."""
        piece = self.pieces[key]
        return piece.value().reshape(piece.region.shape).cpu().clone()

    def load(self, key: Key, value: Tensor) -> None:
        """Set a parameter's value."""
        with torch.no_grad():
            target = self.pieces[key].value()
            target.copy_(value.reshape(target.shape))

    def trained(self) -> list[Key]:
        """Return the parameters that may have gradients."""
        return [key for key, piece in self.pieces.items() if piece.parameter.requires_grad]

    def take_gradients(self) -> Parts:
        """Return the gradients that there are, and leave none."""
        found = {key: piece.gradient() for key, piece in self.pieces.items()}
        taken = {
            key: gradient.cpu().clone().reshape(self.pieces[key].region.shape)
            for key, gradient in found.items()
            if gradient is not None
        }
        self._clear()
        return taken

    def set_gradients(self, gradients: Parts) -> None:
        """Make these the gradients, and leave no other."""
        self._clear()
        for key, gradient in gradients.items():
            self.pieces[key].set_gradient(gradient)

    def _clear(self) -> None:
        for piece in self.pieces.values():
            piece.parameter.grad = None
            if piece.flat is not None:
                piece.flat.grad = None


class Player:
    """The unsharded model, which computes one step after the other.

    Attributes:
        known: what each rank's parameters are after the last one.
    """

    def __init__(self, model: Whole, optimizers: Sequence[Optimizer], ranks: int) -> None:
        self._model, self._optimizers, self._ranks = model, optimizers, ranks
        self.known: list[Parts] = [{} for _ in range(ranks)]
        self._buffers: list[dict[Key, dict[str, Tensor]]] = [{} for _ in range(ranks)]

    def play(self, step: Step) -> list[Compared]:
        """Return the largest difference of each kind in one optimizer step.

        Raises:
            Incomparable: the step cannot be computed here, or not twice alike.
        """
        step.check({key: piece.region.shape for key, piece in self._model.pieces.items()})
        self.load(step)
        found: list[Compared | None] = []
        if step.computes:
            outputs, gradients = self.compute(step)
            found += [outputs.worst(step.first.number), self._gradients(step, gradients)]
            off = any(c.difference > c.tolerance for c in found if c)
            if off and step.doubt:
                raise Incomparable(step.doubt)
            if not off and (name := gradients.infinite()):
                raise Incomparable(f"the gradient of `{name}` is not finite, sharded or not")
        found += [_clipped(step, clips) for clips in step.clips]
        found += [_scaled(step), self._stepped(step)]
        return [compared for compared in found if compared is not None]

    def load(self, step: Step) -> None:
        """Take over parameters that are not what the last step left: at first, all of them."""
        changed = {key for stride in step.strides for key in stride.before}
        for known, stride in zip(self.known, step.strides, strict=True):
            known |= stride.before
        mine = [{key: known[key] for key in changed} for known in self.known]
        for key, value in step.join(mine).items():
            self._model.load(key, value)

    def compute(self, step: Step) -> tuple[Outputs, Gradients]:
        """Run every rank's forwards and backwards."""
        outputs, gradients = Outputs(step.tolerance), Gradients(self._ranks)
        self._model.take_gradients()
        for rank, stride in enumerate(step.strides):
            with standing_for(rank, self._ranks):
                for call in stride.calls:
                    self._call(call, rank, outputs)
            gradients.add(self._model.take_gradients())
        return outputs, gradients

    def _call(self, call: Call, rank: int, outputs: Outputs) -> None:
        module = self._model.module(call)
        buffers = self._buffers[rank].setdefault((call.model, call.path), {})
        buffers |= call.buffers
        results = _forward(module, call, buffers)
        if outputs.compare(results, call, rank):
            first = [result.detach().clone() for result in results]
            results = _forward(module, call, buffers)  # a backward follows its own forward
            if any(map(measure.distance, first, (result.detach() for result in results))):
                raise Incomparable("the forward is not deterministic")
        _backward(results, call)

    def _gradients(self, step: Step, gradients: Gradients) -> Compared | None:
        """Compare the gradients, a parameter's by the reading of it that is closest."""
        found = {}
        for key in self._model.trained():
            shares = list(step.gradients(key))
            if key not in gradients.mean:
                if key not in step.first.units and any(part is not None for _, part in shares[0]):
                    raise Incomparable(f"gradients reach `{key[1]}` outside the model's forward")
                gradients.mean[key] = torch.zeros(self._model.pieces[key].region.shape)
            size = min(measure.apart(gradients.mean[key], candidate) for candidate in shares)
            found[key] = Difference(size, gradients.scale(key))
        worst = _worst("gradient", found, step, step.first.place)
        if worst is not None and worst.difference > worst.tolerance:
            key = _key_of_worst(found)
            times = measure.times(gradients.mean[key], next(step.gradients(key)))
            return replace(worst, times=times)
        return worst

    def _stepped(self, step: Step) -> Compared | None:
        before = {key: self._model.parameter(key) for key in self._model.pieces}
        self.step(step, step.join([stride.stepped for stride in step.strides]))
        for known, stride in zip(self.known, step.strides, strict=True):
            known |= stride.after
        found = {}
        for key, old in before.items():
            new = self._model.parameter(key)
            if new.is_floating_point():
                size = measure.apart(new, step.shares(key, self.known))
                found[key] = Difference(size, measure.update_scale(old, new, step.tolerance))
        return _worst("parameter", found, step, step.first.place)

    def step(self, step: Step, gradients: Parts) -> None:
        """Let the optimizer that stepped there step here, with its settings there."""
        if step.first.optimizer >= len(self._optimizers):
            raise Incomparable("the script builds fewer optimizers in one process")
        optimizer = self._optimizers[step.first.optimizer]
        live = {id(piece.parameter) for piece in self._model.pieces.values()}
        if not any(id(p) in live for group in optimizer.param_groups for p in group["params"]):
            raise Incomparable("the optimizer holds none of the model's parameters")
        if len(optimizer.param_groups) != len(step.first.settings):
            raise Incomparable("the optimizer has different parameter groups in one process")
        for group, settings in zip(optimizer.param_groups, step.first.settings, strict=True):
            group.update(settings)
        self._model.set_gradients(gradients)
        optimizer.step()


def _forward(module: nn.Module, call: Call, buffers: Mapping[str, Tensor]) -> list[Tensor]:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
    try:
        args, kwargs = tape.thaw(call.inputs)
    except Exception as error:  # unpickling runs the inputs' own code
        raise Incomparable(f"the model's inputs cannot be loaded ({error})") from None
    with call.ambient.restore(module):
        return list(tape.tensors(module(*args, **kwargs)))


def _backward(results: Sequence[Tensor], call: Call) -> None:
    """Run a backward from a forward's results with the gradients that reached them.

    One result may have been computed from another, so that its gradient holds the other's already:
    whatever reaches a result here gives way to what reached it there.
    """
    reached = []
    for index, result in enumerate(results):
        if index in call.gradients and result.requires_grad:
            gradient = call.gradients[index].to(result.device, result.dtype)
            hook = functools.partial(_instead, gradient)
            result.register_hook(hook)  # type: ignore[no-untyped-call]  # torch declares none
            reached.append((result, gradient))
    if reached:
        torch.autograd.backward([r for r, _ in reached], [g for _, g in reached])


def _instead(gradient: Tensor, _: Tensor) -> Tensor:
    return gradient


def clip(gradients: Mapping[Key, Tensor], clipping: Clip) -> Parts:
    """Return gradients clipped to a norm as ``torch.nn.utils.clip_grad_norm_`` does it."""
    kind = clipping.norm_type
    norms = [torch.linalg.vector_norm(g.double(), kind) for g in gradients.values()]
    total = float(torch.linalg.vector_norm(torch.stack(norms), kind)) if norms else 0.0
    factor = min(1.0, clipping.max_norm / (total + 1e-6))
    return {key: gradient * factor for key, gradient in gradients.items()}


def _clipped(step: Step, clips: Sequence[Clip]) -> Compared | None:
    keys = set(clips[0].keys)
    before = step.join([{k: v for k, v in c.before.items() if k in keys} for c in clips])
    found = {}
    for key, expected in clip(before, clips[0]).items():
        shares = step.shares(key, [clipping.after for clipping in clips])
        found[key] = Difference(measure.apart(expected, shares), measure.norm(expected))
    return _worst("clipped gradient", found, step, clips[0].place)


def _scaled(step: Step) -> Compared | None:
    """Compare by how much the script itself scaled each rank's part of a gradient."""
    found = {}
    for key in (key for key in step.first.layout if key in step.first.units):
        factors = step.factors(key, step.tolerance / 4)
        if any(factor != 1.0 for factor in factors):
            found[key] = Difference(max(factors) - min(factors), max(map(abs, factors)))
    return _worst("scaled gradient", found, step, step.first.place)


def _key_of_worst(found: Mapping[Key, Difference]) -> Key:
    return max(found, key=lambda key: found[key].relative)


def _worst(
    what: str, found: Mapping[Key, Difference], step: Step, place: Place | None
) -> Compared | None:
    if not found:
        return None
    key = _key_of_worst(found)
    relative = found[key].relative
    return Compared(
        step.first.number, what, key[1], relative, step.tolerance, len(found), None, place
    )


class Outputs:
    """The forwards' results against the ranks' own."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance, self._count = tolerance, 0
        self._worst: tuple[float, str, Place | None] = (-1.0, "", None)

    def compare(self, results: Sequence[Tensor], call: Call, rank: int) -> bool:
        """Compare one forward's; true if it is too far off."""
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
        """Return the largest difference; None where there was nothing to compare."""
        relative, name, place = self._worst
        if not self._count:
            return None
        return Compared(step, "output", name, relative, self._tolerance, self._count, None, place)


class Gradients:
    """The mean of the ranks' gradients, and how large each rank's were."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._norms: dict[Key, float] = {}
        self.mean: Parts = {}

    def add(self, gradients: Parts) -> None:
        """Add one rank's, in 32 bits at least."""
        for key, gradient in gradients.items():
            wide = torch.promote_types(gradient.dtype, torch.float32)
            share = gradient.to(wide) / self._ranks
            self.mean[key] = self.mean[key] + share if key in self.mean else share
            self._norms[key] = self._norms.get(key, 0.0) + measure.norm(share)

    def infinite(self) -> str:
        """Return the name of a parameter whose gradient is not finite; empty without one."""
        bad = (key for key, gradient in self.mean.items() if not bool(gradient.isfinite().all()))
        return next((name for _, name in bad), "")

    def scale(self, key: Key) -> float:
        """Return what a difference is a fraction of.

        The mean of the ranks' norms does not shrink where their gradients cancel out. A gradient
        that is all cancellation, as of a bias that a softmax undoes, is measured by the others.
        """
        elements = sum(gradient.numel() for gradient in self.mean.values())
        if not elements:
            return 0.0
        average = math.sqrt(sum(norm**2 for norm in self._norms.values()) / elements)
        own = self.mean[key].numel() if key in self.mean else 0
        return max(self._norms.get(key, 0.0), measure.FLOOR * average * math.sqrt(own))
