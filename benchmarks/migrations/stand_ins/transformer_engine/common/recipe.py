"""Names that a program imports and uses only with 8-bit numbers."""

DelayedScaling = Format = None
