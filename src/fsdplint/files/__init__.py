"""Files: found, read without loss, and replaced."""
