"""Liveness, readiness and metrics."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from served import CAT, QUESTION, WITHIN, Api, make_token, serving

from afterturn import blocking


async def test_readiness_follows_the_store_and_says_nothing_else(tmp_path: Path):
    make_token("ada")
    (tmp_path / "memory.db").write_text("This is not a store.", encoding="utf-8")
    with serving(tmp_path) as server:
        async with server.client(None) as client:
            assert (await client.get("/livez")).text == "ok\n"
            refused = await client.get("/readyz")
            assert (refused.status_code, refused.text) == (503, "not ready\n")
            (tmp_path / "memory.db").unlink()
            with blocking.open(tmp_path / "memory.db"):
                pass
            answer = refused
            async with asyncio.timeout(WITHIN):
                while answer.status_code != 200:
                    answer = await client.get("/readyz")
            assert answer.text == "ok\n"
            assert (await client.get("/metrics")).status_code == 401


async def test_metrics_count_what_the_tenant_did(connect: Callable[..., Api]):
    """Only the caller's tenant, and this process. The format is Prometheus' own."""
    api, other = connect("ada"), connect("acme", space="*", tenant="acme")
    await api.add(CAT)
    await other.get("/spaces")
    talking = api.speaking_in(standing="off")
    await talking.start(QUESTION)
    messages = await talking.inject(QUESTION)
    await talking.verb("finish", messages=[*messages, {"role": "assistant", "content": "Chicken."}])
    await talking.start([{"role": "user", "content": "Which train goes to Lisbon?"}], "t2")
    await talking.verb("block", "t2", within=20)
    answer = await api.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for line in lines:
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{(\w+=\"[^\"]*\",?)+\})? [0-9.e+-]+", line), line
    assert 'afterturn_http_requests_total{method="POST",route="start_turn",status="200"} 2' in lines
    assert 'afterturn_turns_total{state="started"} 2' in lines
    assert 'afterturn_turns_total{state="recorded"} 1' in lines
    assert 'afterturn_recalls_total{outcome="delivered"} 1' in lines
    assert "afterturn_open_turns 1" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert 'route="list_spaces"' not in answer.text
    assert await ask(connect("blind", scopes=["read"])) == 403


async def ask(api: Api) -> int:
    return (await api.client.get("/metrics")).status_code


@pytest.mark.parametrize("module", ["fastapi", "jinja2"])
def test_mcp_over_http_needs_no_library_of_the_server(module: str):
    """The extra `mcp` alone is enough for it."""
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from afterturn.config import Config\n"
        "from afterturn.hosts.server.app import ServerOptions, Service, make_app\n"
        "from afterturn.hosts.server.connections import make_config\n"
        "options = ServerOptions('127.0.0.1', (), parts=frozenset({'mcp'}))\n"
        "make_config(make_app(Service(lambda: (None, Config()), options)))\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=100)
