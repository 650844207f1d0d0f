"""The files of a project as one program: imports, definitions, and what can reach sharding."""
