"""Names that a program imports and uses only with 8-bit numbers."""

from torch.nn import LayerNorm, Module

__all__ = ["LayerNorm", "TransformerLayer"]


class TransformerLayer(Module):
    pass
