"""What runs of `check` ended in, so that one that would end the same is not made again; and what
they lowered, so that one that would not lowers only what changed (`fsdplint.cache.pack`).

A run's report and exit code are kept with the notes of all that it saw on the disk (see
`fsdplint.files.disk`). The next run with the same arguments, environment and fsdplint compares
these notes, by what `stat` says and, where that differs, by content, and prints what is kept. So it
depends neither on the rules nor on the engine whether a kept result is still true, and none of
them is imported; nor are click, dataclasses, pathlib, typing or json, each of which takes longer
than all the rest.

It is the report that is kept and no finding: what lies in the cache can be shown, but never be
written into a file as a fix. Runs that write anything are not kept, and use nothing that is.
"""
