"""HttpEmbedder: an embedder behind any server with OpenAI's embeddings API, and the parser of its replies."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from afterturn.errors import EmbedderUnavailable, ForkedProcess, MemoryClosed, ModelError, ModelRefused
from afterturn.log import logger
from afterturn.models.client import HttpClient, Reply, ReplyReader, ServerKind
from afterturn.runtime.loop_thread import LoopThread
from afterturn.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows: TypeAlias = NDArray[np.float32]


EMBEDDINGS = ServerKind(
    name="embedding server",
    path="/embeddings",
    url="embedder_url",
    key="embedder_key",
    model="embedder_model",
    # 32 vectors of 4,096 numbers, each written with twenty digits.
    answer_bytes_max=1 << 22,
)


def read_vectors(reader: ReplyReader, reply: Reply, *, count: int) -> NDArray[np.float32]:
    """One row per text, of unit length, or zero if the server returned zeros. Raises ModelError for anything else."""
    import numpy as np

    document = reader.document(reply)
    items = document.get("data") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise reader.invalid(f"sent no embeddings: {reader.quoted(reply)}", "no_embeddings")
    if len(items) != count:
        raise reader.invalid(f"sent {len(items)} embeddings for {count} texts", "wrong_count")
    # In the order of the answer, unless every item has its own index.
    placed = {item["index"]: item for item in items if type(item.get("index")) is int}
    ordered = [placed[at] for at in range(count)] if placed.keys() == set(range(count)) else items
    rows = [_row(item.get("embedding")) for item in ordered]
    sizes = {0 if row is None else row.size for row in rows}
    if 0 in sizes:
        raise reader.invalid("sent an embedding that is not a list of numbers", "no_numbers")
    if len(sizes) > 1:
        raise reader.invalid(f"sent embeddings of different sizes: {sorted(sizes)}", "wrong_dimensions")
    vectors = np.array(rows, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise reader.invalid("sent numbers that are not finite", "not_finite")
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    return vectors


def _row(embedding: Any) -> NDArray[np.float32] | None:
    import numpy as np

    try:
        if isinstance(embedding, str):
            return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
        if isinstance(embedding, list):
            row = np.array(embedding, dtype=np.float32)
            return row if row.ndim == 1 else None
    except (TypeError, ValueError, OverflowError):
        return None
    return None


# How many texts servers accept by default, and compute well within a timeout.
_BATCH_TEXTS = 32
_BATCH_CHARS = 32_768
# More of a text adds little, and most models read less.
_TEXT_CHARS_MAX = 8192
# Lengths to try for a text that a server finds too long. Servers count tokens, which are unknown here.
_SHORTER_CHARS = (2048, 512)
# Status codes for a request that is too large, or with an unknown field.
_REFUSED = (400, 413, 422)
_END_WITHIN = 2.0
_PROBE = "warm"
_ADVICE = "`afterturn doctor` asks it again and shows what it says."


class HttpEmbedder:
    """The Embedder port over HTTP. `url` is a base such as http://localhost:8080/v1; `timeout` bounds one request.

    Its identity contains the server's address, since another server may use the same name for another model. A model
    that changes behind the same name and address is not noticed. The length of vectors is known after the first answer.
    Raises ConfigError for a `url` or `key` that cannot be used. Thread-safe. Connections are kept open on a thread that
    starts with the first call and ends with `close`.
    """

    # A request has a fixed cost, however short it is.
    batch_texts = _BATCH_TEXTS

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        dimensions: int | None = None,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        self._client = HttpClient(EMBEDDINGS, url, key=key, timeout=timeout, retries=retries, keeps=True)
        self._model = model
        self._wanted = dimensions
        self._dimensions: int | None = None
        self._takes_base64 = True
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpEmbedder({self._client.shown!r}, {self._model!r})"

    @property
    def identity(self) -> EmbedderIdentity:
        """Raises EmbedderUnavailable before the first answer."""
        if self._dimensions is None:
            raise EmbedderUnavailable(f"{self!r} has not answered yet, so the length of its vectors is not known.")
        place = urlsplit(self._client.shown)
        return EmbedderIdentity(f"{self._model}@{place.netloc.lower()}{place.path}", "http-1", self._dimensions)

    def embed(self, texts: Sequence[str]) -> Rows:
        try:
            return self._running().wait(self._embed_all(texts))
        except ModelError as error:
            if self._dimensions is None or list(texts) == [_PROBE]:
                raise EmbedderUnavailable(f"{error} Until then recall uses words only.") from error
            # A server's message may quote the text, which is somebody's memory.
            raise EmbedderUnavailable(f"{self!r} returned no vectors: {error.reason}. {_ADVICE}") from None
        except (MemoryClosed, ForkedProcess) as error:
            raise EmbedderUnavailable(f"{self!r} is closed. Open memory again.") from error

    def close(self) -> None:
        """Ends running calls, from any thread. No call can begin afterwards."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.end(self._end)
            loop.wait_ended(within=_END_WITHIN)

    def _running(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise MemoryClosed("The embedder is closed. Open memory again.")
            if self._loop is None:
                self._loop = LoopThread("afterturn-http")
                self._loop.start()
            return self._loop

    async def _end(self) -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._client.aclose()

    async def _embed_all(self, texts: Sequence[str]) -> Rows:
        import numpy as np

        plain = [text[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode().strip() for text in texts]
        with_text = [at for at, text in enumerate(plain) if text]
        if self._dimensions is None and not with_text:
            await self._request_in_either_format([_PROBE])
        parts = [await self._embed_batch([plain[at] for at in batch]) for batch in _batches(plain, with_text)]
        assert self._dimensions is not None
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        if parts:
            vectors[with_text] = np.concatenate(parts)
        return vectors

    async def _embed_batch(self, texts: list[str]) -> Rows:
        """One batch. A batch that the server refuses is sent in halves, so that one text cannot block the others."""
        import numpy as np

        try:
            return await self._request_in_either_format(texts)
        except ModelRefused as error:
            if error.status not in _REFUSED or self._dimensions is None:
                raise
            if len(texts) == 1:
                return await self._embed_shortened(texts[0])
        middle = len(texts) // 2
        return np.concatenate([await self._embed_batch(texts[:middle]), await self._embed_batch(texts[middle:])])

    async def _embed_shortened(self, text: str) -> Rows:
        import numpy as np

        for chars in _SHORTER_CHARS:
            if len(text) > chars:
                try:
                    return await self._request_in_either_format([text[:chars]])
                except ModelRefused as error:
                    if error.status not in _REFUSED:
                        raise
        # A server that refuses everything has another reason, and nothing may be stored for it.
        await self._request_in_either_format([_PROBE])
        logger.warning("%r refuses a text of %d characters; it is found by its words alone", self, len(text))
        return np.zeros((1, self._dimensions or 0), dtype=np.float32)

    async def _request_in_either_format(self, texts: list[str]) -> Rows:
        if not self._takes_base64 or self._dimensions is not None:
            return await self._request(texts)
        try:
            return await self._request(texts)
        except ModelRefused as error:
            if error.status not in _REFUSED:
                raise
        self._takes_base64 = False
        try:
            return await self._request(texts)
        except BaseException:
            # The format was not the reason.
            self._takes_base64 = True
            raise

    async def _request(self, texts: list[str]) -> Rows:
        read = functools.partial(read_vectors, self._client.reader, count=len(texts))
        request: dict[str, object] = {"model": self._model, "input": texts}
        if self._takes_base64:
            # A quarter of the bytes, and Python's lock is not held while digits are parsed.
            request["encoding_format"] = "base64"
        if self._wanted is not None:
            request["dimensions"] = self._wanted
        async with self._client.bounded() as deadline:
            vectors = await self._client.ask(json.dumps(request, ensure_ascii=False).encode(), read, deadline)
        size = vectors.shape[1]
        if self._wanted is not None and size != self._wanted:
            raise EmbedderUnavailable(
                f"{self!r} answers with {size} numbers per text, but dimensions is {self._wanted}. "
                f"Unset it, or set it to {size}: not every model can return shorter vectors."
            )
        if self._dimensions is not None and size != self._dimensions:
            raise EmbedderUnavailable(
                f"{self!r} answers with {size} numbers per text; it was {self._dimensions} before, so it is "
                "another model now. Open memory again to embed everything with it."
            )
        self._dimensions = size
        return vectors


def _batches(texts: Sequence[str], wanted: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    chars = 0
    for at in wanted:
        if batch and (len(batch) >= _BATCH_TEXTS or chars + len(texts[at]) > _BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(at)
        chars += len(texts[at])
    if batch:
        yield batch
