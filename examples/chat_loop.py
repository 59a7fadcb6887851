"""A chat on the terminal that remembers earlier chats.

    python examples/chat_loop.py monday
    python examples/chat_loop.py tuesday

Write one message per line; end with Ctrl-D. The first argument names the conversation. No key and no server are needed:
`call_model` takes the place of a model and repeats the first note that memory gave it.
"""

import argparse
import asyncio
import sys

import afterturn

Message = dict[str, str]


async def call_model(messages: list[Message]) -> Message:
    """Put the call of your provider here."""
    lines = [line for message in messages for line in message["content"].splitlines()]
    notes = [line for line in lines if line.startswith("- ")]
    return {"role": "assistant", "content": f"I remember: {notes[0]}" if notes else "Noted."}


async def chat(store: str, user: str, conversation_id: str) -> None:
    async with afterturn.open(store) as memory:
        conversation = memory.conversation(conversation_id, user=user)
        messages: list[Message] = []
        while text := (await asyncio.to_thread(sys.stdin.readline)).strip():
            messages.append({"role": "user", "content": text})
            async with conversation.turn(messages) as turn:
                await turn.inject(messages)
                messages.append(await call_model(messages))
            print(messages[-1]["content"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat on the terminal that remembers earlier chats.")
    parser.add_argument("conversation", help="the name of the conversation, such as monday")
    parser.add_argument("--store", default="memory.db", help="the file of the store (default: %(default)s)")
    parser.add_argument("--user", default="ada", help="whose memory it is (default: %(default)s)")
    arguments = parser.parse_args()
    asyncio.run(chat(arguments.store, arguments.user, arguments.conversation))


if __name__ == "__main__":
    main()
