"""What runs inside a rank: the observer, the CUDA shim and the entry that starts the script."""
