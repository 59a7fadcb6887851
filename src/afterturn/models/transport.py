"""HTTP by httpx2, which is loaded with the first call, on a thread of its own: importing it takes long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from afterturn.base.errors import ConfigError, ModelUnavailable
from afterturn.base.loop import run_on
from afterturn.base.worker import ThreadWorker
from afterturn.models.endpoint import Endpoint
from afterturn.models.replies import ANSWER_BYTES_MAX, ERROR_BYTES_MAX, Reply

if TYPE_CHECKING:
    import ssl

    import httpx2


class Transport:
    """Posts to one endpoint. A connection lives as long as its call, so that any event loop may call, and fork."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str]) -> None:
        import httpx2

        self._library = httpx2
        self._endpoint = endpoint
        self._headers = dict(headers)
        # Reading the machine's certificates takes 20 to 100 ms; every connection shares them.
        self._tls: ssl.SSLContext = httpx2.create_ssl_context()
        # The first client and its backend import more, which is better done here than on the loop.
        self._client()
        import anyio._backends._asyncio  # noqa: F401

    async def post(self, body: bytes) -> Reply:
        """Waits without a limit: the caller sets it. ModelUnavailable when there is no whole reply."""
        try:
            async with self._client() as client, client.stream("POST", self._endpoint.url, content=body) as response:
                return await _read(response)
        except self._library.InvalidURL as error:
            raise ConfigError(f"model_url is {self._endpoint.shown!r}, which is no address: {error}.") from error
        except self._library.HTTPError as error:
            what = str(error) or type(error).__name__
            raise ModelUnavailable(
                f"The model server {self._endpoint.shown} can not be reached: {what}. "
                "Start it, or check model_url and the network.",
                reason="unreachable",
            ) from error

    def _client(self) -> httpx2.AsyncClient:
        # Compressed, a small reply could become a large one.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json", **self._headers}
        return self._library.AsyncClient(headers=headers, verify=self._tls, timeout=None)


async def load_transport(endpoint: Endpoint, headers: Mapping[str, str]) -> Transport:
    """Away from the loop, which goes on meanwhile. ModelUnavailable where httpx2 is not installed."""
    worker = ThreadWorker("afterturn-models")
    try:
        return await run_on(worker, lambda: Transport(endpoint, headers))
    except ImportError as error:
        raise ModelUnavailable(
            f"A model needs a package that is not installed ({error}). Run `pip install afterturn[models]`.",
            reason="not_installed",
        ) from error
    finally:
        worker.close(within=0.0)


async def _read(response: httpx2.Response) -> Reply:
    bytes_max = ANSWER_BYTES_MAX if response.status_code == 200 else ERROR_BYTES_MAX
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > bytes_max:
            break
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, bytes(body[:bytes_max]), is_cut=len(body) > bytes_max)
