"""A chat server for several users, each with a memory of their own.

    pip install fastapi uvicorn
    python examples/fastapi_app.py --port 8000
    curl -X POST localhost:8000/users/ada/chats/monday -H 'content-type: application/json' \\
         -d '{"text": "My cat Miso is allergic to chicken."}'
    curl localhost:8000/users/ada/memories
    curl -X DELETE localhost:8000/users/ada

One memory is open for the whole process; each request opens a conversation of its user. The space of a user is never
read for another one. This server trusts the user name in the path: put your own authentication in front of it.
`call_model` takes the place of a model.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel

import afterturn

Message = dict[str, str]


class Said(BaseModel):
    text: str


class Answer(BaseModel):
    text: str


async def call_model(messages: list[Message]) -> Message:
    """Put the call of your provider here."""
    lines = [line for message in messages for line in message["content"].splitlines()]
    notes = [line for line in lines if line.startswith("- ")]
    return {"role": "assistant", "content": f"I remember: {notes[0]}" if notes else "Noted."}


def create_app(store: str = "memory.db") -> FastAPI:
    # A real server keeps the messages in its database. Memory needs only the list of the current chat.
    chats: dict[tuple[str, str], list[Message]] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with afterturn.open(store) as memory:
            app.state.memory = memory
            yield

    app = FastAPI(title="Chat with memory", lifespan=lifespan)

    def memory_of(request: Request) -> afterturn.Memory:
        memory: afterturn.Memory = request.app.state.memory
        return memory

    @app.post("/users/{user}/chats/{chat}")
    async def say(request: Request, user: str, chat: str, said: Said) -> Answer:
        messages = chats.setdefault((user, chat), [])
        messages.append({"role": "user", "content": said.text})
        async with memory_of(request).conversation(chat, user=user).turn(messages) as turn:
            await turn.inject(messages)
            messages.append(await call_model(messages))
        await turn.wait_recorded()  # so that the next request finds it; optional
        return Answer(text=messages[-1]["content"])

    @app.get("/users/{user}/memories")
    async def memories(request: Request, user: str) -> list[str]:
        return [entry.text for entry in await memory_of(request).space(f"user:{user}").list()]

    @app.delete("/users/{user}")
    async def forget(request: Request, user: str) -> Answer:
        for key in [key for key in chats if key[0] == user]:
            del chats[key]
        forgotten = await memory_of(request).space(f"user:{user}").forget(everything=True)
        return Answer(text=forgotten.state)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat server for several users.")
    parser.add_argument("--store", default="memory.db", help="the file of the store (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="the port to listen on (default: %(default)s)")
    arguments = parser.parse_args()
    uvicorn.run(create_app(arguments.store), port=arguments.port)


if __name__ == "__main__":
    main()
