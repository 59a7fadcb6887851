"""The least that a search over HTTP needs: a Starlette app with one query of SQLite's own full-text search.

`python -m lab.bench.bare_app DATABASE` prints its URL, and serves until it is stopped. Each request checks a token and
reads the same memories as `make bench-server` gives to afterturn.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOKEN = "bare"
_QUERY = "SELECT rowid, text, bm25(memory) FROM memory WHERE memory MATCH ? ORDER BY bm25(memory) LIMIT 10"


def main(path: str) -> None:
    database = sqlite3.connect(path)

    async def search(request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=401)
        wanted = " OR ".join(request.query_params["query"].split())
        rows = database.execute(_QUERY, (wanted,)).fetchall()
        return JSONResponse({"hits": [{"id": str(key), "text": text, "score": -score} for key, text, score in rows]})

    config = uvicorn.Config(
        Starlette(routes=[Route("/search", search)]), http="h11", ws="none", access_log=False, log_level="error"
    )
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main(sys.argv[1])
