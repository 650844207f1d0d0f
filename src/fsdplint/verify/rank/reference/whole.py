"""The unsharded models: the script's own, in a process where nothing is divided."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from fsdplint.verify.rank.reference.layout import Incomparable, Piece, pieces
from fsdplint.verify.rank.reference.tape import Call, Key, Parts


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
        """Returns the module that was called."""
        if call.model >= len(self._models):
            raise Incomparable("in one process the script calls fewer models")
        return self._models[call.model].get_submodule(call.path)

    def parameter(self, key: Key) -> Tensor:
        """Returns a copy of a parameter's value."""
        piece = self.pieces[key]
        return piece.value().reshape(piece.region.shape).cpu().clone()

    def load(self, key: Key, value: Tensor) -> None:
        """Sets a parameter's value."""
        with torch.no_grad():
            target = self.pieces[key].value()
            target.copy_(value.reshape(target.shape))

    def trained(self) -> list[Key]:
        """Returns the parameters that may have gradients."""
        return [key for key, piece in self.pieces.items() if piece.parameter.requires_grad]

    def take_gradients(self) -> Parts:
        """Returns the gradients that there are, and leaves none."""
        found = {key: piece.gradient() for key, piece in self.pieces.items()}
        taken = {
            key: gradient.cpu().clone().reshape(self.pieces[key].region.shape)
            for key, gradient in found.items()
            if gradient is not None
        }
        self._clear()
        return taken

    def set_gradients(self, gradients: Parts) -> None:
        """Makes these the gradients, and leaves no other."""
        self._clear()
        for key, gradient in gradients.items():
            self.pieces[key].set_gradient(gradient)

    def _clear(self) -> None:
        for piece in self.pieces.values():
            piece.parameter.grad = None
            if piece.flat is not None:
                piece.flat.grad = None
