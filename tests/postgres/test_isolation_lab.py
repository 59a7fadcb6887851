"""The isolation lab on a server, by an ordinary role. Its environment has LangGraph, too."""

import pytest

from lab.isolation.__main__ import run_seed
from lab.postgres.server import PostgresServer
from lab.postgres.stores import PostgresTarget

pytestmark = pytest.mark.postgres


async def test_nobody_sees_what_belongs_to_others(server: PostgresServer) -> None:
    """L2: also by the role that all hosts have, with row-level security."""
    result = await run_seed(1, PostgresTarget(server), tenants=3, spaces=6, operations=800)
    assert result.broken == []
    assert (result.counts["operations"], result.counts["spaces"]) == (800, 18)
    assert min(result.counts[face] for face in ("mem0", "langgraph", "rows of a role")) > 0
