"""What every launch line has, to find the files that have one; fast to import."""

WORDS = ("torchrun", "torch.distributed", "accelerate")
