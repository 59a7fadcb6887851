"""What every server of memory shares: grants, tokens, and the five tools for models. `mcp/` puts it behind MCP."""
