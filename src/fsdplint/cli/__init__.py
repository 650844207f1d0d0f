"""The command line: a module for each command, and the exit codes that they share."""

CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130
