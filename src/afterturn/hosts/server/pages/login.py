"""Signing in with the one-time link of `afterturn ui`, and signing out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from afterturn.hosts.server.access import COOKIE
from afterturn.hosts.server.pages.render import HEADERS, render
from afterturn.hosts.server.pages.request import PageRequest, page_route

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

_USED = "This link was used already, or is older than five minutes. Run `afterturn ui` again for a new one."


def routes(service: Service) -> list[BaseRoute]:
    async def log_in(request: Request) -> Response:
        """The value of the cookie is always a new one, so nobody can choose it for somebody else."""
        value = service.sessions.open(request.query_params.get("code", ""))
        if value is None:
            return render("error.html", 401, title="Please sign in", status=401, type="LinkUsed", message=_USED)
        answer = RedirectResponse("/", status_code=303, headers=HEADERS)
        is_encrypted = request.url.scheme == "https"
        answer.set_cookie(COOKIE, value, path="/", httponly=True, samesite="strict", secure=is_encrypted)
        return answer

    async def log_out(page: PageRequest) -> Response:
        service.sessions.close(page.cookie)
        message = "You are signed out. Run `afterturn ui` for a new link."
        answer = render("error.html", title="Signed out", status=200, type="SignedOut", message=message)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    return [Route("/login", log_in), page_route(service, "/logout", log_out, method="POST")]
