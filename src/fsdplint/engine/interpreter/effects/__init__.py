"""Effects of library calls on abstract values: `knowledge` lists the functions, this package acts.

Each module has a table from the canonical name of a function to its effect, for one topic;
`library` joins the tables. An effect returns the value of the call, or None to treat the call like
one of a function that no table lists.
"""
