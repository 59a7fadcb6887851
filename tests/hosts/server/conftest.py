"""The service without a socket, and clients of it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest
from served import HOST, WITHIN, Api, make_service, make_token

from afterturn.hosts.server.app import Service, make_app


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


@pytest.fixture
async def service(tmp_path: Path) -> Service:
    return make_service(tmp_path)


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Callable[..., Api]]:
    """Makes a client with a token of its own: `connect("name", space=…, scopes=…)`, or None for no token."""
    app = make_app(service)
    clients: list[httpx2.AsyncClient] = []

    def connect(name: str | None, **options: object) -> Api:
        headers = {} if name is None else {"Authorization": f"Bearer {make_token(name, **options)}"}
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        client = httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers, timeout=WITHIN)
        clients.append(client)
        return Api(client)

    async with app.router.lifespan_context(app):
        yield connect
        for client in clients:
            await client.aclose()


@pytest.fixture
async def api(connect: Callable[..., Api]) -> Api:
    """A client with the default token: it reads and writes user:ada."""
    return connect("ada")
