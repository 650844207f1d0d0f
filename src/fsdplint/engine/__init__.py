"""The analysis: source text in, facts about what is sharded, by what and from when on, out."""
