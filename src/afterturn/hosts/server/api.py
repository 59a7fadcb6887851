"""The JSON API for programs in any language, below /api/v1. FastAPI checks requests and writes the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import PydanticSerializationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from afterturn.errors import AfterturnError, InvalidInput
from afterturn.hosts.server import api_conversations, api_events, api_reviews, api_spaces, api_turns
from afterturn.hosts.server.api_context import ERRORS
from afterturn.hosts.server.app import error_response, fault_response, refusal

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

PATH = "/api/v1"
_DESCRIPTION = (
    "Memory for programs in any language. A turn is a conversation's user message and the agent's answer to it; its "
    "verbs may be repeated safely. Every request needs a token of `afterturn token create`, as a bearer token."
)


def routes(service: Service) -> list[BaseRoute]:
    return [Mount(PATH, _EncodedPaths(make_api(service)))]


def make_api(service: Service | None) -> FastAPI:
    """`service` is None if only the OpenAPI document is wanted."""
    api = FastAPI(
        title="afterturn",
        version="1",
        description=_DESCRIPTION,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": PATH}],
        root_path_in_servers=False,
        generate_unique_id_function=lambda route: route.name,
        responses=ERRORS,
    )
    api.state.service = service
    for part in (api_turns, api_conversations, api_spaces, api_reviews, api_events):
        api.include_router(part.router)
    _handle_errors(api)
    _describe(api)
    return api


def _handle_errors(api: FastAPI) -> None:
    @api.exception_handler(AfterturnError)
    async def answer_error(request: Request, error: AfterturnError) -> JSONResponse:
        return error_response(error)

    @api.exception_handler(Exception)
    async def answer_fault(request: Request, error: Exception) -> JSONResponse:
        """It is raised again, and the application around this one writes it into the log."""
        return fault_response()

    @api.exception_handler(RequestValidationError)
    async def answer_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return error_response(InvalidInput(f"{where[:200]}: {first['msg'][:500]}."))

    @api.exception_handler(PydanticSerializationError)
    async def answer_unwritable(request: Request, error: PydanticSerializationError) -> JSONResponse:
        return error_response(InvalidInput("A message is nested too deeply to be sent back. Write it flatter."))

    @api.exception_handler(HTTPException)
    async def answer_refused(request: Request, error: HTTPException) -> JSONResponse:
        """What the framework refuses: an unknown path, another method, a body that cannot be read."""
        if isinstance(error.__cause__, AfterturnError):
            return error_response(error.__cause__)
        phrase, headers = HTTPStatus(error.status_code).phrase, dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # The framework names only the methods of the first route of this path.
            found = (route for route in api.routes if route.matches(request.scope)[0] is not Match.NONE)
            headers["Allow"] = ", ".join(sorted({one for route in found for one in getattr(route, "methods", ())}))
        return refusal(error.status_code, phrase.replace(" ", ""), f"{phrase}.", **headers)


def _describe(api: FastAPI) -> None:
    """Completes the OpenAPI document: how to authenticate, and errors as they are answered."""
    make = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            document = make()
            components = document["components"]
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
        assert api.openapi_schema is not None
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says


class _EncodedPaths:
    """Routes by the path as it was sent, so that a name with an encoded slash stays one segment."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = {**scope, "path": scope["raw_path"].partition(b"?")[0].decode("latin-1")}
        try:
            await self._app(sent, receive, send)
        finally:
            scope["endpoint"] = sent.get("endpoint")
