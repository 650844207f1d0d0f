"""A module that transformers imports."""
