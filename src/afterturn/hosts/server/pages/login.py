"""Signing in with the one-time link of `afterturn ui`, or with a token, and signing out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from afterturn.errors import TooLarge
from afterturn.hosts.server.access import COOKIE
from afterturn.hosts.server.pages.render import HEADERS, render
from afterturn.hosts.server.pages.request import FormFields, PageRequest, page_route

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

_BYTES_MAX = 4096
_UNKNOWN = "This token is not valid. `afterturn token list` shows those that are, `afterturn token create` makes one."
_USED = "This link was used already, or is older than five minutes. Run `afterturn ui` again for a new one."


def routes(service: Service) -> list[BaseRoute]:
    async def log_in(request: Request) -> Response:
        """The value of the cookie is always a new one, so nobody can choose it for somebody else."""
        value = service.sessions.open(request.query_params.get("code", ""))
        return _refuse(_USED) if value is None else _open(request, value)

    async def log_in_with_token(request: Request) -> Response:
        """For the people of a team, who get a token and no link."""
        if not service.is_own_origin(request):
            return _refuse("This form comes from another site, so it is refused.", 403)
        value = service.authentication.start_session(FormFields(await _read(request)).get("token").strip())
        return _refuse(_UNKNOWN) if value is None else _open(request, value)

    async def log_out(page: PageRequest) -> Response:
        service.sessions.close(page.cookie)
        message = "You are signed out. Run `afterturn ui` for a new link."
        answer = render("error.html", title="Signed out", status=200, type="SignedOut", message=message)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    return [
        Route("/login", log_in),
        Route("/login", log_in_with_token, methods=["POST"]),
        page_route(service, "/logout", log_out, method="POST"),
    ]


def _open(request: Request, value: str) -> Response:
    answer = RedirectResponse("/", status_code=303, headers=HEADERS)
    is_encrypted = request.url.scheme == "https"
    answer.set_cookie(COOKIE, value, path="/", httponly=True, samesite="strict", secure=is_encrypted)
    return answer


def _refuse(message: str, status: int = 401) -> Response:
    title = "Please sign in" if status == 401 else "Not allowed"
    return render("error.html", status, title=title, status=status, type="NotAuthenticated", message=message)


async def _read(request: Request) -> bytes:
    """Anybody may send this form, so it has a limit of its own."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BYTES_MAX:
            raise TooLarge(f"The form has more than {_BYTES_MAX} bytes.", size_bytes=len(body), limit_bytes=_BYTES_MAX)
    return body
