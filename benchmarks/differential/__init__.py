"""Runs programs before and after their safe fixes, and compares what they do."""
