"""Let a model on your own machine learn from a conversation.

    pip install '.[models]'
    python examples/review_with_local_model.py --url http://localhost:8080/v1 --model qwen3-4b

Every OpenAI-compatible server works: llama.cpp, Ollama, vLLM, LM Studio. The program records a conversation in which
the user changes their mind, lets the model review it, and prints the changes. If no server answers, it says so and
stops.
"""

import argparse
import asyncio
import sys

import afterturn

SAID = [
    ("I used to drink coffee, but I went back to tea after all.", "Good to know. I will suggest tea."),
    ("Please send me the report every Friday at nine.", "I will do that."),
]


async def review(store: str, url: str, model: str) -> int:
    settings = {"model_url": url, "model": model, "rules": False, "review_timeout": 120.0}
    async with afterturn.open(store, settings) as memory:
        ada = memory.space("user:ada")
        await ada.add("The user drinks coffee")
        conversation = memory.conversation("monday", user="ada")
        messages = []
        for said, answer in SAID:
            messages.append({"role": "user", "content": said})
            async with conversation.turn(messages) as turn:
                await turn.inject(messages)
                messages.append({"role": "assistant", "content": answer})
            await turn.wait_recorded()
        try:
            done = await ada.run_review("monday")
        except afterturn.AfterturnError as error:
            print(f"No review: {error}", file=sys.stderr)
            return 1
        if done is None or not done.changes:
            print("The model saved nothing. `afterturn review log` has the reason.")
            return 0
        for change in done.changes:
            if change.before is not None:
                print(f"- {change.before.text}")
            if change.after is not None:
                print(f"+ {change.after.text}")
        print(f"{len(done.changes)} changes. To undo them: afterturn review undo {done.row.id}")
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Let a model on your own machine learn from a conversation.")
    parser.add_argument("--url", default="http://localhost:8080/v1", help="the server (default: %(default)s)")
    parser.add_argument("--model", default="local", help="the name of the model (default: %(default)s)")
    parser.add_argument("--store", default="reviewed.db", help="the file of the store (default: %(default)s)")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(review(arguments.store, arguments.url, arguments.model)))


if __name__ == "__main__":
    main()
