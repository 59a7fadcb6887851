"""Adds afterturn's hooks and its MCP server to the configuration of coding-agent clients, and removes them again."""
