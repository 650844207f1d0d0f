"""The runtime half: runs a script on several ranks and judges what it did, clause by clause.

Only `fsdplint.verify.rank` imports torch; it runs inside each rank's process.
"""
