"""Looks at memories once more before a model sees them: what is known of secrets improves after the fact (G3)."""

from afterturn.guard.secrets import MARGIN_CHARS, redact, scanner
from afterturn.guard.trust import TRUST_MIN
from afterturn.types import Entry


class OutputFilter:
    """For one rendering. `withheld` tells which memories were left out, by reference, and why."""

    def __init__(self, *, scanning: bool) -> None:
        self._scanner = scanner(scanning=scanning)
        self._looked_at: dict[str, str | None] = {}
        self.withheld: dict[str, str] = {}

    def shown(self, entry: Entry) -> str | None:
        """What may be shown of it: without its secrets. None for an untrusted one that has some."""
        if entry.ref not in self._looked_at:
            self._looked_at[entry.ref] = self._look_at(entry, entry.text)
        return self._looked_at[entry.ref]

    def beginning(self, entry: Entry, chars_max: int) -> str | None:
        """`shown` for whoever has no time to look at all of a long one."""
        text = self._look_at(entry, entry.text[: chars_max + MARGIN_CHARS])
        return None if text is None else text[:chars_max]

    def _look_at(self, entry: Entry, text: str) -> str | None:
        found = redact(text, self._scanner)
        if found.kinds and entry.trust < TRUST_MIN:
            self.withheld[entry.ref] = found.reason
            return None
        return found.text
