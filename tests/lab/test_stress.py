"""Several processes act at random on one store and break no promise; and the judge finds faults."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import afterturn
from afterturn.testing import ScriptedModel
from afterturn.testing.model import Answer, Messages, call_tools
from lab.stress.__main__ import run_stress
from lab.stress.child import CONFIG, SHARED, SPACE
from lab.stress.judge import judge, read_logs

SEEDS = (1, 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_several_processes_at_one_store_break_no_promise() -> None:
    """V4, M2, M1: turns, reviews, edits, undo, forgetting and consolidation in three processes, one of them killed."""
    outcomes = [run_stress(seed, processes=3, steps=30) for seed in SEEDS]
    done = sum((outcome.done for outcome in outcomes), Counter[str]())
    assert [outcome.broken for outcome in outcomes] == [[]] * len(SEEDS)
    assert done["recorded"] >= 20
    assert {"added", "updated", "deleted", "forgot", "compacting"} <= set(done)
    assert done["killed"] > 0
    assert done["reviewed"] + done["review undone"] > 0


@dataclass(frozen=True, slots=True)
class Aftermath:
    """A store that a very small run has left behind, and what was acknowledged."""

    folder: Path
    told: Sequence[dict[str, Any]]
    forgotten: str
    review: str


def _teach(messages: Messages) -> Answer:
    return call_tools(("add_memory", {"text": "The user likes markan1", "target": "user", "messages": [1]}))


async def _leave(folder: Path) -> Aftermath:
    """One turn and what a review made of it, a statement in two versions, and a turn that was forgotten."""
    config = {**CONFIG, "review_interval": 0, "consolidation": False, "rules": False}
    model = ScriptedModel(_teach, "Nothing to save.")
    async with afterturn.open(folder / "memory.db", config, model=model) as memory:
        space = memory.space(SPACE)
        told = [await _record(memory, "kept", "markan1"), await _record(memory, "lost", "markan2")]
        review = await space.run_review("kept")
        assert review is not None
        assert review.row.written == 1
        added = await space.add("Ada owns markan3")
        await space.update(added.entry.id, "Ada sold markan4")
        told.append({"what": "added", "id": added.entry.id})
        await memory.space(SHARED).add("The team owns markan5")
        gone = [entry.id for entry in await space.list() if entry.conversation == "lost"]
        await space.forget(conversation="lost")
        forgot = {"what": "forgot", "conversation": "lost", "ids": gone, "marks": ["markan2"], "began": 2.0}
        told.append({**forgot, "ended": 3.0})
    return Aftermath(folder, told, gone[0], review.row.id)


async def _record(memory: afterturn.Memory, conversation: str, mark: str) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"I like {mark}"}]
    async with memory.conversation(conversation, user="ada").turn(messages, id=f"turn-{conversation}") as turn:
        messages.append({"role": "assistant", "content": "I see."})
    assert await turn.wait_recorded(within=60)
    return {
        "what": "recorded",
        "mark": mark,
        "conversation": conversation,
        "turn": f"turn-{conversation}",
        "began": 1.0,
    }


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    return asyncio.run(_leave(tmp_path_factory.mktemp("stress")))


async def test_a_store_in_order_gives_no_complaint(aftermath: Aftermath, tmp_path: Path) -> None:
    """M1, M2, V4: two versions, a review and a forgotten conversation are nothing to name."""
    assert await judge(_copy(aftermath, tmp_path), aftermath.told) == []


@pytest.mark.parametrize(
    "harm, named",
    [
        ("UPDATE entry SET id = '{forgotten}' WHERE kind = 'record' AND position = 0", "was forgotten, and is back"),
        ("UPDATE source SET source = '{forgotten}'", "{forgotten} was forgotten, and is back"),
        ("UPDATE entry SET text = 'I like markan2' WHERE position = 0", "markan2 was forgotten, and is stored"),
        ("DELETE FROM entry WHERE kind = 'record' AND position = 0", "turn turn-kept was recorded, and 1 of its"),
        ("DELETE FROM entry WHERE text LIKE '%markan3' OR text LIKE '%markan4'", "was added, and is gone"),
        ("UPDATE entry SET position = 0 WHERE kind = 'record'", "message 0 of turn turn-kept is there 2 times"),
        ("DELETE FROM source", "was learned, and has no source"),
        ("UPDATE step SET after = 'deleted' WHERE after = 'superseded'", "its history does not explain it"),
        ("UPDATE step SET before = 'undone' WHERE after = 'superseded'", "has a gap"),
        ("DELETE FROM step WHERE before = 'active'", "its history does not explain it"),
        ("UPDATE review SET state = 'failed'", "review {review} is failed, and has changed something"),
        ("UPDATE review SET written = 0", "review {review} has more changes than it reports"),
        ("UPDATE review SET state = 'waiting'", "review {review} never ended"),
        ("UPDATE review SET state = 'nothing', spaces = '[]'", "is nothing, and has done 1 operations in user:ada"),
        (
            "UPDATE review SET spaces = '[\"team:x\"]'",
            "is saved, and has done 1 operations in user:ada that it does not",
        ),
        ("UPDATE entry SET origin = 'background_review' WHERE text LIKE '%markan5'", "has no source"),
        ("UPDATE entry SET text = 'I like markan2' WHERE text LIKE '%markan5'", "markan2 was forgotten, and is stored"),
    ],
)
async def test_a_judge_names_what_is_broken(aftermath: Aftermath, tmp_path: Path, harm: str, named: str) -> None:
    """M1, M2, V4: whatever came back, went missing, happened twice or cannot be explained."""
    known = {"forgotten": aftermath.forgotten, "review": aftermath.review}
    store = _copy(aftermath, tmp_path)
    connection = apsw.Connection(str(store))
    connection.execute(harm.format(**known)).fetchall()
    assert connection.changes() > 0
    connection.close()
    found = await judge(store, aftermath.told)
    assert [fault for fault in found if named.format(**known) in fault] != []


FORGETTING = {"what": "forgetting", "by": "p0", "conversation": "lost", "ids": [], "began": 2.0, "ended": 2.0}


@pytest.mark.parametrize(
    "died, complaints", [({"began": 3.0, "ended": 3.0}, 0), ({"began": 0.5, "ended": 0.5}, 1), (None, 1)]
)
async def test_a_killed_process_may_have_forgotten_what_it_began_to_forget(
    aftermath: Aftermath, tmp_path: Path, died: dict[str, Any] | None, complaints: int
) -> None:
    """M1: but nothing that was recorded after it was killed, and nobody else."""
    told = [line for line in aftermath.told if line["what"] != "forgot"]
    if died is not None:
        told += [FORGETTING, {"what": "killed", "by": "p0", **died}]
    assert len(await judge(_copy(aftermath, tmp_path), told)) == complaints


@pytest.mark.parametrize("began, complaints", [(2.5, 0), (3.5, 1)])
async def test_a_message_repeated_during_a_forget_is_not_a_broken_promise(
    aftermath: Aftermath, tmp_path: Path, began: float, complaints: int
) -> None:
    """M2, V9: a compaction that is told of at the same moment names messages that memory no longer knows."""
    said = {"what": "compacting", "conversation": "lost", "mark": "markan2", "began": began, "ended": began}
    store = _copy(aftermath, tmp_path)
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE entry SET text = 'I like markan2' WHERE position = 0").fetchall()
    connection.close()
    found = await judge(store, [*aftermath.told, said])
    assert len([fault for fault in found if "markan2" in fault]) == complaints


@pytest.mark.parametrize("began, complaints", [(2.5, 0), (3.5, 1)])
async def test_a_source_that_a_host_names_while_it_is_forgotten_is_its_own_affair(
    aftermath: Aftermath, tmp_path: Path, began: float, complaints: int
) -> None:
    """M2: a source may be anything that has a name, so that memory cannot tell."""
    said = {"what": "restating", "source": aftermath.forgotten, "began": began, "ended": began}
    store = _copy(aftermath, tmp_path)
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE source SET source = ?", (aftermath.forgotten,)).fetchall()
    connection.close()
    found = await judge(store, [*aftermath.told, said])
    assert len([fault for fault in found if "and is back" in fault]) == complaints


@pytest.mark.parametrize("mark, complaints", [("markan1", 0), ("markan2", 1)])
async def test_a_fact_learned_from_a_compaction_needs_no_record(
    aftermath: Aftermath, tmp_path: Path, mark: str, complaints: int
) -> None:
    """V9, V5: the host may tell of messages that are not recorded; whatever else was learned says from what."""
    said = {"what": "compacting", "conversation": "kept", "mark": mark, "began": 9.0, "ended": 9.0}
    store = _copy(aftermath, tmp_path)
    connection = apsw.Connection(str(store))
    connection.execute("DELETE FROM source").fetchall()
    connection.close()
    found = await judge(store, [*aftermath.told, said])
    assert len([fault for fault in found if "was learned" in fault]) == complaints


def test_a_line_that_a_killed_process_left_half_written_is_not_read(tmp_path: Path) -> None:
    """M1: what it had acknowledged before is."""
    log = tmp_path / "0.log"
    log.write_text('{"what": "added", "id": "a"}\n{"what": "dele\n{"what": "killed", "by": "p0"}\n', encoding="utf-8")
    assert [line["what"] for line in read_logs([log])] == ["added", "killed"]


def _copy(aftermath: Aftermath, folder: Path) -> Path:
    shutil.copytree(aftermath.folder, folder, dirs_exist_ok=True)
    return folder / "memory.db"
