"""What `fsdplint check` costs beside other linters and beside the least that can be done."""
