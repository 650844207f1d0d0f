"""How the cost of `fsdplint check` grows with what it checks."""
