"""What a claim of jobs costs, however many wait."""

from pathlib import Path

import apsw

from afterturn.config import Config
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.engine import Engine, open_engine

TENANTS = 100


def test_a_claim_takes_as_many_steps_with_a_thousand_times_the_jobs(tmp_path: Path) -> None:
    """C8: it reads the front of each index, and so does the question whether a job is due."""
    engine = open_engine(tmp_path / "memory.db", Config(), SystemClock())
    add_jobs(engine, 0, 20)
    few = count_steps(engine)
    add_jobs(engine, 20, 20_000)
    many = count_steps(engine)
    engine.close()
    assert min(few) > 0
    assert all(step <= 2 * before for step, before in zip(many, few, strict=True))


def test_jobs_of_tenants_that_were_moved_or_are_not_complete_are_left(tmp_path: Path) -> None:
    """C8: they would fail again and again, and others would wait for them."""
    engine = open_engine(tmp_path / "memory.db", Config(), SystemClock())

    def mark(unit: object) -> None:
        session = unit._entries.session  # type: ignore[attr-defined]
        session.run("INSERT INTO meta (key, value) VALUES ('moved_to/t0', '{}'), ('filled_from/t2', '{}')")

    def claim(unit: Unit) -> list[str]:
        return [job.id for job in unit.jobs.claim(["embed"], owner="me", now=1e6, lease=60.0, limit=4)]

    add_spaces(engine, ["t0", "t2", "t4"])
    add_jobs(engine, 0, 5)
    engine.write_now(mark)
    assert engine.write_now(claim) == ["000004"]
    assert engine.read_now(lambda unit: unit.jobs.due_kinds(["embed"], now=1e6)) == []
    engine.close()


def add_spaces(engine: Engine, tenants: list[str]) -> None:
    def work(unit: object) -> None:
        session = unit._entries.session  # type: ignore[attr-defined]
        rows = [(int(tenant[1:]), tenant) for tenant in tenants]
        session.run_many("INSERT INTO space (key, tenant, name) VALUES (?, ?, 'user:ada')", rows)

    engine.write_now(work)


def add_jobs(engine: Engine, start: int, stop: int) -> None:
    """Of two kinds, of which one is never asked for."""

    def work(unit: object) -> None:
        session = unit._entries.session  # type: ignore[attr-defined]
        session.run_many(
            "INSERT INTO job (id, space_key, tenant, kind, payload, run_at, place) VALUES (?, ?, ?, ?, '{}', ?, ?)",
            [
                (f"{n:06d}", n % TENANTS, f"t{n % TENANTS}", ("embed", "review")[n % 2], float(n), 1 + n // TENANTS)
                for n in range(start, stop)
            ],
        )

    engine.write_now(work)


def count_steps(engine: Engine) -> tuple[int, int]:
    """The steps of SQLite's virtual machine for a claim, and for the question before it."""
    steps: list[int] = []

    def work(unit: object) -> None:
        connection = unit._entries.session._connection  # type: ignore[attr-defined]
        connection.trace_v2(
            apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
        )
        unit.jobs.claim(["embed", "rules"], owner="me", now=1e6, lease=60.0, limit=4)  # type: ignore[attr-defined]
        unit.jobs.due_kinds(["embed", "rules"], now=1e6)  # type: ignore[attr-defined]
        connection.trace_v2(0, None)

    engine.write_now(work)
    claim, question = steps
    return claim, question
