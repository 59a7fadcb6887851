"""Where afterturn meets its surroundings: the command line, and later servers, hooks and frameworks."""
