"""The routes of mem0's hosted platform and of its self-hosted server, below /mem0, over the mem0 face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service


def routes(service: Service) -> list[BaseRoute]:
    return []
