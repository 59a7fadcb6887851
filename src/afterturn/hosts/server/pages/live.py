"""Live: what memory does now, turn by turn and change by change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.hosts.server.pages.request import PageRequest, page_route

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service


def routes(service: Service) -> list[BaseRoute]:
    return [page_route(service, "/", show_live)]


async def show_live(page: PageRequest) -> Response:
    return page.render("live.html", nav="Live", title="Live", spaces=await page.spaces())
