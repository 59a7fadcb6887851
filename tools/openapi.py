"""Prints the OpenAPI document of the server's API as JSON, for generators of clients: `python tools/openapi.py`."""

import json

from afterturn.hosts.server.api import make_api


def main() -> None:
    print(json.dumps(make_api(None).openapi(), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
