"""One file a family of commands. Each is loaded when one of its commands is named."""
