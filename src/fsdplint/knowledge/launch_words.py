"""What every launch line or SLURM script has, to find the files that have one; fast to import."""

WORDS = ("torchrun", "torch.distributed", "accelerate", "#SBATCH")
