"""How near a model's reply comes to the expected answer. Pure."""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


def normalised(text: str) -> list[str]:
    """Words without case, punctuation and English articles, as question answering has always compared them."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def token_f1(reply: str, expected: str) -> float:
    """The harmonic mean of the shares of words that both have."""
    given, wanted = normalised(reply), normalised(expected)
    shared = sum((Counter(given) & Counter(wanted)).values())
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0


def contains(reply: str, expected: str) -> bool:
    """Whether the expected words stand in the reply, one after the other."""
    wanted = " ".join(normalised(expected))
    return bool(wanted) and f" {wanted} " in f" {' '.join(normalised(reply))} "


def says_yes(reply: str) -> bool:
    """The first word that is yes or no decides."""
    return next((word == "yes" for word in normalised(reply) if word in ("yes", "no")), False)
