"""A process whose first turn is measured: `python -m lab.bench.turn_first STORE NUMBER DELAY`."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import afterturn
from lab.bench.turn_delivery import Heard, Seen, deliver
from lab.bench.turn_host import timer


async def first_turn(store: Path, number: int, delay: float) -> Seen:
    """With everything at its default, so many seconds after memory was opened."""
    heard = Heard()
    async with afterturn.open(store, afterturn.Config(), on_event=heard) as memory:
        if delay:
            await timer(delay)
        return await deliver(memory, heard, 1, f"first-{number}", number)


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(first_turn(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))))
