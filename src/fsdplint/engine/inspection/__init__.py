"""What `fsdplint inspect` shows of the analysis."""
