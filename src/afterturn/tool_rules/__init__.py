"""Rules at the moment of a tool call: what a call does, what a rule in words concerns, and the advice for the model."""
