"""Refusals and errors as pages, for browsers that asked for one. Programs get JSON."""

from __future__ import annotations

import json

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from afterturn.hosts.server.pages.render import render

# The other parts of the server, whose answers are for programs.
_PROGRAMS = ("/api/", "/v1/", "/mcp", "/mem0/", "/metrics", "/livez", "/readyz", "/static/")
_KEPT = ("www-authenticate", "retry-after", "allow")
_SIGN_IN = "These pages show what memory knows, so they are for people who are signed in."
_TITLES = {
    400: "This cannot be done",
    401: "Please sign in",
    403: "Not allowed",
    404: "Not found",
    405: "Not found",
    409: "Something has changed",
    413: "Too large",
    429: "Too many requests",
    503: "Memory is not available now",
}


def as_page(connection: HTTPConnection, answer: Response) -> Response:
    """The same refusal for a person."""
    wants_page = "text/html" in connection.headers.get("accept", "")
    if not wants_page or connection.scope["path"].startswith(_PROGRAMS) or not isinstance(answer, JSONResponse):
        return answer
    error = json.loads(bytes(answer.body))["error"]
    status = answer.status_code
    title = _TITLES.get(status, "Something went wrong")
    message = _SIGN_IN if error["type"] == "NotAuthenticated" else error["message"]
    shown = render("error.html", status, title=title, status=status, type=error["type"], message=message)
    shown.headers.update({name: answer.headers[name] for name in _KEPT if name in answer.headers})
    return shown
