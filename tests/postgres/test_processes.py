"""The lab of several processes on a server: no promise is broken, and its judge reads the server's tables."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import afterturn
from lab.postgres.pooler import PgBouncer
from lab.postgres.server import PostgresServer
from lab.postgres.stores import PostgresStores
from lab.stress.__main__ import run_stress
from lab.stress.child import CONFIG, SPACE
from lab.stress.judge import judge
from lab.tables import open_tables

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(place: PostgresServer | PgBouncer) -> Iterator[str]:
    with PostgresStores(place.url()).fresh() as url:
        yield url


@pytest.mark.timeout(300)
def test_several_processes_at_one_server_break_no_promise(place: PostgresServer | PgBouncer) -> None:
    """V4, M2, M1: turns, reviews, edits, undo, forgetting and consolidation in three processes, one of them killed."""
    done: Counter[str] = Counter()
    for seed in (1, 2):
        with PostgresStores(place.url()).fresh() as store:
            outcome = run_stress(seed, processes=3, steps=20, store=store)
        assert outcome.broken == []
        done += outcome.done
    assert done["killed"] > 0
    assert {"recorded", "added", "deleted", "forgot", "compacting"} <= set(done)


@pytest.mark.parametrize(
    "harm, named",
    [
        ("UPDATE entry SET text = 'I like markan2' WHERE position = 0", "markan2 was forgotten, and is stored"),
        ("DELETE FROM entry WHERE kind = 'record' AND position = 0", "turn turn-kept was recorded, and 1 of its"),
        ("UPDATE entry SET position = 0 WHERE kind = 'record'", "message 0 of turn turn-kept is there 2 times"),
    ],
)
async def test_the_judge_names_what_is_broken_on_a_server(store: str, tmp_path: Path, harm: str, named: str) -> None:
    """M1, M2: what came back, went missing or happened twice."""
    async with afterturn.open(store, {**CONFIG, "review_interval": 0, "rules": False}) as memory:
        logged: list[dict[str, Any]] = []
        for conversation, mark in (("kept", "markan1"), ("lost", "markan2")):
            messages: list[dict[str, Any]] = [{"role": "user", "content": f"I like {mark}"}]
            async with memory.conversation(conversation, user="ada").turn(messages, id=f"turn-{conversation}") as turn:
                messages.append({"role": "assistant", "content": "I see."})
            assert await turn.wait_recorded(within=60)
            logged.append({"what": "recorded", "conversation": conversation, "turn": turn.id, "began": 1.0})
        gone = [entry.id for entry in await memory.space(SPACE).list() if entry.conversation == "lost"]
        await memory.space(SPACE).forget(conversation="lost")
        forgot = {"what": "forgot", "conversation": "lost", "ids": gone, "marks": ["markan2"], "began": 2.0}
        logged.append({**forgot, "ended": 3.0})
    assert await judge(store, logged, spill_folder=tmp_path) == []
    with open_tables(store) as tables:
        assert tables.run(harm) > 0
    assert [fault for fault in await judge(store, logged, spill_folder=tmp_path) if named in fault] != []
