"""`make bench-proxy`: what the proxy adds to a request, compared with a bare proxy that only passes it on."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from unittest.mock import patch

import httpx2

from afterturn import blocking
from afterturn.config import Config
from afterturn.evaluation.examination import scratch_folder
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import create_token
from lab.bench.report import Goal, Progress, Report, judge, make_report
from lab.clients.proxied import served

EXPLAINED = (
    "One client sends requests of OpenAI's chat completions, one after the other, to a provider on loopback that "
    "answers at once: directly, through a bare proxy (Starlette and httpx2, which pass the request and the answer on), "
    "and through `afterturn serve` with {memories:,} memories; medians of {rounds} rounds, in turns. A new turn is the "
    "first request of a conversation: it waits for its recall, at most the grace of 200 ms, and is stored before it is "
    "forwarded. A step is a request of the same turn that ends in the result of a tool. The added time is that beyond "
    "the bare proxy."
)
QUESTION = "What food is my cat Miso allergic to? This is question {number}."
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Nothing."}
PATH = "/v1/chat/completions"
WARM_UP = 10
# Both in processes of their own, as a provider and a proxy are.
SERVERS = """
import json, socket, sys, uvicorn
import httpx2
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def answer(request):
    messages = json.loads(await request.body())["messages"]
    is_step = messages[-1]["role"] == "tool"
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    said = {"role": "assistant", "content": "Fine."} if is_step else {"role": "assistant", "tool_calls": [call]}
    choice = {"index": 0, "message": said, "finish_reason": "stop" if is_step else "tool_calls"}
    return Response(json.dumps({"id": "c", "choices": [choice]}), media_type="application/json")

async def pass_on(request):
    done = await client.post(sys.argv[1] + request.url.path, content=await request.body())
    return Response(done.content, done.status_code, media_type="application/json")

client = httpx2.AsyncClient()
app = Starlette(routes=[Route("/v1/chat/completions", pass_on if len(sys.argv) > 1 else answer, methods=["POST"])])
listener = socket.create_server(("127.0.0.1", 0))
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])
"""


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    memories: int


FULL = Scale(rounds=300, memories=1_000)
QUICK = Scale(rounds=3, memories=20)


def measure_proxy(*, quick: bool, progress: Progress) -> Report:
    scale = QUICK if quick else FULL
    with scratch_folder("proxy") as folder, patch.dict(os.environ, {"AFTERTURN_STATE": str(folder / "state")}):
        with blocking.open(folder / "memory.db") as memory:
            facts = [f"Shelf {number} has the books about subject {number}" for number in range(scale.memories)]
            for fact in ["My cat Miso is allergic to chicken food", *facts]:
                memory.space("user:ada").add(fact)
        token = create_token(make_grant(Config(), space="user:ada"), name="bench")[1]
        with (
            _server() as provider,
            _server(provider) as bare,
            served(folder, f"--upstream=openai={provider}", grace=0.2) as ours,
        ):
            times, delivered = _measure({"direct": provider, "bare": bare, "ours": ours}, token, scale, progress)
    median = {name: statistics.median(values) * 1000 for name, values in times.items()}
    figures = [
        judge("a new turn, added", "ms", median["ours turn"] - median["bare turn"], Goal(200.0, "ms")),
        judge("a step, added", "ms", median["ours step"] - median["bare step"], Goal(20.0, "ms")),
        judge("a new turn", "ms", median["ours turn"], baseline=median["bare turn"]),
        judge("a step", "ms", median["ours step"], baseline=median["bare step"]),
        judge("the bare proxy", "ms", median["bare turn"], baseline=median["direct turn"]),
        judge("new turns with a memory", "%", 100 * delivered / scale.rounds),
    ]
    explained = EXPLAINED.format(memories=scale.memories, rounds=scale.rounds)
    return make_report("proxy", ["--quick"] if quick else [], explained, figures)


def _measure(urls: dict[str, str], token: str, scale: Scale, progress: Progress) -> tuple[dict[str, list[float]], int]:
    """The seconds of each kind of request, and how many turns got a memory. The first rounds are left out: they load
    modules and memories."""
    delivered = 0
    times: dict[str, list[float]] = {f"{name} {kind}": [] for name in urls for kind in ("turn", "step")}
    with httpx2.Client(timeout=60.0) as client:
        for number in range(scale.rounds + WARM_UP):
            if number % max(1, scale.rounds // 10) == 0:
                progress(f"round {number}")
            for name, url in urls.items():
                headers = {"x-afterturn-token": token, "x-afterturn-conversation": f"talk-{number}"}
                messages = [{"role": "user", "content": QUESTION.format(number=number)}]
                for kind in ("turn", "step"):
                    began = perf_counter()
                    answer = client.post(f"{url}{PATH}", json={"model": "m", "messages": messages}, headers=headers)
                    seconds = perf_counter() - began
                    answer.raise_for_status()
                    messages += [answer.json()["choices"][0]["message"], RESULT]
                    if number >= WARM_UP:
                        times[f"{name} {kind}"].append(seconds)
                        delivered += int(answer.headers.get("x-afterturn-lines", "0")) > 0
    return times, delivered


@contextmanager
def _server(*upstream: str) -> Iterator[str]:
    """The provider, or with an upstream the bare proxy, in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", SERVERS, *upstream], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield f"http://127.0.0.1:{child.stdout.readline().strip()}"
        finally:
            child.terminate()
            child.wait()
