"""Detects the message format of a host's list."""

from collections.abc import Iterator, Mapping, Sequence

from afterturn.dialects.anthropic import Anthropic
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.gemini import Gemini
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.dialects.openai_responses import OpenAIResponses
from afterturn.errors import InvalidInput

_ALL: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini())
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
"""By name. Where a list could be in several, the first of them is chosen: its messages are valid in the next two."""

# A list may hold a hundred thousand messages, so only its beginning and end are read. Formats do not mix within one.
_FIRST = 20
_NEWEST = 200
_FOLLOWED = 16
_PLAIN_ROLES = frozenset(("system", "user", "assistant"))


def get_dialect(name: str) -> Dialect:
    if (dialect := DIALECTS.get(name)) is None:
        raise InvalidInput(f"There is no dialect {name!r}. Use one of {', '.join(DIALECTS)}.")
    return dialect


def find_dialect(messages: Sequence[object], named: str | None = None) -> Dialect | None:
    """None when no known format fits. An empty list is taken for OpenAI chat, since nothing speaks against it.

    Of a long list the beginning and the end are read. A format that the host has named is not doubted.
    """
    if named is not None:
        return DIALECTS.get(named)
    newest = messages[-_NEWEST:]
    looked_at = _telling([*messages[: min(_FIRST, len(messages) - len(newest))], *newest])
    if all(_plain_role(message) in _PLAIN_ROLES for message in looked_at):
        return _ALL[0]  # every format reads these alike
    possible = list(_possible(looked_at))
    for dialect, is_certain in possible:
        if is_certain:
            return dialect
    for dialect, _ in possible:
        if not looked_at or any(dialect.read(message) is not None for message in looked_at):
            return dialect
    return None


def follow_dialect(dialect: Dialect, messages: Sequence[object]) -> Dialect | None:
    """`dialect` as long as the newest messages can be in it; else whatever the list has turned out to be in.

    A conversation often begins with messages that could be in several formats. Cheap enough for every hand-over.
    """
    if any(dialect.speaks(message) is False for message in _telling(messages[-_FOLLOWED:])):
        return find_dialect(messages)
    return dialect


def _telling(messages: Sequence[object]) -> list[object]:
    """Without plain messages of a role that another one has: their words tell nothing of the format.

    They are most of what hosts have, and each takes every format several microseconds, beside a turn that begins.
    """
    kept: list[object] = []
    plain: set[str] = set()
    for message in messages:
        role = _plain_role(message)
        if role not in plain:
            kept.append(message)
        if role is not None:
            plain.add(role)
    return kept


def _plain_role(message: object) -> str | None:
    """Of a mapping with a role and a text and nothing else."""
    if type(message) is not dict or len(message) != 2:
        return None
    role = message.get("role")
    return role if type(role) is str and type(message.get("content")) is str else None


def _possible(messages: Sequence[object]) -> Iterator[tuple[Dialect, bool]]:
    """The formats that nothing speaks against, and whether something speaks for them."""
    for dialect in DIALECTS.values():
        is_certain = False
        for message in messages:
            verdict = dialect.speaks(message)
            if verdict is False:
                break
            is_certain = is_certain or verdict is True
        else:
            yield dialect, is_certain
