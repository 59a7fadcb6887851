"""Real coding-agent clients from npm, and a scripted model server that they talk to on loopback."""
