"""fsdplint: find mistakes in PyTorch FSDP training code, with the evidence, and fix them."""

__version__ = "0.1.0"
