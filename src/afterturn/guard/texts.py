"""Which texts can be stored or searched at all."""

from afterturn.base.errors import EmptyText, InvalidInput, InvalidText


def check_text(text: object, what: str) -> str:
    """Text that can be stored and searched: not blank, no NUL, no lone surrogates."""
    if not isinstance(text, str):
        raise InvalidInput(f"The {what} must be text, not {type(text).__name__}. Pass a string.")
    if not text.strip():
        raise EmptyText(f"The {what} is empty. Pass some text.")
    if "\x00" in text:
        raise InvalidText(f"The {what} contains a NUL character at position {text.index(chr(0))}. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"The {what} contains half of a surrogate pair at position {error.start}: it was decoded wrongly. "
            'Decode the bytes as UTF-8, or pass text.encode("utf-8", "replace").decode().'
        ) from error
    return text
