"""A small diffusers."""
