"""The commands, each imported when it is given, and the exit codes that they share."""

CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130
