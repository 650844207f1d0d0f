"""Detection: correct programs, mutants of them, and how many of those are found."""
