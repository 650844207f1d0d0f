"""Observers: each notes one side of a run and changes nothing the script computes."""
