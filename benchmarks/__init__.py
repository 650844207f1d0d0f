"""What fsdplint finds and what it costs, measured."""
