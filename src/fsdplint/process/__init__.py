"""Processes and threads of our own, and their standard streams."""
