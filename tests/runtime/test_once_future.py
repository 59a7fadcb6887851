"""A future between threads: set once, read at once, and waited for with a limit."""

import asyncio
import threading

from afterturn.runtime.once_future import OnceFuture

WAIT = 100.0


def test_the_first_value_counts() -> None:
    """H2: settling twice changes nothing."""
    slot: OnceFuture[int] = OnceFuture()
    assert (slot.settle(1), slot.settle(2), slot.peek()) == (True, False, 1)


def test_none_is_a_value_too() -> None:
    """R2: settled with nothing to hand over is not the same as not settled."""
    slot: OnceFuture[None] = OnceFuture()
    assert not slot.settled
    slot.settle(None)
    assert slot.settled


async def test_a_waiting_loop_wakes_as_soon_as_it_is_settled() -> None:
    """R2: another thread settles; the wait ends then, not at its bound."""
    slot: OnceFuture[int] = OnceFuture()
    waiting = asyncio.ensure_future(slot.wait(within=WAIT))
    await asyncio.sleep(0)
    await asyncio.to_thread(slot.settle, 7)
    assert await waiting == 7


async def test_waiting_is_bounded() -> None:
    """R2: nobody settles, and the wait ends all the same."""
    slot: OnceFuture[int] = OnceFuture()
    assert await slot.wait(within=0.01) is None
    assert slot._waiters == []


def test_a_thread_waits_without_a_loop() -> None:
    """R2: the same for hosts with none."""
    slot: OnceFuture[int] = OnceFuture()
    threading.Thread(target=slot.settle, args=(7,)).start()
    assert slot.wait_blocking(within=WAIT) == 7
    assert slot.wait_blocking(within=0) == 7


def test_a_thread_waits_no_longer_than_it_said() -> None:
    """R2: bounded there too, and no waiter is left."""
    slot: OnceFuture[int] = OnceFuture()
    assert slot.wait_blocking(within=0.01) is None
    assert slot._waiters == []


def test_a_loop_that_closed_while_it_waited_disturbs_nobody() -> None:
    """R2: setting the value does not fail because of the host's closed loop."""
    slot: OnceFuture[int] = OnceFuture()
    host = asyncio.new_event_loop()
    waiting = host.create_task(slot.wait(within=WAIT))
    host.call_soon(host.stop)
    host.run_forever()
    wake = list(slot._waiters)
    waiting.cancel()
    host.run_until_complete(asyncio.wait({waiting}))
    host.close()
    slot._waiters.extend(wake)
    assert slot.settle(7)


async def test_a_cancelled_wait_leaves_no_waiter() -> None:
    """R2: giving up costs nothing."""
    slot: OnceFuture[int] = OnceFuture()
    waiting = asyncio.ensure_future(slot.wait(within=WAIT))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert slot._waiters == []
