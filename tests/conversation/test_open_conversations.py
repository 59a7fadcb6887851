"""What conversations keep in memory while their host keeps them open."""

import gc

from spoken import OpenMemory, assistant, user

from afterturn.types import Hit

CONVERSATIONS = 5
MEMORIES = 40
SHOWN_MAX = 4


def hits_in_memory() -> int:
    gc.collect()
    return sum(type(one) is Hit for one in gc.get_objects())


async def test_an_open_conversation_keeps_only_what_its_last_turn_showed(open_memory: OpenMemory) -> None:
    """Everything else that was weighed is in the trace, and counts for nothing beside `index_bytes_max`."""
    async with open_memory(recall_entries_max=SHOWN_MAX) as memory:
        for number in range(MEMORIES):
            await memory.space("user:ada").add(f"Box {number} in the cellar holds the tools of workbench {number}")
        await memory.space("user:ada").add(
            "My dentist is called Doctor Lindgren, in the street behind the cellar tools"
        )
        await memory.drain()
        kept, before = [], hits_in_memory()
        for number in range(CONVERSATIONS):
            messages = [user("What is my dentist called, the one behind the cellar tools?")]
            conversation = memory.conversation(f"c{number}", user="ada")
            async with conversation.turn(messages) as turn:
                assert await turn.inject(messages) is not None
                messages.append(assistant("Doctor Lindgren."))
            assert await turn.wait_recorded(within=10.0)
            kept.append((conversation, turn))
        assert hits_in_memory() - before <= CONVERSATIONS * SHOWN_MAX
