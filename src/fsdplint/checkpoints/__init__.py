"""Checkpoints on disk, converted for FSDP2: needs PyTorch, and runs no code of theirs."""
