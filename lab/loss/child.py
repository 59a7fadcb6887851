"""The process that is killed. It prints each step when it begins and when it is acknowledged."""

import asyncio
import os
import sys

import afterturn
from lab.loss.killing_vfs import KillingVfs
from lab.loss.plan import Step
from lab.loss.workload import SETTINGS, components, work

STEPS = 60
LEARNED = 15


def main(path: str, seed: str, kill_at: int) -> None:
    # Kept in a variable: SQLite's default VFS must not be freed while connections use it.
    disk = KillingVfs(kill_at) if kill_at >= 0 else None
    asyncio.run(_run(path, seed))
    del disk


async def _run(path: str, seed: str) -> None:
    async with afterturn.open(path, SETTINGS, components=components()) as memory:
        await work(memory, seed, print_step, steps=STEPS, learned=LEARNED)


def print_step(word: str, step: Step) -> None:
    """Writes a line in one system call, so that it is complete or missing."""
    os.write(1, f"{word} {step.to_json()}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
