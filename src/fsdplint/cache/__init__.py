"""The cache: reports of earlier runs of `check`, and the IR of their files (see `ir_pack`).

A run's report and exit code are stored with notes of all that it saw on the disk (see
`fsdplint.files.disk`). The next run with the same arguments, environment and fsdplint compares
these notes, by what `stat` says and, where that differs, by content. If all are still true, it
prints the stored report. That takes neither the rules nor the engine, so none of them is imported;
nor are click, dataclasses, pathlib, typing or json, each of which takes longer than all the rest.

The cache holds reports and no findings: what is in it can be shown, but never written into a file
as a fix. Runs that write anything are not cached, and use nothing of the cache.
"""
