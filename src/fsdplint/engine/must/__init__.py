"""What holds on every path: the other half of a trace, which is what happens on one.

A finding needs one path on which it is true. A fix may only be called safe if what it rests on is
true on all of them, so it asks here. Nothing is executed and no budget cuts anything: the answers
come from every definition that the text has of a variable, whatever leads to it, and from every
call of a function. What cannot be read off that way is unknown, and an unknown value makes every
claim false.

`definitions` has the assignments that may reach a statement, `callers` the calls of a function,
`values` what an expression can be.
"""
