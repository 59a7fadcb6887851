"""The direct verbs on one space, without a turn: add, recall, update, undo, forget, export, import."""
