"""Real bugs of public repositories: which of them `fsdplint check` finds, and not after the fix."""
