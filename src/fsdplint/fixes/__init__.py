"""Fixes: sets of text edits, made at the spans of the IR; source text is never rendered anew."""
