"""Passwords, PINs and keys that are told in a sentence: no scanner knows hunter2, but how it is told gives it away."""

import re

_TOLD = re.compile(
    r"\b(?:password|passphrase|passcode|pin|api key|(?:secret|access|private) key|(?:access|auth) token|passwort|"
    r"kennwort|mot de passe|contraseña)(?: (?:of|for|to|von|für|de|du)\b[^.!?\n]{0,30}?)?"
    r"(?: (?:is|are|ist|lautet|est|es)\b|\s?[:=])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.,;!?]+(?:\s|$)|\n")
# More than any value that has to be told from a sentence, so that a long text costs no more than a short one.
_LOOKED_AT_CHARS = 200
_QUOTES = "\"'`“‘«"
_REDACTED = "[redacted"
# Shorter ones with a digit count something: 3 months, 12 characters.
_CODE_CHARS_MIN = 4
# What a password is without being one.
_STATES = frozenset(
    """
    changed compromised correct encrypted expired gone hashed invalid leaked long missing needed new old optional
    outdated public required reset revoked rotated safe secret set shared short stored strong temporary unknown unset
    valid weak wrong
    """.split()
)


def tells_secret(text: str) -> bool:
    """Whether a statement gives away what lets somebody in: a value that ends the sentence, is quoted, or has digits.

    Where a key is kept, or how often it changes, gives nothing away.
    """
    return any(_begins_with_value(text[told.end() :][:_LOOKED_AT_CHARS]) for told in _TOLD.finditer(text))


def _begins_with_value(rest: str) -> bool:
    rest = rest.lstrip()
    if not rest or rest.startswith(_REDACTED):
        return False
    if rest[0] in _QUOTES:
        return True
    said = _SENTENCE_END.split(rest, maxsplit=1)[0].split()
    if not said:
        return False
    if len(said[0]) >= _CODE_CHARS_MIN and any(character.isdigit() for character in said[0]):
        return True
    return len(said) == 1 and said[0].casefold() not in _STATES
