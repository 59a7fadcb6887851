"""A simulation: hosts, memory and its threads in one thread and on virtual time, in an order that a seed decides."""
