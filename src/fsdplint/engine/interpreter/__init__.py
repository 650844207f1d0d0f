"""Abstract execution: entries of a program, path by path, into traces of events.

The state of a path is data (`state`). Every other module has functions over it: for expressions and
statements by kind, for their effect on objects, and in `effects` for calls of libraries. Modules
only import modules below them. They reach those above, for instance to evaluate any expression,
through the tables of `semantics`, which the state carries. `explore` chooses the entries to follow,
`paths` the paths of each.
"""
