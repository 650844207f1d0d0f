"""Settings files of other tools, as values whose parts know their place in the text."""
