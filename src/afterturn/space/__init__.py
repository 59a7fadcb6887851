"""The direct verbs on one space, without a turn: add, search, update, undo, forget, export, import."""
