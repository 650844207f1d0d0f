"""Source text to IR, by LibCST."""
