"""A hundred seeds of the simulation on a server: one thread, virtual time, and a database for each seed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.postgres.server import PostgresServer
from lab.simulation.run import make_template, run_seed
from lab.simulation.templates import DatabaseTemplate

pytestmark = pytest.mark.postgres

SEEDS = 100
AT_ONCE = 10


@pytest.fixture(scope="module")
def template(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseTemplate]:
    made = DatabaseTemplate(server.url(), tmp_path_factory.mktemp("sim"))
    make_template(made)
    yield made
    made.remove()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, AT_ONCE))
def test_no_order_of_events_breaks_a_promise_on_a_server(
    template: DatabaseTemplate, tmp_path: Path, first: int
) -> None:
    """R3, R5, R7, H1, H3, H5, C1, C2, C4, C5, V4, V5, M2: killed processes lose their connections."""
    results = [run_seed(seed, tmp_path, template) for seed in range(first, first + AT_ONCE)]
    broken = {result.seed: result.broken for result in results if result.broken}
    assert broken == {}, f'make simulation ARGS="--store postgresql: --seed {min(broken, default=0)} --trace"'


@pytest.mark.timeout(300)
def test_the_same_seed_gives_the_same_run_on_a_server(template: DatabaseTemplate, tmp_path: Path) -> None:
    """§13: a failing seed replays exactly: nothing of the server's timing has a say."""
    first, second = (run_seed(28, tmp_path, template).log for _ in range(2))
    assert first == second
    assert len(first) > 20
