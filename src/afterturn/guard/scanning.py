"""Which scanners run for a policy: built-in ones by name, and those of a host by import path. Made once per policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from importlib import import_module

from afterturn.errors import ConfigError
from afterturn.scanners.detection import Detection, ScanAction, Scanner, Scanning, ScanPolicy, without_overlaps
from afterturn.scanners.secrets import RedactedHashes, SecretScanner

# Twice what is read of a host's list in a turn.
_CACHED_MAX = 4_096


class ScannerGroup:
    """The scanners of a policy as one: `find` returns what is redacted or refused, `suspect` what may be an attack."""

    name = "group"

    def __init__(self, redacting: Sequence[Scanner], suspecting: Callable[[], Sequence[Scanner]]) -> None:
        self._redacting = tuple(redacting)
        self._make_suspecting = suspecting
        # By the hash of a text: it is scanned when it is written, and shown and chosen for prompts many times.
        self._suspected: dict[int, tuple[str, ...]] = {}

    @cached_property
    def _suspecting(self) -> tuple[Scanner, ...]:
        """Made when a text is first suspected, which a recall by words never does."""
        return tuple(self._make_suspecting())

    def find(self, text: str) -> Sequence[Detection]:
        found: list[Detection] = []
        for scanner in self._redacting:
            found.extend(scanner.find(text))
        found = [one for one in found if one.action is not ScanAction.SUSPECT]
        return without_overlaps(found) if len(self._redacting) > 1 else found

    def suspect(self, text: str) -> tuple[str, ...]:
        """The kinds of what makes a text suspicious."""
        key = hash(text)
        known = self._suspected.get(key)
        if known is None:
            found = (one for scanner in self._suspecting for one in scanner.find(text))
            known = tuple(dict.fromkeys(one.kind for one in found if one.action is ScanAction.SUSPECT))
            if len(self._suspected) >= _CACHED_MAX:
                self._suspected.clear()
            self._suspected[key] = known
        return known


class HostScanner:
    """A scanner of the host. If it raises, it finds nothing, and the first error is logged."""

    def __init__(self, name: str, scanner: Scanner) -> None:
        self.name = name
        self._scanner = scanner
        self._has_failed = False

    def find(self, text: str) -> Sequence[Detection]:
        try:
            return self._scanner.find(text)
        except Exception:  # the boundary: an object of the host must not end a write or a turn
            if not self._has_failed:
                self._has_failed = True
                from afterturn.log import logger  # here: `logging` takes 3 ms, and a hook seldom logs

                logger.exception("the scanner %s failed; what it would have found is not known", self.name)
            return ()


_SUSPECTED = "suspected: "


def suspicion_reason(kinds: Sequence[str]) -> str:
    """The reason that is stored with a memory."""
    return f"{_SUSPECTED}{', '.join(kinds)}"


def is_suspected(text: str, reason: str) -> bool:
    """Whether the stored reason says so. A plain wish for the manner of answers is not suspected."""
    if not (kinds := reason.partition(_SUSPECTED)[2]):
        return False
    from afterturn.scanners.instructions import INSTRUCTION, is_plain_wish

    return kinds != INSTRUCTION or not is_plain_wish(text)


def scanner(*, scanning: Scanning) -> ScannerGroup:
    """The scanners of a policy. True means the default policy, False means no scanners. Raises ConfigError."""
    if isinstance(scanning, bool):
        scanning = ScanPolicy() if scanning else ScanPolicy(())
    return _group(scanning)


@cache
def hashes(*, scanning: Scanning) -> RedactedHashes:
    """The cache of this process for a policy. Its content depends on the texts only."""
    return RedactedHashes(scanner(scanning=scanning), entries_max=_CACHED_MAX)


@cache
def _group(policy: ScanPolicy) -> ScannerGroup:
    own = {name: _load(name) for name in policy.scanners if name not in ScanPolicy().scanners}
    others = [name for name in policy.scanners if name != SecretScanner.name]
    redacting: list[Scanner] = [SecretScanner()] if SecretScanner.name in policy.scanners else []
    redacting += own.values()
    if policy.scanners and policy.personal_data != "off":
        from afterturn.scanners.personal_data import PersonalDataScanner

        redacting.append(PersonalDataScanner(ScanAction(policy.personal_data)))
    return ScannerGroup(redacting, lambda: [own[name] if name in own else _suspecting(name) for name in others])


def _suspecting(name: str) -> Scanner:
    from afterturn.scanners.instructions import InstructionScanner, InvisibleScanner, LinkScanner, LookAlikeScanner

    built_in = (InvisibleScanner, LookAlikeScanner, LinkScanner, InstructionScanner)
    return next(one() for one in built_in if one.name == name)


def _load(path: str) -> HostScanner:
    """The object at a path such as `company.scanning:TicketNumbers`; a class is called."""
    module, _, attribute = path.partition(":")
    if not attribute:
        known = ", ".join(ScanPolicy().scanners)
        raise ConfigError(f"There is no scanner {path!r}. Use {known}, or a path such as package.module:Scanner.")
    try:
        found = getattr(import_module(module), attribute)
        made = found() if isinstance(found, type) else found
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"The scanner {path!r} cannot be loaded: {error}. Check the path in `scanners`.") from error
    if not callable(getattr(made, "find", None)):
        raise ConfigError(f"The scanner {path!r} has no method `find`. See `afterturn.Scanner`.")
    return HostScanner(path, made)
