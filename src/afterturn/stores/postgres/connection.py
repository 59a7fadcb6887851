"""Where a store is on a server, how every connection is set up, and the statements that begin and end transactions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from afterturn.config import Config, StoreUrl
from afterturn.errors import InvalidInput, StoreUnavailable
from afterturn.ports import Clock
from afterturn.stores.keys import KeyRing
from afterturn.stores.postgres.errors import translate
from afterturn.stores.postgres.schema import ALL_TENANTS, MIGRATIONS, Migration
from afterturn.stores.postgres.session import PgConnection
from afterturn.types import Scope, Tenant, UnitScope

SERVER_VERSION_MIN = 150_000
# Defaults that a URL can override. The last four detect a server that has vanished within half a minute.
_DEFAULTS = {
    "application_name": "afterturn",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# How long a server may take for one answer, in addition to `busy_timeout`. No statement of a store takes longer.
SERVER_TIMEOUT = 30.0
# A host that stops in the middle of a transaction, for example in a debugger, must not keep others waiting for longer.
_IDLE_TIMEOUT = 60.0
_MIGRATION_LOCK_TIMEOUT = "30s"


class StoreServer:
    """A database and the schema in it that is the store."""

    def __init__(
        self,
        url: StoreUrl,
        config: Config,
        clock: Clock,
        migrations: Sequence[Migration] = MIGRATIONS,
        *,
        patient: bool = False,
    ) -> None:
        # None: statements may take as long as they need.
        self.answer_timeout = None if patient else SERVER_TIMEOUT + config.busy_timeout
        self.name = str(url)
        self.config = config
        self.clock = clock
        self.migrations = migrations
        self.schema = url.schema
        # None if the store is not sealed.
        self.keys: KeyRing | None = None
        self._parameters = _parameters(url)
        self._lock_milliseconds = config.busy_timeout * 1000
        # In every transaction and not once for a connection: behind a pooler the next transaction has another one.
        local = {
            "search_path": f"{sql.Identifier(self.schema).as_string(None)}, pg_temp",
            "lock_timeout": f"{int(max(config.busy_timeout, 0.001) * 1000)}ms",
            "idle_in_transaction_session_timeout": "0ms" if patient else f"{int(_IDLE_TIMEOUT * 1000)}ms",
        }
        self._begin_read = _begin(b"REPEATABLE READ READ ONLY", local)
        if config.synchronous == "normal":
            # A commit that the server's disk need not have is what `normal` asks for.
            local["synchronous_commit"] = "off"
        self._begin = _begin(b"READ COMMITTED READ WRITE", local)
        self._store_lock = _lock_key(self.schema)

    def begin_read(self, scope: UnitScope) -> bytes:
        return b", ".join([self._begin_read, _set_local("afterturn.tenant", tenant_setting(scope))])

    def begin_write(self, scopes: Sequence[UnitScope] = (None,)) -> bytes:
        """Begins a transaction and takes its locks before the first read, so that what a unit reads stays true.

        A unit without a scope locks the store. Others share that lock, and either lock their tenant, or share that lock
        too and lock their spaces. The store first, then tenants, then spaces, each in the order of their keys, so that
        no two units wait for each other: the server calls the functions of a SELECT from left to right. Units with
        different settings make theirs themselves.
        """
        tenants_seen = {tenant_setting(scope) for scope in scopes}
        begin = [self._begin]
        if len(tenants_seen) == 1:
            begin += [_set_local("afterturn.tenant", name) for name in tenants_seen]
        if None in scopes:
            return b", ".join([*begin, _lock(self._store_lock)])
        whole = {scope.name for scope in scopes if isinstance(scope, Tenant)}
        parts = [scope for scope in scopes if isinstance(scope, Scope) and scope.tenant not in whole]
        tenants = {_lock_key(self.schema, name): _lock for name in whole}
        tenants |= {_lock_key(self.schema, scope.tenant): _share for scope in parts}
        spaces = {_lock_key(self.schema, scope.tenant, space) for scope in parts for space in scope.spaces}
        if len(spaces) > 1:
            # All of them together take no longer than `busy_timeout`. The client hears nothing until it has them all.
            begin.append(_set_local("lock_timeout", str(max(1, int(self._lock_milliseconds / len(spaces))))))
        locks = [
            _share(self._store_lock),
            *(take(key) for key, take in sorted(tenants.items())),
            *(_lock(key) for key in sorted(spaces)),
        ]
        return b", ".join([*begin, *locks])

    def begin_migration(self) -> bytes:
        """Begins a transaction that changes the schema, one at a time. Units that write wait for its end."""
        own = (("afterturn.tenant", ALL_TENANTS), ("lock_timeout", _MIGRATION_LOCK_TIMEOUT))
        return b", ".join([self._begin, *(_set_local(*one) for one in own), _lock(self._store_lock)])

    def connect(self) -> PgConnection:
        """Raises psycopg.OperationalError."""
        connection = PgConnection.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        connection.clock = self.clock
        connection.answer_timeout = self.answer_timeout
        return connection

    def open(self) -> PgConnection:
        """As `connect`, and checks that the server can have a store. Raises a StoreError."""
        try:
            connection = self.connect()
        except psycopg.Error as error:
            raise translate(error, self.name) from error
        reason, version = "", connection.info.server_version
        if version < SERVER_VERSION_MIN:
            reason = f"the server has version {version // 10_000}. Use PostgreSQL 15 or newer."
        elif (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
            reason = f"the database has the encoding {encoding}. Create one with ENCODING 'UTF8' TEMPLATE template0."
        if reason:
            connection.close()
            raise StoreUnavailable(f"The store {self.name} cannot be used: {reason}")
        return connection


def tenant_setting(scope: UnitScope) -> str:
    """The setting by which row-level security knows whose rows a unit may see. Raises InvalidInput."""
    match scope:
        case Scope():
            tenant = scope.tenant
        case Tenant():
            tenant = scope.name
        case _:
            return ALL_TENANTS
    if tenant == ALL_TENANTS:
        raise InvalidInput(f"A store on PostgreSQL cannot have the tenant {tenant!r}. Choose another name.")
    return tenant


def set_tenant(scope: UnitScope) -> bytes:
    return b"SELECT " + _set_local("afterturn.tenant", tenant_setting(scope))


def _parameters(url: StoreUrl) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(url.connection_url)
    except psycopg.Error as error:
        # Without the cause: its message may quote the URL, which may contain a password.
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        reason = f"{unknown[1]!r} is not a parameter of it" if unknown else "it cannot be read"
        message = (
            f"The URL of the store is not valid: {reason}. Write postgresql://user@host:5432/database?schema=name."
        )
        raise StoreUnavailable(message) from None
    return {**_DEFAULTS, **given, "client_encoding": "utf8"}


def _lock(key: int) -> bytes:
    return b"pg_catalog.pg_advisory_xact_lock(%d)" % key


def _share(key: int) -> bytes:
    return b"pg_catalog.pg_advisory_xact_lock_shared(%d)" % key


def _lock_key(schema: str, *names: str) -> int:
    """Advisory locks belong to a database, so the schema is part of the number."""
    content = "\0".join(("afterturn", schema, *names)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def _begin(kind: bytes, settings: Mapping[str, str]) -> bytes:
    """Ends in a SELECT to which more calls can be added: the server runs one statement in place of eight."""
    calls = b", ".join(_set_local(name, value) for name, value in settings.items())
    return b"BEGIN ISOLATION LEVEL %b; SELECT %b" % (kind, calls)


def _set_local(name: str, value: str) -> bytes:
    return sql.SQL("pg_catalog.set_config({}, {}, true)").format(name, value).as_bytes(None)
