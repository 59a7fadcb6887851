"""Who said it, as a block and the command line tell it. The origin leads, so that no name can pass for a role."""

import unicodedata

from afterturn.base.types import Entry, Origin
from afterturn.context.neutral import neutralise

_NAME_CHARS_MAX = 40
_NAME_CHARS_READ = 400
_ROLES = {Origin.AGENT: "assistant"}
# What ends an author, opens an id or a quotation, or forms a tag; look-alikes are found by what they fold to.
_SYNTAX = frozenset('[](){}<>:"')
_LOOK_ALIKES = frozenset("\u2236\ua789\u02d0\u02f8\u0589\u05c3\u201c\u201d\u201e\u201f\u3010\u3011\u2039\u203a")


def describe_author(entry: Entry) -> str:
    """ "user", "user Ada", "assistant"; a name that only a report gives is in parentheses: "import (Ada)"."""
    origin = _ROLES.get(entry.origin, entry.origin.value.replace("_", " "))
    name = _plain(entry.speaker) if entry.speaker else ""
    if not name or name == origin:
        return origin
    return f"{origin} {name}" if entry.trust >= Origin.BACKGROUND_REVIEW.trust else f"{origin} ({name})"


def _plain(speaker: str) -> str:
    kept = (character for character in speaker[:_NAME_CHARS_READ] if not _is_syntax(character))
    # Disarming a tag leaves a parenthesis.
    return neutralise("".join(kept)).replace("(", "")[:_NAME_CHARS_MAX].strip()


def _is_syntax(character: str) -> bool:
    if character.isascii():
        return character in _SYNTAX
    return character in _LOOK_ALIKES or bool(_SYNTAX & set(unicodedata.normalize("NFKC", character)))
