"""The quotas of a space: how many bytes of statements it may have about its user and about the environment."""

from collections.abc import Iterator

from afterturn.config import Config
from afterturn.errors import OverBudget
from afterturn.guard.scanning import scanner
from afterturn.ports import Unit
from afterturn.scanners.secrets import redact
from afterturn.types import Admitted, Entry, Filter, Kind, Operation, Scope, Target

CANDIDATES_MAX = 10
BEGINNING_CHARS = 60
_PAGE = 500
_PAGES_MAX = 20
_ABOUT = {Target.USER: "its user", Target.ENVIRONMENT: "the environment"}


class Quota:
    """Checks the limits of the settings. Without a limit nothing is counted."""

    def __init__(self, config: Config) -> None:
        self._limits = {Target.USER: config.user_bytes_max, Target.ENVIRONMENT: config.environment_bytes_max}
        self._scanner = scanner(scanning=config.scan_policy)

    def check_new(self, unit: Unit, operation: Operation, admitted: Admitted) -> None:
        """Raises OverBudget if there is no room for a new statement. One that the space already has needs none."""
        target, size = admitted.draft.target, _size(admitted.text)
        if self._is_over(unit, operation, target, size):
            held = list(_held(unit, _scope(operation), target))
            own = (admitted.content_hash, admitted.draft.agent, admitted.draft.project)
            if all((entry.content_hash, entry.agent, entry.project) != own for entry in held):
                raise self._over(unit, operation, target, size, held)

    def check_change(self, unit: Unit, operation: Operation, current: Entry | None, text: str, target: Target) -> None:
        """Raises OverBudget if `text` is longer than `current` and there is no room for the difference."""
        grows = _size(text) - (_size(current.text) if current is not None and current.target is target else 0)
        if grows > 0 and self._is_over(unit, operation, target, grows):
            raise self._over(unit, operation, target, grows, list(_held(unit, _scope(operation), target)))

    def _is_over(self, unit: Unit, operation: Operation, target: Target, size: int) -> bool:
        limit = self._limits[target]
        return limit is not None and unit.memories.size(_scope(operation), target)[1] + size > limit

    def _over(self, unit: Unit, operation: Operation, target: Target, size: int, held: list[Entry]) -> OverBudget:
        limit, (_, used) = self._limits[target], unit.memories.size(_scope(operation), target)
        assert limit is not None
        # The least trusted first, then the oldest; pinned ones last.
        order = sorted(held, key=lambda entry: (entry.firm or entry.pinned, entry.trust, entry.recorded_at, entry.id))
        candidates = tuple((entry.id, self._beginning(entry)) for entry in order[:CANDIDATES_MAX])
        listed = "; ".join(f'{entry_id} "{text}"' for entry_id, text in candidates)
        return OverBudget(
            f"{operation.space} may have {limit} bytes about {_ABOUT[target]} (`{target}_bytes_max`); {used} are used, "
            f"and this needs {size} more. Shorten it, or delete or merge some"
            + (f" of these first: {listed}." if listed else "."),
            used_bytes=used,
            limit_bytes=limit,
            candidates=candidates,
        )

    def _beginning(self, entry: Entry) -> str:
        shown = " ".join(redact(entry.text, self._scanner).text.split())
        return shown if len(shown) <= BEGINNING_CHARS else shown[: BEGINNING_CHARS - 1].rstrip() + "…"


def _held(unit: Unit, scope: Scope, target: Target) -> Iterator[Entry]:
    before: str | None = None
    for _ in range(_PAGES_MAX):
        page = unit.memories.page(scope, Filter(kind=Kind.STATEMENT, target=target), limit=_PAGE, before=before)
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].id
        unit.check()


def _scope(operation: Operation) -> Scope:
    return Scope(operation.tenant, (operation.space,))


def _size(text: str) -> int:
    return len(text.encode())
