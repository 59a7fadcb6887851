"""The process that is killed: several writers on one store. It prints each step when it begins and when it is
acknowledged.
"""

import asyncio
import os
import sys
from random import Random

import afterturn
from afterturn.types import Filter, Kind, Status
from lab.crash.killing_vfs import KillingVfs
from lab.crash.plan import WRITERS, ExpectedEntry, State, Step, StepKind, after, choose, space_of

STEPS = 60
SETTINGS = {"embedder": "none", "background": False, "recall": False}
_LISTED_MAX = 10_000


def main(path: str, seed: str, kill_at: int) -> None:
    # Kept in a variable: SQLite's default VFS must not be freed while connections use it.
    disk = KillingVfs(kill_at) if kill_at >= 0 else None
    asyncio.run(_write_all(path, seed))
    del disk


async def _write_all(path: str, seed: str) -> None:
    async with afterturn.open(path, SETTINGS) as memory:
        print_step("open", "")
        await asyncio.gather(*(_Writer(memory, writer, seed).run() for writer in range(WRITERS)))
    print_step("closed", "")


def print_step(word: str, detail: str) -> None:
    """Writes a line in one system call, so that it is complete or missing."""
    os.write(1, f"{word} {detail}\n".encode())


class _Writer:
    def __init__(self, memory: afterturn.Memory, number: int, seed: str) -> None:
        self._memory = memory
        self._space = memory.space(space_of(number))
        self._user = space_of(number).removeprefix("user:")
        self._prefix = f"w{number}s{seed}n"
        self._random = Random(f"{seed} {number}")
        self._ids: dict[str, str] = {}
        self._state: State = {}

    async def run(self) -> None:
        await self._look_up()
        for number in range(STEPS):
            step = choose(self._random, self._space.name, f"{self._prefix}{number}", self._state)
            print_step("begin", step.to_json())
            await self._take(step)
            print_step("done", step.to_json())
            self._state = after(self._state, step)

    async def _look_up(self) -> None:
        everything = Filter(statuses=tuple(Status))
        for entry in reversed(await self._space.list(limit=_LISTED_MAX, filter=everything)):
            label = entry.text.split(" ", 1)[0]
            held = self._state.get(label)
            texts = (*held.texts, entry.text) if held and entry.kind is Kind.RECORD else (entry.text,)
            self._state = {
                **self._state,
                label: ExpectedEntry(entry.version, entry.status, texts, is_record=entry.kind is Kind.RECORD),
            }
            self._ids[label] = entry.id

    async def _take(self, step: Step) -> None:
        match step.act:
            case StepKind.ADD:
                self._ids[step.label] = (await self._space.add(step.texts[0])).entry.id
            case StepKind.UPDATE:
                await self._space.update(self._ids[step.label], step.texts[0])
            case StepKind.DELETE:
                await self._space.delete(self._ids[step.label])
            case StepKind.FORGET:
                await self._forget(step.label)
            case StepKind.RECORD:
                await self._record(step)

    async def _forget(self, label: str) -> None:
        if self._state[label].is_record:
            await self._space.forget(conversation=label)
        else:
            await self._space.forget(memory=self._ids[label])

    async def _record(self, step: Step) -> None:
        said = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), step.texts, strict=True)]
        turn = await self._memory.conversation(step.label, user=self._user).start_turn(said[:1], id=step.label)
        turn.finish(said)
        if not await turn.wait_recorded(within=30):
            raise RuntimeError(f"The turn {step.label} was not recorded.")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
