"""The JSON API for programs in any language, below /api/v1. FastAPI checks requests and writes the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.routing import BaseRoute, Mount

from afterturn.errors import AfterturnError
from afterturn.hosts.server.access import caller_of
from afterturn.hosts.server.app import error_response

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

PATH = "/api/v1"


class SearchHit(BaseModel):
    id: str
    text: str
    score: float


class SearchAnswer(BaseModel):
    hits: list[SearchHit]
    missing: list[str]


def routes(service: Service) -> list[BaseRoute]:
    return [Mount(PATH, make_api(service))]


def make_api(service: Service) -> FastAPI:
    api = FastAPI(title="afterturn", version="1", openapi_url="/openapi.json", docs_url=None, redoc_url=None)

    @api.exception_handler(AfterturnError)
    async def answer_error(request: Request, error: AfterturnError) -> JSONResponse:
        return error_response(error)

    @api.get("/spaces/{space}/search")
    async def search(
        request: Request, space: str, query: str, limit: Annotated[int, Query(ge=1, le=100)] = 10
    ) -> SearchAnswer:
        """Searches one space, best hits first."""
        caller = caller_of(request)
        caller.check("read")
        caller.check_read(space)
        memory = await service.memories.get(caller.grant.tenant)
        found = await memory.space(space).search(query, limit=limit)
        hits = [SearchHit(id=hit.entry.id, text=hit.entry.text, score=hit.score) for hit in found.hits]
        return SearchAnswer(hits=hits, missing=list(found.missing))

    return api
