"""The inspector: pages for people, rendered on the server. Every form works without the script.

A page is a module with `routes(service)` in `_PAGES`, made of `page_route(service, path, function)`. Its function takes
a `PageRequest` (`request.py`), which is the API's `RequestContext`: `await page.reading(space)` and
`await page.writing(space, scope)` return the space or raise NotAllowed, so no page reaches what the caller may not.
It is refused without the scope "inspect", whatever it does.

- A GET returns `page.render("name.html", **values)`. The template extends "base.html", which needs `nav` (the name of
  the page in the header) and `title`. `macros.html` has what pages share: moments, chips, spaces, diffs, the Fix menu,
  undo buttons, the links to other pages of a list.
- A POST reads `page.form` (`get`, `all`), changes something through the verbs of a space, and returns
  `page.done("Saved.", undo=[(space, operation)])`. That redirects to the form's `next`, which shows the notice with
  an Undo button. `operation` is what the verb returned; an empty one is left out.
- Raise an AfterturnError for what is wrong: `errors.py` shows it as a page.
- Forms are `<form method="post" action="/…">` with `<input type="hidden" name="next" value="{{ here }}">`. `here` is
  the address of the page that is shown. The server refuses forms of other sites.
- A page with a style or a script of its own has them in static/, and names them in the blocks `styles` and `scripts`.
  `data-key="j"` on a link or a button lets that key press it.
- Texts of memories and messages are escaped by the templates. Nothing may be marked as safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from afterturn.hosts.server.pages import (
    about,
    errors,
    fixes,
    forgetting,
    inbox,
    live,
    login,
    memories,
    memory_detail,
    render,
    status,
    turn,
)

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

_PAGES = (render, login, fixes, live, turn, memories, memory_detail, inbox, about, forgetting, status)


def routes(service: Service) -> list[BaseRoute]:
    service.show_refusal = errors.as_page
    return [route for page in _PAGES for route in page.routes(service)]
