"""Where one character ends and the next begins, so that no cut falls into one. Pure."""

import unicodedata


def joins(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it: an accent, a joiner, an emoji's skin tone."""
    character = text[at]
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or "\u200d" in (character, text[at - 1])
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
