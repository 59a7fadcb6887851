"""Detects the message format of a host's list."""

from collections.abc import Iterator, Sequence

from afterturn.dialects.anthropic import Anthropic
from afterturn.dialects.bedrock import Bedrock
from afterturn.dialects.dialect import Dialect, plain_fields
from afterturn.dialects.gemini import Gemini
from afterturn.dialects.langchain import LangChain
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.dialects.openai_responses import OpenAIResponses
from afterturn.errors import InvalidInput

_ALL: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini(), Bedrock(), LangChain())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
"""By name. If a list may be in several formats, the first is chosen: its messages are valid in the next two."""

# A list may hold a hundred thousand messages, so only its beginning and end are read. Formats do not mix within one.
_FIRST = 20
_NEWEST = 200
_FOLLOWED = 16


def get_dialect(name: str) -> Dialect:
    if (dialect := DIALECTS.get(name)) is None:
        raise InvalidInput(f"There is no dialect {name!r}. Use one of {', '.join(DIALECTS)}.")
    return dialect


def register_dialect(dialect: Dialect) -> None:
    """Adds the format of a framework, which is used where it is named and never detected."""
    DIALECTS[dialect.name] = dialect


def find_dialect(messages: Sequence[object], named: str | None = None) -> Dialect | None:
    """Returns None if no known format fits. An empty list counts as OpenAI chat.

    Reads only the beginning and the end of a long list. A format that the host has `named` is not checked.
    """
    if named is not None:
        return DIALECTS.get(named)
    newest = messages[-_NEWEST:]
    examined = _distinctive([*messages[: min(_FIRST, len(messages) - len(newest))], *newest])
    if all(map(plain_fields, examined)):
        return _ALL[0]  # every format reads these alike
    possible: list[Dialect] = []
    for dialect, is_certain in _possible(examined):
        if is_certain:
            return dialect
        possible.append(dialect)
    for dialect in possible:
        if not examined or any(dialect.read(message) is not None for message in examined):
            return dialect
    return None


def follow_dialect(dialect: Dialect, messages: Sequence[object]) -> Dialect | None:
    """Returns `dialect` if the newest messages may be in it, else the format that is detected now.

    A conversation often begins with messages that may be in several formats. Fast enough for every hand-over.
    """
    if any(dialect.recognises(message) is False for message in _distinctive(messages[-_FOLLOWED:])):
        return find_dialect(messages)
    return dialect


def _distinctive(messages: Sequence[object]) -> list[object]:
    """Leaves out all but the first plain message of each role: the others show nothing new about the format.

    Most messages are plain, and testing one against every format takes several microseconds.
    """
    kept: list[object] = []
    roles: set[str] = set()
    for message in messages:
        plain = plain_fields(message)
        if plain is None or plain[0] not in roles:
            kept.append(message)
        if plain is not None:
            roles.add(plain[0])
    return kept


def _possible(messages: Sequence[object]) -> Iterator[tuple[Dialect, bool]]:
    """The formats that no message rules out, each with whether a message proves it."""
    for dialect in _ALL:
        is_certain = False
        for message in messages:
            verdict = dialect.recognises(message)
            if verdict is False:
                break
            is_certain = is_certain or verdict is True
        else:
            yield dialect, is_certain
