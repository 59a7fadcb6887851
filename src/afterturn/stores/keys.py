"""Keys of sealed spaces: the provider that keeps them as files, the keys that this process holds, and their cipher.

A sealed store has the id of each space's key, never the key. Without the key, what is sealed cannot be read, wherever
its bytes still are.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from afterturn.config import Config
from afterturn.errors import ExtraMissing, KeyMissing, KeysUnavailable, StoreCorrupt
from afterturn.runtime.files import sync
from afterturn.text import regex

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from afterturn.ports import Clock, KeyProvider

R = TypeVar("R")
KEY_BYTES = 32
NONCE_BYTES, TAG_BYTES = 12, 16
LOAD_WITHIN = 5.0
"""How long a unit of work waits for the provider, in seconds."""
LOADS_MAX = 100
"""How often one unit of work may find that it needs more keys."""
_KEPT_SECONDS = 300.0
# Long enough for a unit to run again and fail.
_MISSING_SECONDS = 5.0
_KEPT_MAX = 10_000
# So many calls may hang before the next one waits for the end of one of them.
_CALLS_MAX = 8
_ID = regex(r"[0-9a-f]{32}")


def key_provider(config: Config) -> KeyProvider | None:
    """The provider of the setting `keys`. None if nothing is sealed."""
    return None if config.keys is None else FolderKeys(Path(config.keys))


class KeyNeeded(BaseException):
    """Ends a unit of work that needs keys which this process does not hold. It runs again when they are loaded.

    Not an Exception: parts of a unit contain errors, and would go on without what the key opens.
    `ids` are keys to get; `spaces` are those, as (tenant, space), that get their first key.
    """

    def __init__(self, ids: Iterable[str] = (), spaces: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__("a key of a space is not loaded")
        self.ids = tuple(ids)
        self.spaces = tuple(spaces)


class FolderKeys:
    """The `KeyProvider` of the setting `keys`: one file for each key, which only its owner may read."""

    def __init__(self, folder: Path) -> None:
        # Absolute: a host may change its working directory.
        self.folder = folder.expanduser().absolute()

    def make(self, tenant: str, space: str) -> str:
        # Only for the store's own key, which is the first: a folder that is missing later is not mounted, or wrong.
        self._check(create=not tenant and not space)
        key_id, key = os.urandom(16).hex(), os.urandom(KEY_BYTES)
        content = json.dumps({"tenant": tenant, "space": space, "key": base64.b64encode(key).decode()})
        descriptor = os.open(self._path(key_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        sync(self.folder)
        return key_id

    def get(self, key_id: str) -> bytes | None:
        self._check()
        try:
            descriptor = self._open(key_id, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise KeysUnavailable(f"Others can read {self._path(key_id)}. Run `chmod 600` on the files there.")
            content = file.read()
        if content and not content.strip(b"\x00"):
            # `destroy` ended before it removed the file.
            return None
        try:
            return base64.b64decode(json.loads(content)["key"])
        except (ValueError, KeyError, TypeError):
            # Without the error, which may quote the content.
            raise KeysUnavailable(f"{self._path(key_id)} is damaged. Replace it by a copy of it.") from None

    def destroy(self, key_id: str) -> None:
        self._check()
        try:
            with os.fdopen(self._open(key_id, os.O_RDWR), "r+b") as file:
                file.write(b"\x00" * os.fstat(file.fileno()).st_size)
                file.flush()
                os.fsync(file.fileno())
            self._path(key_id).unlink()
        except FileNotFoundError:
            return
        sync(self.folder)

    def _check(self, *, create: bool = False) -> None:
        """Raises if others can read the folder, or if it is not there, which is not the same as a missing key."""
        try:
            if create:
                created = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                for path in created:
                    sync(path.parent)
            mode = stat.S_IMODE(self.folder.stat().st_mode)
        except OSError as error:
            raise KeysUnavailable(
                f"The folder of keys {self.folder} cannot be used: {error.strerror}. Check the setting `keys`."
            ) from error
        if mode & 0o077:
            raise KeysUnavailable(f"Others can use the folder of keys {self.folder}. Run `chmod 700 {self.folder}`.")

    def _open(self, key_id: str, flags: int) -> int:
        """A descriptor. Follows no symbolic link: the key must be in this folder, where it is destroyed."""
        try:
            return os.open(self._path(key_id), flags | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise KeysUnavailable(
                f"{self._path(key_id)} is a symbolic link. Replace it by the file to which it points."
            ) from error

    def _path(self, key_id: str) -> Path:
        if not _ID.fullmatch(key_id):
            raise KeysUnavailable(f"{key_id!r} is not the id of a key in {self.folder}. Check the setting `keys`.")
        return self.folder / f"{key_id}.key"


class SpaceCipher:
    """Seals and opens the values of one space. A sealed value is bound to its column and its row.

    `seal` gives another result each time. `hide` gives equal results for equal values, so that they can be compared;
    both can be opened. `digest` cannot.
    """

    def __init__(self, key: bytes, key_id: str, tenant: str, space: str) -> None:
        self.key_id = key_id
        self.space = space
        self._sealing, self._hiding = _aes(_subkey(key, b"seal")), _aes(_subkey(key, b"hide"))
        self._nonce_key, self._digest_key = _subkey(key, b"nonce"), _subkey(key, b"digest")
        self._place = _joined(tenant, space)

    def seal(self, column: str, row: str, text: str) -> str:
        return _encode(self.seal_bytes(column, row, text.encode("utf-8", "surrogatepass")))

    def open(self, column: str, row: str, sealed: str) -> str:
        return self.open_bytes(column, row, _decode(sealed)).decode("utf-8", "surrogatepass")

    def seal_bytes(self, column: str, row: str, content: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._sealing.encrypt(nonce, content, self._bound(column, row))

    def open_bytes(self, column: str, row: str, sealed: bytes) -> bytes:
        return self._opened(self._sealing, sealed, column, row)

    def hide(self, column: str, text: str) -> str:
        """Bound to the column only."""
        content, bound = text.encode("utf-8", "surrogatepass"), self._bound(column, "")
        nonce = hashlib.blake2b(bound + content, key=self._nonce_key, digest_size=NONCE_BYTES).digest()
        return _encode(nonce + self._hiding.encrypt(nonce, content, bound))

    def reveal(self, column: str, hidden: str) -> str:
        return self._opened(self._hiding, _decode(hidden), column, "").decode("utf-8", "surrogatepass")

    def digest(self, column: str, *parts: str, size: int = 16) -> str:
        content = self._bound(column, _joined(*parts).decode("utf-8", "surrogatepass"))
        return hashlib.blake2b(content, key=self._digest_key, digest_size=size).hexdigest()

    def digest_terms(self, terms: Iterable[str]) -> list[str]:
        """Sorted: the order of the words would help to guess them."""
        return sorted(self.digest("entry_terms.terms", term, size=8) for term in terms)

    def _bound(self, column: str, row: str) -> bytes:
        return b"\x01".join((self._place, column.encode(), row.encode("utf-8", "surrogatepass")))

    def _opened(self, aes: AESGCM, sealed: bytes, column: str, row: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return aes.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._bound(column, row))
        except (InvalidTag, ValueError):
            raise StoreCorrupt(
                f"A value in {column} of {self.space} was changed, or belongs to another row. Restore a backup, or "
                "forget the space."
            ) from None


def _subkey(key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(b"afterturn " + purpose, key=key, digest_size=KEY_BYTES).digest()


def _joined(*parts: str) -> bytes:
    """Each with its length, so that no two lists give the same bytes."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(b"%d:%b" % (len(part), part) for part in encoded)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        # Not long enough for a tag, so that it is refused where the column is known.
        return b""


def _aes(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ExtraMissing(f"Keys need `cryptography` ({error}). Run `pip install 'afterturn[keys]'`.") from error
    return AESGCM(key)


class KeyRing:
    """The keys that this process holds: a limited number, each for some minutes. May be used on any thread."""

    def __init__(self, provider: KeyProvider, clock: Clock) -> None:
        self._provider = provider
        self._now = clock.monotonic
        self._lock = threading.Lock()
        self._calls = threading.BoundedSemaphore(_CALLS_MAX)
        # None for a key that the provider does not have.
        self._keys: OrderedDict[str, tuple[bytes | None, float]] = OrderedDict()
        # By tenant and space, those that were used last.
        self._ids: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._store_key_id: str | None = None
        _aes(bytes(KEY_BYTES))

    def cipher(self, key_id: str, tenant: str, space: str) -> SpaceCipher:
        """Raises KeyNeeded if this process does not hold the key, KeyMissing if the provider does not have it."""
        with self._lock:
            self._remove_expired()
            key, until = self._keys.get(key_id, (None, 0.0))
            if until <= self._now():
                raise KeyNeeded([key_id])
            if key is None:
                raise KeyMissing(
                    f"The key of {space} is gone, so its memories cannot be read. If the space was forgotten and a "
                    "backup brought its rows back, forget it again with everything=True: this removes them, and the "
                    "space can be used. If not, bring the key back to the provider of keys.",
                    space=space,
                )
            self._note((tenant, space), key_id)
        return SpaceCipher(key, key_id, tenant, space)

    def note_store_key(self, key_id: str | None) -> None:
        """The id of the store's own key, as the store names it. None changes nothing."""
        self._store_key_id = key_id or self._store_key_id

    def check_store_key(self) -> None:
        """Asks the provider for the store's own key, whether or not this process holds it. A provider without it is
        not the store's, and what it says of other keys means nothing. Blocks; raises KeysUnavailable."""
        key_id = self._store_key_id
        if key_id is None or self._ask(lambda: self._provider.get(key_id)) is None:
            raise KeysUnavailable(
                "The provider of keys does not have this store's own key, so it is not the right one, or lost its "
                "keys. Check the setting `keys`."
            )

    def drop(self, tenant: str, space: str, key_id: str | None) -> None:
        """Lets go of the space's key unless it is this one, which the store names now."""
        with self._lock:
            self._remove_expired()
            known = self._ids.get((tenant, space))
            if known is not None and known != key_id:
                del self._ids[tenant, space]
                self._keys.pop(known, None)

    def load(self, needed: KeyNeeded) -> dict[tuple[str, str], str]:
        """Gets keys, and makes the first key of spaces, whose ids it returns. Blocks; raises KeysUnavailable."""
        for key_id in needed.ids:
            key = self._ask(lambda one=key_id: self._provider.get(one))  # type: ignore[misc]
            if key is None:
                self.check_store_key()
            self._put(key_id, key)
        if needed.spaces and self._store_key_id is not None:
            self.check_store_key()
        return {place: self._ask(lambda of=place: self._provider.make(*of)) for place in needed.spaces}  # type: ignore[misc]

    def known_cipher(self, tenant: str, space: str) -> SpaceCipher | None:
        """The cipher of a space whose key this process has used, without asking the store. Blocks; raises
        KeysUnavailable and KeyMissing."""
        with self._lock:
            key_id = self._ids.get((tenant, space))
        return None if key_id is None else self.load_cipher(key_id, tenant, space)

    def load_cipher(self, key_id: str, tenant: str, space: str) -> SpaceCipher:
        """As `cipher`, and loads the key. Blocks; raises KeysUnavailable."""
        try:
            return self.cipher(key_id, tenant, space)
        except KeyNeeded as needed:
            self.load(needed)
        return self.cipher(key_id, tenant, space)

    def destroy(self, key_id: str) -> None:
        """Blocks. When it returns, nobody can get the key. Raises KeysUnavailable."""
        with self._lock:
            self._keys.pop(key_id, None)
            for place in [place for place, known in self._ids.items() if known == key_id]:
                del self._ids[place]
        self._ask(lambda: self._provider.destroy(key_id))

    def _put(self, key_id: str, key: bytes | None) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise KeysUnavailable(f"The provider of keys returned {len(key)} bytes for {key_id}, not {KEY_BYTES}.")
        with self._lock:
            self._keys[key_id] = (key, self._now() + (_MISSING_SECONDS if key is None else _KEPT_SECONDS))
            self._keys.move_to_end(key_id)
            while len(self._keys) > _KEPT_MAX:
                self._keys.popitem(last=False)

    def _remove_expired(self) -> None:
        # Keys expire in the order in which they were loaded. A missing key expires sooner, and may stay among them.
        now = self._now()
        while self._keys and next(iter(self._keys.values()))[1] <= now:
            self._keys.popitem(last=False)

    def _note(self, place: tuple[str, str], key_id: str) -> None:
        self._ids[place] = key_id
        self._ids.move_to_end(place)
        while len(self._ids) > _KEPT_MAX:
            self._ids.popitem(last=False)

    def _ask(self, call: Callable[[], R]) -> R:
        """On a thread of its own, since the call may hang."""
        results: list[R] = []
        errors: list[KeysUnavailable] = []

        def run() -> None:
            try:
                results.append(call())
            except KeysUnavailable as error:
                errors.append(error)
            except Exception as error:  # noqa: BLE001  the boundary: a host's code behind the port
                # Only the type: its message may quote a key.
                name = type(error).__name__
                from afterturn.log import logger  # here: `logging` takes 3 ms, and a hook seldom logs

                logger.warning("the provider of keys failed: %s", name)
                errors.append(KeysUnavailable(f"The provider of keys failed ({name}). Check it, then try again."))
            finally:
                self._calls.release()

        if self._calls.acquire(timeout=LOAD_WITHIN):
            thread = threading.Thread(target=run, name="afterturn-keys", daemon=True)
            thread.start()
            thread.join(LOAD_WITHIN)
        if errors:
            raise errors[0]
        if not results:
            raise KeysUnavailable(
                f"The provider of keys did not answer within {LOAD_WITHIN:g} seconds. Check it, then try again."
            )
        return results[0]


def too_many_loads() -> KeysUnavailable:
    return KeysUnavailable(
        "A unit of work needed more and more keys, or they were dropped before it ran. Try again with fewer spaces."
    )
