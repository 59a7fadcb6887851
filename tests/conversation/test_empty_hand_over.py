"""What a hand-over costs the host when there is nothing for it."""

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

from spoken import answer, assistant, call, user

import afterturn


class Watched(list[dict[str, Any]]):
    """A host's list that counts how often its elements are looked at."""

    looks = 0

    @overload
    def __getitem__(self, at: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        self.looks += 1
        return super().__getitem__(at)

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        self.looks += 1
        return super().__reversed__()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.looks += 1
        return super().__iter__()


async def test_a_step_with_nothing_to_hand_over_looks_only_at_blocks_and_at_what_is_new(
    memory: afterturn.Memory,
) -> None:
    """R2, R1, H6, G2b: some glances at each block and at each element of the turn, however long the list is. Once a
    tool has answered, the turn is tainted, and only new elements are looked at."""
    await memory.space("user:ada").add("Ada's cat is called Miso")
    looks = []
    for length in (1, 300):
        messages = Watched([user("Hello"), assistant("Hello.")] * length + [user("What is my cat called?")])
        async with memory.conversation(f"c{length}", user="ada").turn(messages) as turn:
            assert await turn.inject(messages) is not None
            for id in ("one", "two"):
                messages.extend([call(id), answer(id)])
                messages.looks = 0
                assert await turn.inject(messages) is None
                looks.append(messages.looks)
            turn.abort()
    assert looks == [13, 6, 13, 6]


async def test_a_list_that_is_not_read_yet_is_hardly_looked_at_by_a_host_in_a_hurry(memory: afterturn.Memory) -> None:
    """R2, G2b: at grace 0 there is nothing to find a place for before the recall is there. Only the user's message is
    read, which may have got an attachment since."""
    messages = Watched([user("Hello"), assistant("Hello."), user("thanks")])
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.looks = 0
        assert turn.inject_now(messages) is None
        assert messages.looks == 3
        turn.abort()
