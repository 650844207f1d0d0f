"""`fsdplint mcp`: the commands as tools for coding agents, over the Model Context Protocol."""
