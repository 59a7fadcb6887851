"""OpenAI's chat completions format, which many providers and frameworks share."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from afterturn.base.terms import content_hash
from afterturn.base.turns import Message
from afterturn.dialects.dialect import Exchange, Strip
from afterturn.dialects.fields import field, list_field, text_field

_INSTRUCTION_ROLES = frozenset(["system", "developer"])
_RESPONSE_ROLES = frozenset(["tool", "function"])
_ROLES = _INSTRUCTION_ROLES | _RESPONSE_ROLES | {"user", "assistant"}
# Anthropic's and OpenAI Responses' parts. Providers add types of their own to chat, so only these speak against it.
_FOREIGN_PARTS = frozenset(["tool_use", "tool_result", "input_text", "input_image", "output_text"])
# How far back things are looked for, from the end: hosts' lists may be endless, and these run beside their turns.
_RESPONSES_LOOKED_AT = 512
_TURN_MESSAGES_MAX = 10_000
_USERS_COMPARED = 256
_PARTS_LOOKED_AT = 64


class OpenAIChat:
    name = "openai_chat"

    def speaks(self, message: object) -> bool | None:
        """True for a message of this format, False for one of another's, None when it could be anything."""
        if text_field(message, "role") not in _ROLES:
            return False if _has_foreign_fields(message) else None
        return not any(text_field(part, "type") in _FOREIGN_PARTS for part in _parts(message)[:_PARTS_LOOKED_AT])

    def read(self, message: object) -> Message | None:
        role = text_field(message, "role")
        if role not in _ROLES:
            return None
        text = _text(message)
        role = "tool" if role in _RESPONSE_ROLES else role
        named = text_field(message, "name") if role == "user" else None
        return Message(role=role, text=text, speaker=named or role, hash=content_hash(text))

    def latest_user(self, messages: Sequence[object], strip: Strip) -> tuple[int, str] | None:
        for at in _users(messages):
            text = _text(messages[at])
            said = strip(text)
            if said.strip():
                return at, said
            if said == text:
                return None  # the user's own message, with nothing in it to read: an image, or blank
        return None

    def has_open_call(self, messages: Sequence[object]) -> bool:
        """Responses whose call is out of sight are taken for those of one that still waits."""
        responses: list[object] = []
        for message in islice(reversed(messages), _RESPONSES_LOOKED_AT):
            role = text_field(message, "role")
            if role == "assistant":
                return _is_waiting(message, responses)
            if role in _RESPONSE_ROLES:
                responses.append(message)
        return bool(responses) and len(messages) > _RESPONSES_LOOKED_AT

    def is_point(self, messages: Sequence[object]) -> bool:
        """System and developer messages at the end are looked past; an unknown element there could be anything."""
        for message in islice(reversed(messages), _RESPONSES_LOOKED_AT):
            role = text_field(message, "role")
            if role in _INSTRUCTION_ROLES:
                continue
            return (role == "user" or role in _RESPONSE_ROLES) and not self.has_open_call(messages)
        return False

    def element(self, text: str) -> Mapping[str, Any]:
        return {"role": "user", "content": text}

    def exchange(self, messages: Sequence[object], user_hash: str, strip: Strip) -> Exchange:
        """Text that an assistant wrote beside a call is kept (the user has read it); a call alone is not."""
        start = self._find_user(messages, user_hash, strip)
        if start is None:
            return Exchange((), ends_complete=False)
        read = [self.read(message) for message in messages[start:]]
        known = [message for message in read if message and message.role not in _INSTRUCTION_ROLES]
        said = [_without_blocks(message, strip) for message in known]
        return Exchange(
            tuple(message for message in said if message.text.strip()),
            ends_complete=self._ends_complete(messages),
        )

    def _find_user(self, messages: Sequence[object], user_hash: str, strip: Strip) -> int | None:
        for at in islice(_users(messages), _USERS_COMPARED):
            if content_hash(strip(_text(messages[at]))) == user_hash:
                return at
        return None

    def _ends_complete(self, messages: Sequence[object]) -> bool:
        return text_field(messages[-1], "role") == "assistant" and not self.has_open_call(messages)


def _users(messages: Sequence[object]) -> Iterator[int]:
    """Where the users' messages are, the latest first, as far back as a turn may reach."""
    for at in range(len(messages) - 1, max(-1, len(messages) - 1 - _TURN_MESSAGES_MAX), -1):
        if text_field(messages[at], "role") == "user":
            yield at


def _without_blocks(message: Message, strip: Strip) -> Message:
    said = strip(message.text)
    if said == message.text:
        return message
    return Message(role=message.role, text=said, speaker=message.speaker, hash=content_hash(said))


def _text(message: object) -> str:
    """What a person would read: the text parts, one a line; a refusal when that is all there is."""
    content = text_field(message, "content")
    if content is not None:
        return content
    texts = [text_field(part, "text") or text_field(part, "refusal") or "" for part in _parts(message)]
    return "\n".join(text for text in texts if text) or text_field(message, "refusal") or ""


def _parts(message: object) -> Sequence[object]:
    return [
        {"type": "text", "text": part} if isinstance(part, str) else part for part in list_field(message, "content")
    ]


def _is_waiting(assistant: object, responses: Sequence[object]) -> bool:
    calls = list_field(assistant, "tool_calls")
    if not calls:
        return field(assistant, "function_call") is not None and not responses
    answered = {text_field(response, "tool_call_id") for response in responses}
    if all(text_field(call, "id") for call in calls):
        return any(text_field(call, "id") not in answered for call in calls)
    # Some local servers give calls no ids; then only their number can tell.
    return len(responses) < len(calls)


def _has_foreign_fields(message: object) -> bool:
    return text_field(message, "type") is not None or field(message, "parts") is not None
