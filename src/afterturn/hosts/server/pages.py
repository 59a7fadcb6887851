"""The inspector: pages for people, rendered on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service


def routes(service: Service) -> list[BaseRoute]:
    return []
