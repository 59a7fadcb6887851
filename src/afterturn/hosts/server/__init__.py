"""Servers of memory: grants, tokens and the five tools for models; MCP over stdio and HTTP."""
