"""What each rule is, by topic; what it finds stands in its module of `fsdplint.rules`.

Apart from these, which come with the engine: whoever lists, selects or explains rules, or finds
nothing to run them on, does not wait for it.
"""
