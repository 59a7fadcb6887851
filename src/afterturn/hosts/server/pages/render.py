"""Templates, the style and the script of the pages, and the headers that every page has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from afterturn.recall.block import describe_age
from afterturn.runtime.clock import SystemClock
from afterturn.scanners.invisible import clean

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

# Longer texts are compared as far as that.
_DIFF_CHARS_MAX = 20_000
# What a browser may do with our pages: load our own files and nothing else, and nobody may frame them.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # Without a referrer a browser sends `Origin: null` with forms, and the server could not tell ours from others.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = Path(__file__).with_name("static")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: path.read_bytes() for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}
# A browser keeps a file for good, so its address changes with its bytes.
_VERSIONS = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in _FILES.items()}


def routes(service: Service) -> list[BaseRoute]:
    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("Not found.", status_code=404)
        kept = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(_FILES[name], media_type=_TYPES[Path(name).suffix], headers=kept)

    return [Route("/static/{name}", static)]


def render_text(template: str, **values: Any) -> str:
    """A part of a page, or a whole one."""
    return _ENVIRONMENT.get_template(template).render(**values)


def render(template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    return HTMLResponse(render_text(template, **values), status_code=status, headers=HEADERS)


def link(path: str, **query: str | int | None) -> str:
    """An address on this server: an escaped path, and a query without what is None or empty."""
    named = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return path + (f"?{urlencode(named)}" if named else "")


def turn_link(owner: str, conversation: str, turn: str) -> str:
    return link(f"/turns/{quote(turn, safe='')}", owner=owner, conversation=conversation)


def _static(name: str) -> str:
    return f"/static/{name}?v={_VERSIONS[name]}"


def _moment(at: float | None) -> datetime | None:
    """In the time zone of the server."""
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return None


def _shown_as(pattern: str) -> Callable[[float | None], str]:
    def show(at: float | None) -> str:
        moment = _moment(at)
        return "" if moment is None else moment.strftime(pattern)

    return show


_day = _shown_as("%Y-%m-%d")


def _iso(at: float | None) -> str:
    moment = _moment(at)
    return "" if moment is None else moment.isoformat(timespec="seconds")


def _age(at: float) -> str:
    return describe_age(at, SystemClock().now())


def _shortly(at: float) -> str:
    """The time if it is today, else the day."""
    moment = _moment(at)
    is_today = moment is not None and _day(at) == _day(SystemClock().now())
    return "" if moment is None else moment.strftime("%H:%M" if is_today else "%b %-d")


def visible(text: object) -> str:
    """The text with characters that cannot be seen, or that turn it around, as escapes."""
    return clean(str(text), lambda hidden: hidden.encode("unicode_escape", "surrogatepass").decode())


def milliseconds(value: float | None) -> str:
    if value is None:
        return ""
    if value < 10:
        return f"{value:.1f} ms"
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def word_diff(before: str, after: str) -> list[tuple[str, str]]:
    """The texts in pieces of whole words, each "same", "removed" or "added"."""
    old, new = (re.findall(r"\s+|\w+|[^\w\s]", text[:_DIFF_CHARS_MAX]) for text in (before, after))
    pieces: list[tuple[str, str]] = []
    for tag, start, end, from_new, to_new in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            pieces.append(("same", "".join(old[start:end])))
            continue
        changed = (("removed", old[start:end]), ("added", new[from_new:to_new]))
        pieces += [(kind, "".join(words)) for kind, words in changed if words]
    return pieces


def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("afterturn.hosts.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"static": _static, "link": link, "turn_link": turn_link, "word_diff": word_diff}
    environment.filters |= {
        "age": _age,
        "clock": _shown_as("%H:%M"),
        "seconds": _shown_as("%H:%M:%S"),
        "date": _day,
        "shortly": _shortly,
        "when": _shown_as("%Y-%m-%d %H:%M"),
        "iso": _iso,
        "milliseconds": milliseconds,
        "visible": visible,
    }
    return environment


_ENVIRONMENT = _make_environment()
