"""Numbers for the conversations and speakers of a shelf, and how they are found again by id and by name."""

from heapq import nsmallest

from afterturn.base.terms import words
from afterturn.recall.asked import NOBODY, SPEAKERS_MAX, name_words

NOWHERE = -1
# Measured, of a conversation with its id and of a speaker with a name of two words: strings, tuples, dictionaries.
_NAME_BYTES = 450


class Codes:
    """Numbers for conversations and speakers. Grows with rows that come; `drop` takes out what nothing is left of."""

    def __init__(self, space: str) -> None:
        self._space = space
        self._conversations: dict[tuple[str, str], int] = {}
        self._speakers: dict[str, int] = {}
        self._by_id: dict[str, set[int]] = {}
        self._by_word: dict[str, set[int]] = {}
        self._next = 0
        # How often speakers came and went, and the words of their names when it was so often.
        self._moves = 0
        self._named: tuple[int, frozenset[str]] = (0, NOBODY)

    @property
    def size_bytes(self) -> int:
        return (len(self._conversations) + len(self._speakers)) * _NAME_BYTES

    def conversation(self, owner: str | None, name: str | None) -> int:
        if name is None:
            return NOWHERE
        place = (owner or self._space, name)
        code = self._conversations.get(place)
        if code is None:
            code = self._next
            self._put_conversation(place, code)
        return code

    def speaker(self, name: str | None) -> int:
        if not name:
            return NOWHERE
        code = self._speakers.get(name)
        if code is None:
            code = self._next
            self._put_speaker(name, code)
        return code

    def find_conversations(self, owner: str | None, name: str) -> list[int]:
        """Without an owner, those of every owner."""
        if owner is None:
            return sorted(self._by_id.get(name, ()))
        code = self._conversations.get((owner, name))
        return [] if code is None else [code]

    def name_words(self) -> frozenset[str]:
        """Of as many speakers as a store would tell, and the same ones."""
        moves, (then, named) = self._moves, self._named
        if moves != then:
            named = name_words(nsmallest(SPEAKERS_MAX, list(self._speakers)))
            self._named = (moves, named)
        return named

    def find_speakers(self, names: frozenset[str]) -> list[int]:
        """Whose name has one of these words."""
        # Not by going through a set here, which another thread may be adding to.
        return sorted(set().union(*(self._by_word.get(name, ()) for name in names)))

    def drop(self, codes: set[int]) -> None:
        if not codes:
            return
        for place in [place for place, code in self._conversations.items() if code in codes]:
            code = self._conversations.pop(place)
            _discard(self._by_id, place[1], code)
        self._named = (-1, NOBODY)
        for name in [name for name, code in self._speakers.items() if code in codes]:
            code = self._speakers.pop(name)
            self._moves += 1
            for word in words(name):
                _discard(self._by_word, word, code)

    def _put_conversation(self, place: tuple[str, str], code: int) -> None:
        self._conversations[place] = code
        self._by_id.setdefault(place[1], set()).add(code)
        self._next = max(self._next, code + 1)

    def _put_speaker(self, name: str, code: int) -> None:
        self._speakers[name] = code
        self._moves += 1
        for word in words(name):
            self._by_word.setdefault(word, set()).add(code)
        self._next = max(self._next, code + 1)


def _discard(sets: dict[str, set[int]], name: str, code: int) -> None:
    # Another set, not a smaller one: a reader may be going through the old one.
    left = sets.get(name, set()) - {code}
    if left:
        sets[name] = left
    else:
        sets.pop(name, None)
