"""What holds on every path; a trace, in contrast, is what happens on one.

A finding needs one path on which it is true. A fix may only be called safe if its conditions hold
on all paths, so it asks here. Nothing is executed: the answers come from every definition that the
text has of a variable, whatever leads to it, and from every call of a function in the project.

A claim may not assume anything that the text does not show. In particular it may not assume that a
branch is never taken, that a name is bound, that an attribute is only assigned where its class is
defined, or that a function has no other callers. What cannot be read off the text is unknown
(`UnknownError`), also if a question gets too large, and an unknown value makes every claim false.

`definitions` has the assignments that may reach a statement, `references` the files and calls that
mention a name, `classes` the bases and attributes of classes, `values` what an expression can be.
"""
