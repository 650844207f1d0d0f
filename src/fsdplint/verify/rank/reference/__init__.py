"""Comparing a sharded run with an unsharded one: ranks keep a tape, one process plays it back."""
