"""The lab of crashes on a server, in a small size."""

import pytest

from afterturn import blocking
from lab.loss.judge import look_at
from lab.postgres.crashes import PARTS, Size, run_seed
from lab.postgres.server import PostgresServer
from lab.tables import open_tables

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

SIZE = Size(kills=2, crashes=1, lines=80)


@pytest.mark.parametrize(
    "part, counted", [("kill", "kills"), ("cut", "connections cut"), ("leases", "jobs that ran twice")]
)
def test_nothing_acknowledged_is_lost_and_nothing_happens_twice(
    server: PostgresServer, part: str, counted: str
) -> None:
    """C2, C3: hosts are killed, connections are cut before and during COMMIT, jobs run twice."""
    assert part in PARTS
    outcome = run_seed(1, server, SIZE, [part])
    assert outcome.broken == []
    assert outcome.counts[counted] > 0


def test_nothing_acknowledged_is_lost_when_the_server_crashes(own_server: PostgresServer) -> None:
    """C2, C3: under a host that adds, updates, deletes, forgets, records and learns."""
    outcome = run_seed(1, own_server, SIZE, ["crash"])
    assert outcome.broken == []
    assert outcome.counts["server crashes"] == 1


def test_tables_that_disagree_are_noticed(url: str) -> None:
    """By the lab's own eyes."""
    with blocking.open(url, {"embedder": "none"}) as memory:
        memory.space("user:ada").add("Ada keeps bees")
    assert look_at(url)[1] == []
    with open_tables(url) as tables:
        assert tables.run("DELETE FROM entry_terms") > 0
    assert look_at(url)[1] != []
