"""The language server: the engine's findings in editors, over standard input and output.

`analysis` is the only module that runs the engine, and no module outside this package imports one
of these. The protocol comes from pygls, which is installed with the extra `server`.
"""
