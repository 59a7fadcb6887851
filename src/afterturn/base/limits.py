"""How many of something a caller may ask for. Checked once, where it comes in."""

from afterturn.base.errors import InvalidInput


def is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def check_limit(limit: object, most: int) -> int:
    if not is_whole(limit, most):
        raise InvalidInput(f"The limit is {repr(limit)[:60]}. Use a whole number from 1 to {most}.")
    assert isinstance(limit, int)
    return limit
