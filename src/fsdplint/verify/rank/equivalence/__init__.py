"""What a run computes and saves: recorded in two runs of a program, and compared."""
