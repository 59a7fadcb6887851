"""The helper: one warm process for each user and environment, which answers the hooks of all clients on a Unix socket.

It is started by the script of a hook, which hands it a locked file. It ends when it is idle, when it is stopped,
and when the package or the settings file changed; then it starts itself again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import importlib.metadata
import json
import logging
import os
import signal
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

import afterturn
from afterturn.config import Config, config_path, default_store, find_store, load_config
from afterturn.errors import AfterturnError
from afterturn.hosts.hooks.client import ANSWER_BYTES_MAX, PAYLOAD_BYTES_MAX, PROTOCOL, note_failure, stamp, touch
from afterturn.hosts.hooks.clients import CLIENTS, SCRIPT
from afterturn.hosts.hooks.events import InvalidPayload, check_folder
from afterturn.hosts.hooks.handler import HookHandler
from afterturn.hosts.server.typed_statements import remove_old_statements
from afterturn.log import describe, logger
from afterturn.stores.sqlite.connection import file_identity
from afterturn.types import Event

LOG_BYTES_MAX = 256 * 1024
BACKLOG = 1024
# A system message of a client must not have more than 10,000 characters: a block has at most 4 KiB.
STANDING_BYTES_MAX = 4096
_HEADER_BYTES_MAX = 16 * 1024
_REQUEST_BYTES_MAX = PAYLOAD_BYTES_MAX + _HEADER_BYTES_MAX
_READ_WITHIN = 5.0
_HANDLE_WITHIN = 10.0
_AT_ONCE = 64
# How often it looks for changed files, waiting events and its own idle time.
_TICK = 1.0
# Without an event for this long, the session is over, and the next one can wait for a start.
IDLE_TIMEOUT = 900.0
_STATUS = b"afterturn-helper status"
_STOP = b"afterturn-helper stop"
_EMPTY = b"={}"


@dataclass(frozen=True, slots=True)
class HookRequest:
    """One event as the script sends it. `shown`: the script has answered by itself."""

    stamp: str
    client: str
    event: str
    cwd: str
    shown: bool
    payload: bytes

    @classmethod
    def parse(cls, data: bytes) -> HookRequest:
        """Raises InvalidPayload."""
        parts = data.split(b"\0", 6)
        if len(parts) != 7 or parts[0] != PROTOCOL:
            raise InvalidPayload("it is not a request of a hook's script")
        fields = [os.fsdecode(part) for part in parts[1:6]]
        if any(len(field) > 4096 for field in fields):
            raise InvalidPayload("a field of the request is too long")
        return cls(fields[0], fields[1], fields[2], fields[3], bool(fields[4]), parts[6])


class HookServer:
    """Answers requests until `stop` is set. `restarts`: another helper is to follow."""

    def __init__(self, folder: Path, name: str, config: Config) -> None:
        self._folder = folder
        self._name = name
        # From within the state folder: the name of a socket has at most 107 bytes.
        self._socket = f"{name}.sock"
        self._config = config
        self._files = _fingerprint()
        self._stamp = stamp()
        self._served = 0
        self._failed = 0
        self._inode = 0
        self._store = find_store(config.store or default_store())
        self._store_file: tuple[int, int] | None = None
        self._at_work = 0
        self._is_done = asyncio.Event()
        self._is_done.set()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._queue_lock = asyncio.Lock()
        self._handler: HookHandler | None = None
        # What reviews have saved, changed and removed since the user was told, also while memory is being opened.
        self._reviewed: Counter[str] = Counter()
        self.stop = asyncio.Event()
        self.restarts = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        config = replace(
            self._config,
            context_files="",
            standing_bytes_max=min(STANDING_BYTES_MAX, self._config.standing_bytes_max),
            review_verbose=self._config.review_verbose or self._config.hook_notice,
        )

        def hear(event: Event) -> None:
            if event.name == "memories_saved":
                loop.call_soon_threadsafe(self._note_review, event)

        async with afterturn.open(config=config, on_event=hear) as memory:
            self._handler = HookHandler(memory, config, self._reviewed)
            self._store_file = self._find_store_file()
            await self._take_queue()
            server = await asyncio.start_unix_server(self._serve, sock=self._bind(), limit=_REQUEST_BYTES_MAX)
            try:
                await self._watch()
            finally:
                # From now on hooks leave their events in files, for the next helper.
                if self._owns_socket():
                    os.unlink(self._socket)
                server.close()
                async with asyncio.timeout(_HANDLE_WITHIN):
                    await self._is_done.wait()

    def _note_review(self, event: Event) -> None:
        self._reviewed.update({name: int(event.data[name] or 0) for name in ("saved", "changed", "removed")})

    def _bind(self) -> socket.socket:
        """The lock is ours, so a socket that is there was left by a helper that crashed."""
        Path(self._socket).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self._socket)
        os.chmod(self._socket, 0o600)
        self._inode = os.stat(self._socket).st_ino
        listening.listen(BACKLOG)
        listening.setblocking(False)
        return listening

    def _owns_socket(self) -> bool:
        """False if somebody removed it, perhaps with its folder. Then no hook finds this helper any more."""
        try:
            return os.stat(self._folder / self._socket).st_ino == self._inode
        except OSError:
            return False

    def _find_store_file(self) -> tuple[int, int] | None:
        return file_identity(self._store) if isinstance(self._store, Path) else None

    def _has_lost_store(self) -> bool:
        """Whether the store's file was removed or replaced. Then another helper opens the one that is there."""
        if self._find_store_file() == self._store_file:
            return False
        logger.warning("the store's file was removed or replaced; the helper starts again")
        self.restarts = True
        self.stop.set()
        return True

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        served, since = self._served, loop.time()
        while True:
            try:
                async with asyncio.timeout(_TICK):
                    await self.stop.wait()
                return
            except TimeoutError:
                pass
            if not self._owns_socket():
                logger.warning("the helper's socket is gone; the helper ends")
                return
            if self._has_lost_store():
                return
            await self._take_queue()
            await self._finish_late_turns()
            await asyncio.to_thread(remove_old_statements)
            if self._files != _fingerprint():
                logger.info("the package or the settings have changed; the helper starts again")
                self.restarts = True
                return
            if served != self._served or self._at_work:
                served, since = self._served, loop.time()
            elif loop.time() - since > IDLE_TIMEOUT:
                logger.info("the helper ends after %g idle seconds", IDLE_TIMEOUT)
                return

    # Requests.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_work += 1
        self._is_done.clear()
        try:
            if not _is_same_user(writer.get_extra_info("socket")):
                logger.warning("a process of another user was refused")
                return
            async with asyncio.timeout(_READ_WITHIN):
                data = await reader.read(_REQUEST_BYTES_MAX + 1)
                while data and not reader.at_eof() and len(data) <= _REQUEST_BYTES_MAX:
                    data += await reader.read(_REQUEST_BYTES_MAX + 1 - len(data))
            writer.write(await self._answer(data))
            async with asyncio.timeout(_READ_WITHIN):
                await writer.drain()
        except (OSError, TimeoutError) as error:
            logger.warning("a hook has left before its answer: %s", describe(error))
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._is_done.set()
            writer.close()

    async def _answer(self, data: bytes) -> bytes:
        if data == _STATUS:
            counts = {"served": self._served, "failed": self._failed}
            return json.dumps({"pid": os.getpid(), "version": afterturn.__version__, **counts}).encode()
        if data == _STOP:
            self.stop.set()
            return b"{}"
        if self._has_lost_store():
            return b""  # the script leaves the event for the next helper
        self._served += 1
        if len(data) > _REQUEST_BYTES_MAX:
            return self._refuse("an event is too large")
        await self._take_queue()
        return await self._handle_data(data)

    def _look_at_script(self) -> None:
        """Without it, two installations would make each other's helper start again all the time."""
        with contextlib.suppress(OSError):
            if stamp() == self._stamp:
                return
        logger.info("the script has changed; the helper starts again")
        self.restarts = True
        self.stop.set()

    def _refuse(self, why: str) -> bytes:
        self._failed += 1
        logger.warning("an event was refused: %s", why)
        return _EMPTY

    async def _handle_data(self, data: bytes) -> bytes:
        """The answer, as the script expects it. Never raises."""
        try:
            request = HookRequest.parse(data)
            if request.stamp != self._stamp:
                self._look_at_script()
            # Requests get slots in the order in which they came, and the time of waiting for one is not counted: a
            # prompt that is dropped would lose the answer behind it too.
            async with self._slots, asyncio.timeout(_HANDLE_WITHIN):
                return b"=" + await self._handle(request)
        except InvalidPayload as error:
            return self._refuse(str(error))
        except (AfterturnError, TimeoutError) as error:
            self._failed += 1
            logger.warning("an event could not be handled: %s", describe(error))
            return _EMPTY
        except Exception:  # the boundary of one request: the agent continues without memory
            self._failed += 1
            logger.exception("an event could not be handled")
            return _EMPTY

    async def _handle(self, request: HookRequest, *, was_answered: bool = False) -> bytes:
        """`was_answered`: the script has left the event in a file."""
        client = CLIENTS.get(request.client)
        if client is None:
            raise InvalidPayload(f"{request.client[:40]!r} is not a client")
        try:
            payload = json.loads(request.payload or b"{}")
        except (ValueError, RecursionError) as error:
            raise InvalidPayload(f"{request.client} {request.event[:40]}: it is not JSON") from error
        if not isinstance(payload, dict):
            raise InvalidPayload(f"{request.client} {request.event[:40]}: it is a {type(payload).__name__}")
        event = client.read(request.event, payload)
        if event is None:
            return b"{}"
        assert self._handler is not None
        event = event._replace(cwd=check_folder(event.cwd, request.cwd))
        answer = await self._handler.handle(client, event, was_answered=was_answered, was_shown=request.shown)
        written = json.dumps(client.write(event, answer)).encode()
        return written if len(written) < ANSWER_BYTES_MAX else b"{}"

    async def _finish_late_turns(self) -> None:
        assert self._handler is not None
        try:
            async with asyncio.timeout(_HANDLE_WITHIN):
                await self._handler.finish_late_turns()
        except Exception:  # the boundary of a tick: other events must not suffer
            self._failed += 1
            logger.exception("a turn could not be ended")

    # Events that found no helper.

    async def _take_queue(self) -> None:
        """Handles the events that scripts left in files, oldest first."""
        async with self._queue_lock:
            for path in _waiting(self._folder / f"{self._name}.queue"):
                try:
                    data = path.read_bytes()
                    path.unlink()
                except OSError as error:
                    logger.warning("a waiting event cannot be read: %s", describe(error))
                    continue
                self._served += 1
                try:
                    async with asyncio.timeout(_HANDLE_WITHIN):
                        await self._handle(HookRequest.parse(data), was_answered=True)
                except InvalidPayload as error:
                    self._refuse(str(error))
                except Exception:  # the boundary of one event: the others must not wait for ever
                    self._failed += 1
                    logger.exception("a waiting event could not be handled")


def _waiting(queue: Path) -> Iterator[Path]:
    """Files only. Nothing behind a symbolic link, because an event that was read is deleted."""
    if queue.is_symlink():
        return
    try:
        names = sorted(one.name for one in os.scandir(queue) if one.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return
    yield from (queue / name for name in names if not name.endswith(".part"))


def _is_same_user(connection: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # only the owner can enter the folder of the socket
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", found)[1] == os.getuid())


def _fingerprint() -> tuple[tuple[str, int, int], ...]:
    """Changes when the package is upgraded or removed, and when the settings file changes."""
    here = Path(__file__)
    files = [SCRIPT, here, here.with_name("handler.py"), Path(afterturn.__file__), config_path(), *_installed_records()]
    found = []
    for file in files:
        try:
            seen = file.stat()
            found.append((str(file), seen.st_mtime_ns, seen.st_size))
        except OSError:
            found.append((str(file), 0, 0))
    return tuple(found)


@functools.cache
def _installed_records() -> tuple[Path, ...]:
    """The installer's list of the package's files, whose folder has the version in its name."""
    try:
        found = importlib.metadata.distribution("afterturn").locate_file(f"afterturn-{afterturn.__version__}.dist-info")
    except importlib.metadata.PackageNotFoundError:
        return ()
    return (Path(str(found)) / "RECORD",)


def serve(folder: str, name: str, lock: int) -> None:
    """Runs the helper in this process, which was started for it. `lock` is a locked file, which nobody else has."""
    os.closerange(3, lock)
    os.closerange(lock + 1, 1024)
    os.umask(0o077)
    os.chdir(folder)
    state = Path(folder)
    handler = RotatingFileHandler(state / f"{name}.log", maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    failed = state / f"{name}.failed"
    try:
        restarts = asyncio.run(_run(state, name))
        failed.unlink(missing_ok=True)
    except AfterturnError as error:
        # Hooks wait a while before they start another one.
        touch(str(failed))
        note_failure(folder, f"the helper cannot start: {error}")
        logger.error("the helper cannot start: %s", error)
        return
    except BaseException as error:
        touch(str(failed))
        note_failure(folder, f"the helper has failed: {type(error).__name__}")
        logger.exception("the helper has failed")
        raise
    fcntl.flock(lock, fcntl.LOCK_UN)
    if SCRIPT.exists() and (restarts or any(_waiting(state / f"{name}.queue"))):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # a hook has started another one
        os.set_inheritable(lock, True)
        os.execv(sys.executable, [sys.executable, "-I", str(SCRIPT), "--serve", folder, name, str(lock)])


async def _run(folder: Path, name: str) -> bool:
    server = HookServer(folder, name, load_config())
    await server.run()
    return server.restarts
