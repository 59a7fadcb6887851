"""Stores on a server: their client library, and the directory of tenants, a JSON file with the URL of each store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from afterturn.config import StoreUrl, find_store
from afterturn.errors import ExtraMissing, StoreUnavailable


@contextmanager
def needs_postgres() -> Iterator[None]:
    """Around the import of what opens a store with a postgresql:// URL: the client library is an extra."""
    try:
        yield
    except ImportError as error:
        message = f"The client of PostgreSQL is not installed ({error}). Run `pip install 'afterturn[postgres]'`."
        raise ExtraMissing(message) from error


def find_tenant(url: StoreUrl, tenant: str) -> StoreUrl:
    """The store of a tenant: the URL itself, unless it names a directory. Raises StoreUnavailable."""
    if url.directory is None:
        return url
    stores = read_directory(url)
    if tenant not in stores:
        raise StoreUnavailable(
            f"The tenant {tenant!r} is not in the directory {url.directory}. Add it there with the URL of its store."
        )
    return stores[tenant]


def read_directory(url: StoreUrl) -> dict[str, StoreUrl]:
    """The stores by tenant. The file is read each time. Raises StoreUnavailable."""
    path = Path(url.directory or "")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        stores = {tenant: find_store(store) for tenant, store in content.items()}
    except OSError as error:
        raise StoreUnavailable(f"The directory {path} cannot be read: {error.strerror}.") from error
    except (ValueError, AttributeError, RecursionError, StoreUnavailable) as error:
        # Without the content, which may have a password.
        raise StoreUnavailable(
            f"{path} is not a directory of tenants ({type(error).__name__}). Write a JSON object with a URL such as "
            "postgresql://user@host/database?schema=acme for each tenant."
        ) from None
    found = {tenant: store for tenant, store in stores.items() if isinstance(store, StoreUrl) and not store.directory}
    if len(found) < len(stores):
        raise StoreUnavailable(
            f"The directory {path} has tenants without a store on a server: "
            f"{', '.join(sorted(stores.keys() - found))}. Give each the URL of one."
        )
    return found
