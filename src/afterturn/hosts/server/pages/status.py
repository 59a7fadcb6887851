"""Health: what waits, what failed, what the doctor says, and who may use and has used this server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.errors import AfterturnError, InvalidFile
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.hosts.server.tokens import Token, list_tokens
from afterturn.types import Finding

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

_AUDIT_SHOWN = 40
# Checking reads the whole store, which takes a second for this much; a larger one is checked when somebody asks.
_CHECKED_BYTES = 300_000_000


def routes(service: Service) -> list[BaseRoute]:
    return [
        page_route(service, "/health", show_health),
        page_route(service, "/health/retry", retry_dead, method="POST"),
    ]


async def show_health(page: PageRequest) -> Response:
    """The store is that of the whole tenant, so all but the caller's own requests is for those who may read all of
    it."""
    memory = await page.memory("inspect")
    sees_all, stats, findings = page.may_read("*"), None, list[Finding]()
    if sees_all:
        try:
            stats = await memory.stats()
            may_check = stats["size_bytes"] < _CHECKED_BYTES or page.query.get("check")
            findings = list(await memory.check()) if may_check else []
        except AfterturnError as error:
            findings = [Finding("error", "store", str(error))]
    return page.render(
        "health.html",
        nav="Health",
        title="Health",
        sees_all=sees_all,
        stats=stats,
        findings=findings,
        open_turns=page.service.turns.count(page.caller.grant.tenant),
        started_at=page.service.started_at,
        tokens=_tokens(page) if sees_all else None,
        audit=_audit(page, sees_all=sees_all),
        may_retry=page.caller.grant.may_write("*"),
    )


async def retry_dead(page: PageRequest) -> Response:
    page.check_write("*")
    count = await (await page.memory("write")).retry_dead()
    return page.done(f"{count} job{'s' if count != 1 else ''} will be tried again.", to="/health")


def _tokens(page: PageRequest) -> list[Token] | None:
    """None if the file of tokens cannot be read."""
    try:
        return [one for one in list_tokens() if one.grant.tenant == page.caller.grant.tenant]
    except InvalidFile:
        return None


def _audit(page: PageRequest, *, sees_all: bool) -> list[dict[str, Any]]:
    """The newest requests of this process, the newest first."""
    tenant, own = page.caller.grant.tenant, page.caller.id
    rows = [row for row in page.service.audit.recent if row["tenant"] == tenant and (sees_all or row["caller"] == own)]
    return rows[: -_AUDIT_SHOWN - 1 : -1]
