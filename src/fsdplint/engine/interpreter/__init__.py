"""Abstract execution: entries of a program, path by path, into traces of events.

The state of a path is data (`state`). Every other module has functions over it: for expressions and
statements by kind, for what they do to objects, and below `effects` for what libraries do. Modules
import only what is below them; what they need of those above, such as the evaluation of any
expression, is in the tables of `semantics`, which the state carries. `paths` and `explore` choose
what is followed.
"""
