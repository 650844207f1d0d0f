"""fsdplint: finds broken PyTorch FSDP training contracts, with the evidence, and fixes them."""

__version__ = "0.1.0"
