"""What libraries do to abstract values: `knowledge` says which functions, a module here says how.

Each module has a table from the canonical name of a function to its effect, for one topic;
`library` puts them together. An effect gives the value of the call, or None where a call with these
arguments is like one of a function that no table lists.
"""
