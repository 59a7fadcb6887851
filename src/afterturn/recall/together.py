"""Questions that come while another is answered, asked together: one snapshot and one way to a reader and back for all.

Threads that compute in Python take turns anyway; the fewer of them want to at a time, the less they wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from afterturn.base.logs import find_logger
from afterturn.base.ports import Store, Unit
from afterturn.base.turnstile import turn
from afterturn.base.types import Recollection
from afterturn.recall.lanes import RecallRequest, Shelf, recall

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afterturn.recall.lanes import Embed
    from afterturn.recall.searching import Cosines
    from afterturn.recall.shelves import Shelves

logger = find_logger(__name__)

EmbedAll: TypeAlias = "Callable[[Sequence[str]], NDArray[np.float32]]"

# About 10 ms of work: who comes first waits so long for who comes last.
_TOGETHER_MAX = 8
# Most writes compute for less, and behind a long one nobody stands in line.
_TURN_WITHIN = 0.001


class _Waiting(NamedTuple):
    """`answer` None: nobody has asked for it, and it is its turn to ask for others too."""

    request: RecallRequest
    answer: asyncio.Future[Recollection | None]


class Together:
    """Lives on memory's loop. Who asks first asks at once and alone; the first of those who came meanwhile asks next,
    for itself and the others."""

    def __init__(self, store: Store, embed: EmbedAll | None = None) -> None:
        """`embed` is for several texts what a request's own is for one; without, each is embedded by itself."""
        self._store = store
        self._embed = embed
        self._waiting: deque[_Waiting] = deque()
        self._is_asking = False

    async def recall(self, request: RecallRequest, shelves: Shelves) -> Recollection:
        """What one recall may make another wait for is bounded: what is not in memory, or large, is asked apart."""
        if not shelves.is_at_hand(request.scope):
            return await self._store.read(lambda unit: recall(unit, request, shelves))
        if self._is_asking:
            answer = await self._wait(request)
            if answer is not None:
                return answer
        self._is_asking = True
        others = self._take(_TOGETHER_MAX - 1)
        requests = [request, *(one.request for one in others)]
        try:
            own, *answers = await self._store.read(lambda unit: _recall_all(unit, requests, shelves, self._embed))
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(others))
            raise
        except Exception as error:
            for one in others:
                if not one.answer.done():
                    one.answer.set_exception(error)
            raise
        finally:
            self._hand_on()
        for one, answer in zip(others, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)
        return own

    async def _wait(self, request: RecallRequest) -> Recollection | None:
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if not waiting.answer.cancelled() and waiting.answer.exception() is None and not waiting.answer.result():
                self._hand_on()
            raise

    def _take(self, count: int) -> list[_Waiting]:
        taken: list[_Waiting] = []
        while self._waiting and len(taken) < count:
            one = self._waiting.popleft()
            if not one.answer.done():
                taken.append(one)
        return taken

    def _hand_on(self) -> None:
        following = self._take(1)
        self._is_asking = bool(following)
        for one in following:
            one.answer.set_result(None)


def _recall_all(
    unit: Unit, requests: Sequence[RecallRequest], shelves: Shelves, embed: EmbedAll | None
) -> list[Recollection]:
    found = _AtOnce(shelves)
    answers: list[Recollection] = []
    with ExitStack() as stack:
        is_turn = stack.enter_context(turn(within=_TURN_WITHIN))
        for request in _embedded(requests, embed):
            # Whoever had it may have ended meanwhile.
            is_turn = is_turn or stack.enter_context(turn(within=_TURN_WITHIN))
            answers.append(recall(unit, request, found))
    return answers


def _embedded(requests: Sequence[RecallRequest], embed: EmbedAll | None) -> list[RecallRequest]:
    """All at once, which takes half as long as one by one."""
    texts = [request.text for request in requests if request.embed is not None]
    if embed is None or len(texts) < 2:
        return list(requests)
    try:
        vectors = dict(zip(texts, embed(texts), strict=True))
    except Exception:  # the boundary: each is embedded by itself then, and tells what is wrong
        logger.debug("questions could not be embedded together", exc_info=True)
        return list(requests)
    return [one if one.embed is None else one._replace(embed=partial(_look_up, vectors, one.embed)) for one in requests]


def _look_up(vectors: Mapping[str, NDArray[np.float32]], embed: Embed, text: str) -> NDArray[np.float32]:
    """What is asked without a name that is in it has another text, and is embedded by itself."""
    found = vectors.get(text)
    return embed(text) if found is None else found


class _AtOnce:
    """The shelves at one snapshot, which stays as it is: what one question found level with it is so for the others."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._found: dict[tuple[str, str], Shelf] = {}

    def find(self, unit: Unit, tenant: str, space: str) -> Shelf | None:
        found = self._found.get((tenant, space)) or self._shelves.find(unit, tenant, space)
        if found is not None:
            self._found[tenant, space] = found
        return found

    def cosines(self, unit: Unit, tenant: str, space: str, query_vector: NDArray[np.float32]) -> Cosines | None:
        return self._shelves.cosines(unit, tenant, space, query_vector)
