"""The poison lab: hostile texts, a model that obeys them, and every way into memory. Not part of the wheel."""
