"""Memory for MCP clients: `afterturn mcp`, over stdio and over HTTP."""
