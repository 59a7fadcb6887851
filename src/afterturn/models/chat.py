"""OpenAICompatible: a chat model behind any server that offers OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from afterturn.errors import InvalidInput, ModelRefused, ModelUnavailable
from afterturn.models.client import HttpClient, Reply, ReplyReader, ServerKind
from afterturn.models.meter import MODEL_TIMEOUT

ANSWER_BYTES_MAX = 1 << 20
CHAT = ServerKind(
    name="model server",
    path="/chat/completions",
    url="model_url",
    key="model_key",
    model="model",
    answer_bytes_max=ANSWER_BYTES_MAX,
)


def read_reply(reader: ReplyReader, reply: Reply) -> dict[str, Any]:
    """The assistant's message, with the server's token counts under "usage". Raises ModelError if there is none."""
    document = reader.document(reply)
    message = _message(document)
    if message is None:
        raise reader.invalid(f"did not send a chat completion: {reader.quoted(reply)}", "no_completion")
    usage = {"usage": document["usage"]} if isinstance(document.get("usage"), dict) else {}
    return {"content": None, **message, **usage, "role": "assistant"}


def _message(document: Any) -> dict[str, Any] | None:
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


# The status with which servers refuse `response_format`, or a part of a schema.
_SCHEMA_REFUSED = (400, 422)


class OpenAICompatible:
    """A ChatModel that calls an OpenAI-compatible server over HTTP.

    `url` is a base address such as http://localhost:8080/v1. `timeout` limits a whole call, with up to `retries`
    further attempts. `service` decides which settings an error names. Raises ConfigError for a `url` or `key` that
    cannot be used. The key is never in an error, a log or the repr.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        timeout: float = MODEL_TIMEOUT,
        retries: int = 2,
        service: ServerKind = CHAT,
    ) -> None:
        self._client = HttpClient(service, url, key=key, timeout=timeout, retries=retries)
        self._model = model
        self._takes_schema = True
        self._closed = False

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._client.shown!r}, {self._model!r})"

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Returns the assistant's message. If the server refuses `schema`, asks again without it, and leaves it out
        from then on."""
        if self._closed:
            raise ModelUnavailable(f"{self!r} is closed. Create another one.", reason="closed")
        async with self._client.bounded() as deadline:
            if schema is not None and self._takes_schema:
                return await self._ask_with_schema(schema, messages, tools, deadline)
            return await self._ask(self._body(messages, tools), deadline)

    async def aclose(self) -> None:
        """Refuses new calls. A running call closes its connection when it ends or is cancelled."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def _ask_with_schema(
        self,
        schema: Mapping[str, Any],
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        deadline: asyncio.Timeout,
    ) -> dict[str, Any]:
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)}}
        try:
            return await self._ask(self._body(messages, tools, response_format=form), deadline)
        except ModelRefused as error:
            if error.status not in _SCHEMA_REFUSED:
                raise
        answer = await self._ask(self._body(messages, tools), deadline)
        self._takes_schema = False
        return answer

    async def _ask(self, body: bytes, deadline: asyncio.Timeout) -> dict[str, Any]:
        return await self._client.ask(body, functools.partial(read_reply, self._client.reader), deadline)

    def _body(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], **form: Mapping[str, Any]
    ) -> bytes:
        request = {"model": self._model, "messages": [dict(message) for message in messages], "stream": False, **form}
        if tools:
            request["tools"] = [dict(tool) for tool in tools]
        try:
            text = json.dumps(request, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"The messages cannot be written as JSON: {error}. Pass plain values.") from error
        # JSON can contain half of a surrogate pair, which UTF-8 cannot encode.
        return text.encode("utf-8", "replace")
