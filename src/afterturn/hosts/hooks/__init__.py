"""Memory for coding agents by their hooks: a small script, a helper process, and what each event does."""
