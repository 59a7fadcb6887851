"""Everything that is in every prompt: memories and facts, context files, the block that has them, and its audit."""
