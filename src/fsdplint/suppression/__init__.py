"""Findings that a project has accepted: by comments, or in a baseline."""
