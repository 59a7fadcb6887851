"""One request of a person to a page, and the notices that the next page shows them."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from afterturn.errors import InvalidInput
from afterturn.hosts.server.access import COOKIE, caller_of
from afterturn.hosts.server.api_context import RequestContext
from afterturn.hosts.server.pages.render import HEADERS, render
from afterturn.types import SpaceSummary

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

PageFunction: TypeAlias = Callable[["PageRequest"], Awaitable[Response]]
_NOTICES_MAX = 1000
_FIELDS_MAX = 5000


@dataclass(frozen=True, slots=True)
class Notice:
    """What was done, for the caller who did it. `undo` are spaces with operations, in the order in which they ran."""

    caller: str
    text: str
    undo: tuple[tuple[str, str], ...]


class FormFields:
    """The fields of a form. One that is missing is empty."""

    def __init__(self, body: bytes) -> None:
        try:
            text = body.decode("utf-8")
            self._fields = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict")
        except ValueError as error:
            raise InvalidInput("The form cannot be read. Load the page again.") from error

    def get(self, name: str) -> str:
        # Browsers send line breaks as two characters.
        return self._fields.get(name, [""])[-1].replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def need(self, name: str) -> str:
        """Raises InvalidInput if the field is empty."""
        if not (value := self.get(name).strip()):
            raise InvalidInput(f"The field {name!r} is empty. Go back and fill it in.")
        return value


class PageRequest(RequestContext):
    """The caller, checked as in the API, with what a page needs to answer. `form` is empty for a GET."""

    def __init__(self, service: Service, request: Request) -> None:
        self.service = service
        self.caller = caller_of(request)
        self._request = request
        self.query = request.query_params
        self.form = FormFields(b"")

    @property
    def cookie(self) -> str:
        """The value of the session's cookie, empty without one."""
        return self._request.cookies.get(COOKIE, "")

    @property
    def here(self) -> str:
        """The address of this page, without the notice that it shows."""
        query = [(name, value) for name, value in self.query.multi_items() if name != "notice"]
        return _path_of(self._request) + (f"?{urlencode(query)}" if query else "")

    @property
    def path(self) -> dict[str, str]:
        """The named parts of the path."""
        return dict(self._request.path_params)

    async def spaces(self) -> list[SpaceSummary]:
        """The spaces that the caller may read, by name."""
        memory = await self.memory("inspect")
        return [one for one in await memory.spaces() if self.may_read(one.name)]

    def render(self, template: str, status: int = 200, /, **values: Any) -> Response:
        found = _notices.get(self.query.get("notice", ""))
        notice = found if found is not None and found.caller == self.caller.id else None
        return render(template, status, **{"page": self, "here": self.here, "notice": notice, **values})

    def done(self, text: str, undo: Sequence[tuple[str, str]] = (), to: str = "") -> Response:
        """Redirects to `to`, or to the form's `next`, which says what was done."""
        target = to or own_path(self.form.get("next"))
        id = secrets.token_urlsafe(12)
        _notices[id] = Notice(self.caller.id, text, tuple((space, one) for space, one in undo if one))
        if len(_notices) > _NOTICES_MAX:
            _notices.popitem(last=False)
        address, hash, place = target.partition("#")
        path, _, query = address.partition("?")
        kept = [part for part in query.split("&") if part and not part.startswith("notice=")]
        return self.go(f"{path}?{'&'.join([*kept, f'notice={id}'])}{hash}{place}")

    def go(self, to: str) -> Response:
        return RedirectResponse(to, status_code=303, headers=HEADERS)


# By a random id, which only the browser of the caller gets.
_notices: OrderedDict[str, Notice] = OrderedDict()


def page_route(service: Service, path: str, function: PageFunction, *, method: str = "GET") -> Route:
    """A page for callers with the scope "inspect". What it changes needs its own scopes."""

    async def answer(request: Request) -> Response:
        page = PageRequest(service, request)
        page.caller.check("inspect")
        if method == "POST":
            page.form = FormFields(await request.body())
        return await function(page)

    answer.__name__ = function.__name__
    return Route(path, answer, methods=[method], name=function.__name__)


def own_path(address: str) -> str:
    """The address if it is a path on this server, "/" otherwise."""
    parts = urlsplit(address.strip()) if address.isprintable() and "\\" not in address else None
    is_own = parts is not None and not parts.scheme and not parts.netloc and address.startswith("/")
    return address if is_own and not address.startswith("//") else "/"


def _path_of(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return raw.partition(b"?")[0].decode("latin-1")
